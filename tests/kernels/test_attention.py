import keras
import numpy as np
import pytest
from gradients import assert_close
from gradients import assert_same_function
from keras import ops
from scipy.special import softmax

from cct_keras.kernels import chunked_attention as chunked
from cct_keras.kernels.attention import attention
from cct_keras.kernels.device import tuned_for_cpu
from cct_keras.kernels.keep_mask import keep_mask

pytestmark = pytest.mark.backend

SHAPE = (3, 2, 5, 4)
RATE = 0.4


def inputs():
    return np.random.default_rng(0).standard_normal((3, *SHAPE))


def weights_by_numpy(query, key):
    return softmax(query @ key.swapaxes(-1, -2) / np.sqrt(SHAPE[-1]), axis=-1)


def steady_generator():
    """A generator that always gives the same seed."""
    generator = keras.random.SeedGenerator(9)
    seed = generator.next()
    generator.next = lambda ordered=True: seed
    return generator


def kept_weights(generator, dtype="float32"):
    """The mask that the generator leads to: 1 where a weight is kept, else 0."""
    shape = (*SHAPE[:-1], SHAPE[-2])
    if tuned_for_cpu(ops.ones(1)):
        mask = keep_mask(shape, RATE, generator)
    else:
        mask = keras.random.dropout(ops.ones(shape, dtype), RATE, seed=generator) > 0
    mask = ops.convert_to_numpy(mask)
    assert 0 < mask.mean() < 1
    return mask


@pytest.mark.parametrize("return_weights", [False, True])
def test_without_dropout(device, dtype, return_weights):
    def kernel(query, key, value):
        output = attention(query, key, value, return_weights=return_weights)
        return output[0] if return_weights else output

    def reference(query, key, value):
        return weights_by_numpy(query, key) @ value

    assert_same_function(kernel, reference, *inputs(), dtype=dtype)


@pytest.mark.parametrize("return_weights", [False, True])
def test_with_dropout(device, dtype, return_weights, monkeypatch):
    # On torch: chunks of four and of two of the six matrices.
    monkeypatch.setattr(chunked, "CHUNK_BYTES", 4 * 8 * SHAPE[-2] ** 2)
    generator = steady_generator()
    kept = kept_weights(generator, dtype)

    def kernel(query, key, value):
        output = attention(
            query,
            key,
            value,
            dropout_rate=RATE,
            seed_generator=generator,
            return_weights=return_weights,
        )
        return output[0] if return_weights else output

    def reference(query, key, value):
        return (weights_by_numpy(query, key) * kept / (1 - RATE)) @ value

    assert_same_function(kernel, reference, *inputs(), dtype=dtype)


@pytest.mark.parametrize("rate", [0.0, RATE])
def test_the_weights_are_those_before_dropout(device, dtype, rate):
    generator = steady_generator()
    query, key, value = inputs()
    _, weights = attention(
        *(ops.convert_to_tensor(x, dtype) for x in (query, key, value)),
        dropout_rate=rate,
        seed_generator=generator,
        return_weights=True,
    )
    assert_close(ops.convert_to_numpy(weights), weights_by_numpy(query, key), dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("rate", [0.0, RATE])
def test_half_precision(device, dtype, rate):
    generator = steady_generator()
    kept = kept_weights(generator, dtype) / (1 - RATE) if rate else 1.0
    query, key, value = inputs()
    output = attention(
        *(ops.convert_to_tensor(x, dtype) for x in (query, key, value)),
        dropout_rate=rate,
        seed_generator=generator,
    )
    assert keras.backend.standardize_dtype(output.dtype) == dtype
    output = ops.convert_to_numpy(ops.cast(output, "float32"))
    expected = (weights_by_numpy(query, key) * kept) @ value
    np.testing.assert_allclose(output, expected, atol=0.05)
