"""The activations between the two linear layers of a block."""

import math

import keras
from keras import ops

from cct_keras.kernels.gelu import gelu


def activate(x, activation: str, training: bool | None = False):
    """The activation of this name.

    Args:
        x: A tensor.
        activation: `"gelu"`, the exact one; `"gelu_tanh"`, its approximation without
            `erf`; `"relu"`; `"quick_gelu"`, CLIP's approximation; or `"swiglu"`, which
            halves the last axis.
        training: Whether there will be a backward pass.

    Example:

    >>> keras.ops.convert_to_numpy(activate(keras.ops.array([-1.0, 2.0]), "relu"))
    array([0., 2.], dtype=float32)
    """
    if activation == "gelu":
        return gelu(x, training)
    others = {
        "gelu_tanh": gelu_tanh,
        "relu": ops.relu,
        "quick_gelu": quick_gelu,
        "swiglu": swiglu,
    }
    return others[activation](x)


def gelu_tanh(x):
    """`0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))`.

    Example:

    >>> keras.ops.shape(gelu_tanh(keras.ops.zeros((2, 3))))
    (2, 3)
    """
    if keras.config.backend() != "tensorflow":
        return ops.gelu(x, approximate=True)
    # TensorFlow's own has a power, which some of the accelerators that lack `erf` do
    # not have either; products they all have.
    inner = math.sqrt(2 / math.pi) * x * (1.0 + 0.044715 * ops.square(x))
    return 0.5 * x * (1.0 + ops.tanh(inner))


def quick_gelu(x):
    """`x * sigmoid(1.702 * x)`.

    Example:

    >>> keras.ops.shape(quick_gelu(keras.ops.zeros((2, 3))))
    (2, 3)
    """
    return x * ops.sigmoid(1.702 * x)


def swiglu(x):
    """The SiLU of the first half of the last axis, times the second half.

    Example:

    >>> keras.ops.shape(swiglu(keras.ops.zeros((2, 6))))
    (2, 3)
    """
    gate, values = ops.split(x, 2, axis=-1)
    return ops.silu(gate) * values
