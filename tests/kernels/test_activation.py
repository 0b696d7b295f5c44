import keras
import numpy as np
import pytest
from gradients import assert_same_function
from scipy.special import erf

from cct_keras.checks import ACTIVATIONS
from cct_keras.kernels.activation import activate
from cct_keras.kernels.gelu import gelu

pytestmark = pytest.mark.backend

REFERENCES = {
    "gelu": lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
    "gelu_tanh": lambda x: (
        0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    ),
    "relu": lambda x: np.maximum(x, 0),
    "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
    "swiglu": lambda x: x[:50] / (1 + np.exp(-x[:50])) * x[50:],
}
# An even number of points, for the ReLU has no derivative at 0.
POINTS = np.linspace(-6, 6, 100)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activation(activation, device, dtype, training):
    assert_same_function(
        lambda x: activate(x, activation, training),
        REFERENCES[activation],
        POINTS,
        dtype=dtype,
    )


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(activation, dtype, training):
    x = keras.ops.convert_to_tensor(POINTS, dtype)
    output = activate(x, activation, training)
    assert keras.backend.standardize_dtype(output.dtype) == dtype
    output = keras.ops.convert_to_numpy(keras.ops.cast(output, "float32"))
    np.testing.assert_allclose(output, REFERENCES[activation](POINTS), atol=0.05)


def test_gelu_is_the_kernel_of_its_own(training):
    x = keras.ops.convert_to_tensor(POINTS, "float32")
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(activate(x, "gelu", training)),
        keras.ops.convert_to_numpy(gelu(x, training)),
    )
