"""Layer normalization."""

import keras
from keras import ops

from cct_keras.kernels.device import tuned_for_cpu


def layer_norm(x, gamma, beta, epsilon: float, training: bool | None = False):
    """`gamma * (x - mean) / sqrt(variance + epsilon) + beta` over the last axis.

    Args:
        x: A tensor `(..., dim)`.
        gamma: The scale, `(dim,)`.
        beta: The offset, `(dim,)`.
        epsilon: Added to the variance.
        training: Whether there will be a backward pass.

    Returns:
        A tensor of the shape and type of `x`.

    Example:

    >>> x = keras.random.normal((2, 64, 128))
    >>> keras.ops.shape(layer_norm(x, keras.ops.ones(128), keras.ops.zeros(128), 1e-5))
    (2, 64, 128)
    """
    if keras.config.backend() != "tensorflow" or not tuned_for_cpu(x):
        return ops.layer_normalization(x, gamma, beta, epsilon=epsilon)
    # Half precision is too coarse for the mean and the variance.
    wide = x if x.dtype == "float64" else ops.cast(x, "float32")
    if training:
        normalized = _normalize_from_output(wide, epsilon)
    else:
        normalized, _ = _normalize(wide, epsilon)
    return ops.cast(normalized, x.dtype) * gamma + beta


def _normalize(x, epsilon):
    x = x - ops.mean(x, axis=-1, keepdims=True)
    scale = ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + epsilon)
    return x * scale, scale


def _normalize_from_output(x, epsilon):
    """Keeps only the output for the backward pass; TensorFlow keeps one tensor more."""

    @ops.custom_gradient
    def normalize(x):
        y, scale = _normalize(x, epsilon)

        def backward(gradient):
            mean = ops.mean(gradient, axis=-1, keepdims=True)
            slope = ops.mean(gradient * y, axis=-1, keepdims=True)
            return scale * (gradient - (y * slope + mean))

        return y, backward

    return normalize(x)
