import keras
import numpy as np
import pytest
from gradients import assert_same_function
from gradients import gradient

from cct_keras.kernels.remat import remat

pytestmark = pytest.mark.backend


def test_a_plain_function(dtype):
    x = np.linspace(-2, 2, 12).reshape(3, 4)
    assert_same_function(
        remat(lambda x: keras.ops.sin(x) * x), lambda x: np.sin(x) * x, x, dtype=dtype
    )


@pytest.mark.parametrize("seeded", [False, True])
def test_both_passes_drop_the_same(seeded):
    """The gradient of a dropped value is zero, of a kept one the scale."""
    keras.utils.set_random_seed(0)
    seeds = (7, 8) if seeded else (None, None)
    generators = [keras.random.SeedGenerator(seed) for seed in seeds]

    def drop(x):
        for generator in generators:
            noise = keras.random.uniform(x.shape, seed=generator)
            x = keras.ops.where(noise > 0.4, x * x, 0.0)
        return x

    x = np.full((40, 40), 2.0)

    def squared(x):
        output = remat(drop, generators)(x)
        return output * output

    # Where both draws keep a value the output is x ** 8. If the second computation
    # dropped otherwise, the gradient would also vanish elsewhere.
    slope = gradient(squared, x, np.ones_like(x))
    assert set(np.unique(slope)) == {0.0, 8 * 2.0**7}
    assert (slope > 0).mean() == pytest.approx(0.36, abs=0.06)


def test_every_call_draws_anew():
    generator = keras.random.SeedGenerator(7)

    def noise(x):
        return x + keras.random.uniform((8,), seed=generator)

    x = keras.ops.zeros(8)
    first, second = (
        keras.ops.convert_to_numpy(remat(noise, [generator])(x)) for _ in range(2)
    )
    assert not np.array_equal(first, second)
    assert "next" not in vars(generator)
