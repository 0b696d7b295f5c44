"""The model families and their named variants."""

from cct_keras.models.cct import CCT
from cct_keras.models.cvt import CVT
from cct_keras.models.deit import DeiT
from cct_keras.models.deit import distillation_outputs
from cct_keras.models.depth import freeze
from cct_keras.models.factory import create_model
from cct_keras.models.factory import list_models
from cct_keras.models.features import feature_extractor
from cct_keras.models.lora import add_lora
from cct_keras.models.lora import merge_lora
from cct_keras.models.transfer import with_input_shape
from cct_keras.models.vit import ViT
from cct_keras.models.vit_lite import ViTLite

__all__ = [
    "CCT",
    "CVT",
    "DeiT",
    "ViT",
    "ViTLite",
    "add_lora",
    "create_model",
    "distillation_outputs",
    "feature_extractor",
    "freeze",
    "list_models",
    "merge_lora",
    "with_input_shape",
]
