import math

import numpy as np
import pytest
from gradients import assert_same_function
from gradients import gradient
from keras import ops

from cct_keras.kernels.max_pool import max_pool

pytestmark = pytest.mark.backend


def by_numpy(x, size, stride, padding):
    widths = [(0, 0), (padding, padding), (padding, padding), (0, 0)]
    padded = np.pad(x, widths, constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (1, 2))
    return windows[:, ::stride, ::stride].max((-1, -2))


@pytest.mark.parametrize("never_negative", [False, True])
@pytest.mark.parametrize(
    ("shape", "size", "stride", "padding"),
    [((2, 8, 7, 3), 3, 2, 1), ((1, 9, 9, 2), 3, 3, 0), ((2, 6, 5, 1), 2, 1, 1)],
)
def test_max_pool(
    device, dtype, training, shape, size, stride, padding, never_negative
):
    # All values differ, so that every window has one winner.
    x = np.random.default_rng(0).permutation(math.prod(shape)).reshape(shape)
    x = x / 10 if never_negative else x / 10 - 20

    def kernel(x):
        return max_pool(
            x,
            size,
            stride,
            padding,
            never_negative=never_negative,
            training=training,
        )

    def reference(x):
        return by_numpy(x, size, stride, padding)

    assert_same_function(kernel, reference, x, dtype=dtype)


def test_the_padding_never_wins(device, training):
    x = -1.0 - np.arange(16).reshape(1, 4, 4, 1)
    output = max_pool(ops.convert_to_tensor(x, "float32"), 3, 2, 1, training=training)
    expected = by_numpy(x, 3, 2, 1)
    np.testing.assert_array_equal(ops.convert_to_numpy(output), expected)


def test_a_tie_in_a_pool_gives_its_gradient_once(device, training):
    """Flat parts of an image are equal far and wide."""
    x = np.full((1, 4, 4, 1), 3.0)

    def pool(x):
        return max_pool(x, 3, 2, 1, never_negative=True, training=training)

    slope = gradient(pool, x, np.ones((1, 2, 2, 1)))
    assert slope.sum() == pytest.approx(4)
    assert slope.min() >= 0
