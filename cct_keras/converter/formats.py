"""Which family of checkpoints a file belongs to."""

import keras
import numpy as np

from cct_keras.converter import hugging_face
from cct_keras.converter import shi_labs
from cct_keras.converter import timm
from cct_keras.converter.checkpoint import read_checkpoint
from cct_keras.converter.table import Architecture
from cct_keras.converter.table import Table
from cct_keras.models.depth import encoder_blocks
from cct_keras.models.variants import VARIANTS
from cct_keras.models.variants import constructor_arguments


def read_weights(source, entry: str | None = None) -> tuple[dict, dict]:
    """The weights of a checkpoint by the names of their authors' code.

    Args:
        source: What `read_checkpoint` takes.
        entry: Which entry of the file holds them.

    Returns:
        `{name: array}`, and constructor arguments that the file's own naming tells.
    """
    state = read_checkpoint(source, entry)
    if all(name.startswith("module.") for name in state):
        state = {name.removeprefix("module."): state[name] for name in state}
    if hugging_face.is_hugging_face(state):
        return hugging_face.timm_names(state), {"epsilon": hugging_face.EPSILON}
    return shi_labs.original_names(state), {}


def table_of(state_or_model) -> Table:
    """The table of a state dict, or of a model of this package."""
    if isinstance(state_or_model, keras.Model):
        textbook = any(block.pre_norm for block in encoder_blocks(state_or_model))
    else:
        textbook = timm.TABLE.first_kernel in state_or_model
    return timm.TABLE if textbook else shi_labs.TABLE


def infer(state: dict[str, np.ndarray], grid=None, **told) -> Architecture:
    """The architecture of a checkpoint, from names and shapes.

    Args:
        state: Weights as `read_weights` returns them.
        grid: `(rows, columns)` of the positions, if not a square.
        **told: Constructor arguments that the caller knows.
    """
    module = timm if table_of(state) is timm.TABLE else shi_labs
    return module.infer(state, grid, **told)


def variant_of(architecture: Architecture) -> str | None:
    """The name of an architecture, if it has one."""
    own = {"top_pooling": "token", "distillation_head": True}
    if any(architecture.arguments.get(k, v) != v for k, v in own.items()):
        return None
    for name, row in VARIANTS.items():
        if row.architecture == architecture.family and all(
            architecture.arguments[key] == value
            for key, value in constructor_arguments(row).items()
        ):
            return name
    return None
