import numpy as np
import pytest
from gradients import assert_same_function
from scipy.special import erf

from cct_keras.kernels.gelu import gelu

pytestmark = pytest.mark.backend


def test_gelu(device, dtype, training):
    assert_same_function(
        lambda x: gelu(x, training),
        lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
        np.linspace(-6, 6, 101),
        dtype=dtype,
    )
