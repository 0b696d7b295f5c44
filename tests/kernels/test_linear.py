import numpy as np
import pytest
from gradients import assert_same_function
from keras import ops

from cct_keras.kernels.linear import linear

pytestmark = pytest.mark.backend

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(1, 6), (9, 6), (2, 3, 6)])
def test_linear(device, dtype, shape):
    inputs = [RANDOM.standard_normal(one) for one in (shape, (6, 5))]
    assert_same_function(linear, np.matmul, *inputs, dtype=dtype)


@pytest.mark.parametrize("shape", [(1, 6), (9, 6), (2, 3, 6)])
def test_with_a_bias(device, dtype, shape):
    inputs = [RANDOM.standard_normal(one) for one in (shape, (6, 5), (5,))]

    def reference(x, kernel, bias):
        return x @ kernel + bias

    assert_same_function(linear, reference, *inputs, dtype=dtype)


def test_an_empty_batch(device):
    kernel, bias = ops.ones((6, 5)), ops.ones(5)
    assert tuple(linear(ops.ones((0, 6)), kernel, bias).shape) == (0, 5)
