import keras
import numpy as np
import pytest
from gradients import assert_same_function
from keras import ops

from cct_keras.kernels.layer_norm import layer_norm

pytestmark = pytest.mark.backend

EPSILON = 1e-3


def by_numpy(x, gamma, beta):
    centered = x - x.mean(-1, keepdims=True)
    return centered / np.sqrt(x.var(-1, keepdims=True) + EPSILON) * gamma + beta


def test_layer_norm(device, dtype, training):
    x = 5 + 3 * np.random.default_rng(0).standard_normal((4, 3, 8))
    assert_same_function(
        lambda x, gamma, beta: layer_norm(x, gamma, beta, EPSILON, training),
        by_numpy,
        x,
        np.linspace(-1, 2, 8),
        np.linspace(3, 1, 8),
        dtype=dtype,
    )


@pytest.mark.parametrize(("dtype", "error"), [("float16", 2e-3), ("bfloat16", 0.01)])
def test_half_precision_has_exact_moments(device, dtype, error, training):
    """1,000 squared does not fit into float16."""
    x = 1000 + 8 * np.arange(64, dtype="float32")[None]
    gamma, beta = ops.ones(64, dtype), ops.zeros(64, dtype)
    output = layer_norm(ops.convert_to_tensor(x, dtype), gamma, beta, 1e-5, training)
    assert keras.backend.standardize_dtype(output.dtype) == dtype
    output = ops.convert_to_numpy(ops.cast(output, "float32"))
    expected = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
    np.testing.assert_allclose(output, expected, atol=error)
