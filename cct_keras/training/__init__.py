"""Training: recipes, `train`, distillation, `linear_probe`, `evaluate`, `predict`."""

from cct_keras.training.distillation import DistillationAccuracy
from cct_keras.training.distillation import DistillationLoss
from cct_keras.training.evaluation import evaluate
from cct_keras.training.evaluation import load_classifier
from cct_keras.training.evaluation import predict
from cct_keras.training.probe import linear_probe
from cct_keras.training.recipe import Recipe
from cct_keras.training.recipes import find_recipe
from cct_keras.training.recipes import list_recipes
from cct_keras.training.schedule import WarmupSchedule
from cct_keras.training.teacher import Teacher
from cct_keras.training.trainer import Run
from cct_keras.training.trainer import train

__all__ = [
    "DistillationAccuracy",
    "DistillationLoss",
    "Recipe",
    "Run",
    "Teacher",
    "WarmupSchedule",
    "evaluate",
    "find_recipe",
    "linear_probe",
    "list_recipes",
    "load_classifier",
    "predict",
    "train",
]
