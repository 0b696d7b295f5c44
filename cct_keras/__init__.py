"""Compact transformers for Keras 3."""

import pathlib
import sys

if pathlib.Path((sys.argv or [""])[0]).stem == "cct-keras":
    from cct_keras.quiet import import_keras_quietly

    import_keras_quietly()

from cct_keras import layers
from cct_keras.converter import convert
from cct_keras.converter import to_torch
from cct_keras.data import load_data
from cct_keras.models import CCT
from cct_keras.models import CVT
from cct_keras.models import DeiT
from cct_keras.models import ViT
from cct_keras.models import ViTLite
from cct_keras.models import add_lora
from cct_keras.models import create_model
from cct_keras.models import distillation_outputs
from cct_keras.models import feature_extractor
from cct_keras.models import freeze
from cct_keras.models import list_models
from cct_keras.models import merge_lora
from cct_keras.models import with_input_shape
from cct_keras.pretrained import class_names
from cct_keras.pretrained import list_weights
from cct_keras.pretrained import preprocess_input
from cct_keras.training import Recipe
from cct_keras.training import evaluate
from cct_keras.training import linear_probe
from cct_keras.training import list_recipes
from cct_keras.training import load_classifier
from cct_keras.training import predict
from cct_keras.training import train

__version__ = "0.1.0"

__all__ = [
    "CCT",
    "CVT",
    "DeiT",
    "Recipe",
    "ViT",
    "ViTLite",
    "add_lora",
    "class_names",
    "convert",
    "create_model",
    "distillation_outputs",
    "evaluate",
    "feature_extractor",
    "freeze",
    "layers",
    "linear_probe",
    "list_models",
    "list_recipes",
    "list_weights",
    "load_classifier",
    "load_data",
    "merge_lora",
    "predict",
    "preprocess_input",
    "to_torch",
    "train",
    "with_input_shape",
]
