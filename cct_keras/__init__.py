"""Compact transformers for Keras 3."""

import importlib

# Importing it tells the model constructors how to find their `weights`.
import cct_keras.pretrained as _pretrained  # noqa: F401
from cct_keras.import_hook import when_imported as _when_imported

__version__ = "0.1.0"

# Where each public name is defined. It is imported when the name is first used, so that
# `import cct_keras` takes milliseconds and does not import Keras. `__init__.pyi` has
# the same list for editors and type checkers; a test compares the two.
_HOMES = {
    "CCT": "cct_keras.models.cct",
    "CCTKerasError": "cct_keras.errors",
    "CVT": "cct_keras.models.cvt",
    "Comparison": "cct_keras.studies.comparison",
    "Dataset": "cct_keras.data.dataset",
    "DeiT": "cct_keras.models.deit",
    "DistillationLoss": "cct_keras.distillation.losses",
    "Explanation": "cct_keras.explaining.explanation",
    "Export": "cct_keras.exporting.export",
    "Inspection": "cct_keras.explaining.inspection",
    "Judgement": "cct_keras.explaining.judging",
    "Plan": "cct_keras.training.plan",
    "Publication": "cct_keras.publishing.publish",
    "Recipe": "cct_keras.recipes.recipe",
    "Run": "cct_keras.training.train",
    "Teacher": "cct_keras.distillation.teacher",
    "ViT": "cct_keras.models.vit",
    "ViTLite": "cct_keras.models.vit_lite",
    "add_lora": "cct_keras.finetuning.lora",
    "class_names": "cct_keras.pretrained.catalog",
    "compare": "cct_keras.studies.compare",
    "convert": "cct_keras.converter.conversion",
    "create_model": "cct_keras.models.factory",
    "decode_predictions": "cct_keras.inference.decode",
    "distillation_outputs": "cct_keras.models.deit",
    "evaluate": "cct_keras.inference.evaluate",
    "explain": "cct_keras.explaining.explain",
    "export": "cct_keras.exporting.export",
    "feature_extractor": "cct_keras.models.features",
    "freeze": "cct_keras.finetuning.freeze",
    "inspect_model": "cct_keras.explaining.inspection",
    "judge_explanations": "cct_keras.explaining.judging",
    "linear_probe": "cct_keras.training.probe",
    "list_models": "cct_keras.pretrained.catalog",
    "list_recipes": "cct_keras.recipes.rows",
    "list_weights": "cct_keras.pretrained.catalog",
    "load_classifier": "cct_keras.inference.classifier",
    "load_data": "cct_keras.data.dataset",
    "merge_lora": "cct_keras.finetuning.lora",
    "predict": "cct_keras.inference.predict",
    "preprocess_input": "cct_keras.pretrained.preprocess",
    "publish": "cct_keras.publishing.publish",
    "study": "cct_keras.studies.study",
    "to_torch": "cct_keras.converter.conversion",
    "train": "cct_keras.training.train",
    "with_input_shape": "cct_keras.models.features",
}
# Modules that are public as a whole.
_MODULES = ("errors", "layers", "runtime")
__all__ = [*_MODULES, *_HOMES]


def __getattr__(name):
    if name in _MODULES:
        # Importing a module makes it an attribute of the package.
        return importlib.import_module(f"cct_keras.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'cct_keras' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)


def _register():
    """Lets `keras.models.load_model` find our layers, whoever imported Keras."""
    importlib.import_module("cct_keras.registration")


_when_imported("keras", _register, package="cct_keras")
