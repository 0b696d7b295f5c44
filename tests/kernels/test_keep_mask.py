import keras
import numpy as np
import pytest
from keras import ops

from cct_keras.kernels.keep_mask import keep_mask

pytestmark = pytest.mark.backend


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.99, 1 - 1e-9])
@pytest.mark.parametrize("shape", [(40, 3, 16, 16), (40, 3, 17, 17)])
def test_share_of_the_mask(shape, rate):
    mask = ops.convert_to_numpy(keep_mask(shape, rate, keras.random.SeedGenerator(1)))
    assert mask.shape == shape
    assert mask.dtype == bool
    for axis in range(len(shape)):
        others = tuple(i for i in range(len(shape)) if i != axis)
        count = mask.size / shape[axis]
        spread = np.sqrt(rate * (1 - rate) / count)
        np.testing.assert_allclose(mask.mean(others), 1 - rate, atol=5 * spread)
    neighbors = mask[..., 1:] == mask[..., :-1]
    expected = rate**2 + (1 - rate) ** 2
    spread = np.sqrt(expected * (1 - expected) / neighbors.size)
    assert neighbors.mean() == pytest.approx(expected, abs=6 * spread)


def test_masks_follow_the_seed():
    first, second = (keras.random.SeedGenerator(7) for _ in range(2))
    masks = [
        [ops.convert_to_numpy(keep_mask((64, 64), 0.5, generator)) for _ in range(2)]
        for generator in (first, second)
    ]
    np.testing.assert_array_equal(*masks)
    assert (masks[0][0] != masks[0][1]).mean() == pytest.approx(0.5, abs=0.05)
