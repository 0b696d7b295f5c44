"""The exact GELU."""

import math

import keras
from keras import ops

from cct_keras.kernels.device import tuned_for_cpu


def gelu(x, training: bool | None = False):
    """`0.5 * x * (1 + erf(x / sqrt(2)))`.

    Args:
        x: A tensor.
        training: Whether there will be a backward pass.

    Example:

    >>> keras.ops.shape(gelu(keras.ops.zeros((2, 3))))
    (2, 3)
    """
    if keras.config.backend() != "tensorflow":
        return ops.gelu(x, approximate=False)
    if not training:
        # TensorFlow's own has an `erfc`, which the ONNX format lacks; a model may be
        # exported on any device. This one TensorFlow fuses into the product before it.
        return _gelu_by_erf(x)
    if tuned_for_cpu(x):
        return _gelu_from_its_input(x)
    return ops.gelu(x, approximate=False)


@ops.custom_gradient
def _gelu_from_its_input(x):
    """Keeps one tensor for the backward pass, where TensorFlow would keep four."""

    def backward(gradient):
        density = ops.exp(ops.square(x) * -0.5) * (2 * math.pi) ** -0.5
        probability = 0.5 * (1.0 + ops.erf(x * math.sqrt(0.5)))
        return gradient * (probability + x * density)

    return _gelu_by_erf(x), backward


def _gelu_by_erf(x):
    return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))
