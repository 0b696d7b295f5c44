"""The names of `__init__.py` for editors and type checkers."""

from cct_keras import errors as errors
from cct_keras import layers as layers
from cct_keras import runtime as runtime
from cct_keras.converter.conversion import convert as convert
from cct_keras.converter.conversion import to_torch as to_torch
from cct_keras.data.dataset import Dataset as Dataset
from cct_keras.data.dataset import load_data as load_data
from cct_keras.distillation.losses import DistillationLoss as DistillationLoss
from cct_keras.distillation.teacher import Teacher as Teacher
from cct_keras.errors import CCTKerasError as CCTKerasError
from cct_keras.explaining.explain import explain as explain
from cct_keras.explaining.explanation import Explanation as Explanation
from cct_keras.explaining.inspection import Inspection as Inspection
from cct_keras.explaining.inspection import inspect_model as inspect_model
from cct_keras.explaining.judging import Judgement as Judgement
from cct_keras.explaining.judging import judge_explanations as judge_explanations
from cct_keras.exporting.export import Export as Export
from cct_keras.exporting.export import export as export
from cct_keras.finetuning.freeze import freeze as freeze
from cct_keras.finetuning.lora import add_lora as add_lora
from cct_keras.finetuning.lora import merge_lora as merge_lora
from cct_keras.inference.classifier import load_classifier as load_classifier
from cct_keras.inference.decode import decode_predictions as decode_predictions
from cct_keras.inference.evaluate import evaluate as evaluate
from cct_keras.inference.predict import predict as predict
from cct_keras.models.cct import CCT as CCT
from cct_keras.models.cvt import CVT as CVT
from cct_keras.models.deit import DeiT as DeiT
from cct_keras.models.deit import distillation_outputs as distillation_outputs
from cct_keras.models.factory import create_model as create_model
from cct_keras.models.features import feature_extractor as feature_extractor
from cct_keras.models.features import with_input_shape as with_input_shape
from cct_keras.models.vit import ViT as ViT
from cct_keras.models.vit_lite import ViTLite as ViTLite
from cct_keras.pretrained.catalog import class_names as class_names
from cct_keras.pretrained.catalog import list_models as list_models
from cct_keras.pretrained.catalog import list_weights as list_weights
from cct_keras.pretrained.preprocess import preprocess_input as preprocess_input
from cct_keras.recipes.recipe import Recipe as Recipe
from cct_keras.recipes.rows import list_recipes as list_recipes
from cct_keras.training.probe import linear_probe as linear_probe
from cct_keras.training.train import Run as Run
from cct_keras.training.train import train as train

__version__: str
