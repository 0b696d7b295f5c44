"""The linear map of a layer."""

import keras
from keras import ops

from cct_keras.kernels.device import tuned_for_cpu


def linear(x, kernel, bias=None):
    """`x @ kernel + bias`.

    Matrices are the fast case everywhere: TensorFlow fuses the bias, and a GELU after
    it, into the product of two matrices but not into one of batches of them.

    Args:
        x: A tensor `(..., dim)`.
        kernel: A matrix `(dim, units)`.
        bias: A vector `(units,)`, or `None`.

    Returns:
        A tensor `(..., units)`.

    Example:

    >>> keras.ops.shape(linear(keras.ops.ones((4, 3)), keras.ops.ones((3, 2))))
    (4, 2)
    """
    if keras.config.backend() == "torch" and _suits_convolution(x):
        return _linear_by_convolution(x, kernel, bias)
    x = ops.matmul(x, kernel)
    return x if bias is None else ops.add(x, bias)


def _suits_convolution(x):
    import torch

    return (
        tuned_for_cpu(x)
        and x.dtype == torch.float32
        and x.dim() == 2
        and len(x) > 0
        and torch.backends.mkldnn.is_available()
        and not torch.compiler.is_exporting()
    )


def _linear_by_convolution(x, kernel, bias):
    """Takes each row for a pixel and each column for a channel.

    On a CPU, torch's library for convolutions multiplies up to 1.3 times as fast as its
    library for matrix products; it adds the bias on the way, and does both also in the
    backward pass.
    """
    import torch

    kernel = ops.convert_to_tensor(kernel)
    bias = None if bias is None else ops.convert_to_tensor(bias)
    pixels = x[None, None].permute(0, 3, 1, 2)
    x = torch.nn.functional.conv2d(pixels, kernel.t()[..., None, None], bias)
    return x.permute(0, 2, 3, 1).reshape(-1, kernel.shape[1])
