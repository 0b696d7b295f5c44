"""Max-pooling with symmetric padding, the fast way of each backend."""

import functools
import math

import keras
from keras import ops


def max_pool(x, size: int, stride: int, padding: int, *, positive: bool, training):
    """Largest values of windows of images `(batch, height, width, channels)`.

    Args:
        x: The images.
        size: Side of the windows.
        stride: Their distance.
        padding: How far they reach over each border.
        positive: Whether no value is negative.
        training: Whether there will be a backward pass.
    """
    backend = keras.config.backend()
    if backend == "torch":
        return _torch_max_pool(x, size, stride, padding)
    # A zero then never wins over a real value, and pads cheaper.
    x = pad(x, padding, 0.0 if positive else -math.inf)
    if backend == "jax" and training:
        # XLA's own takes four times as long backwards on a CPU.
        return _maximum_of_slices(x, size, stride)
    return ops.max_pool(
        x, size, strides=stride, padding="valid", data_format="channels_last"
    )


def pad(x, size: int, value: float):
    """The images with a frame of a value."""
    if not size:
        return x
    widths = [[0, 0], [size, size], [size, size], [0, 0]]
    return ops.pad(x, widths, constant_values=value)


def _torch_max_pool(x, size, stride, padding):
    """Its own padding makes no copies, in neither pass."""
    import torch

    x = torch.nn.functional.max_pool2d(x.permute(0, 3, 1, 2), size, stride, padding)
    return x.permute(0, 2, 3, 1)


def _maximum_of_slices(x, size, stride):
    """First of the rows, then of the columns."""
    for axis in (1, 2):
        length = (x.shape[axis] - size) // stride * stride + 1
        before = (slice(None),) * axis
        slices = (x[(*before, slice(i, i + length, stride))] for i in range(size))
        x = functools.reduce(ops.maximum, slices)
    return x
