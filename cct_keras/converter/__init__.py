"""Foreign checkpoints into Keras models, and back."""

from cct_keras.converter.conversion import convert
from cct_keras.converter.conversion import to_torch
from cct_keras.converter.torch_file import CheckpointError

__all__ = ["CheckpointError", "convert", "to_torch"]
