"""What is random in the layers, and computed again."""

import keras
import numpy as np
import pytest
from keras import ops

from cct_keras.layers import EncoderBlock
from cct_keras.layers import MultiHeadSelfAttention

pytestmark = pytest.mark.backend


def to_numpy(x):
    return ops.convert_to_numpy(x)


def test_attention_dropout_keeps_the_expectation():
    keras.utils.set_random_seed(0)
    layer = MultiHeadSelfAttention(2, attention_dropout=0.3)
    tokens = keras.random.normal((1, 5, 8))
    expected = to_numpy(layer(tokens))
    many = ops.repeat(tokens, 20_000, axis=0)
    dropped = to_numpy(layer(many, training=True))
    assert not np.allclose(dropped[0], expected[0], atol=1e-3)
    error = dropped.std(0).max() / np.sqrt(20_000)
    np.testing.assert_allclose(dropped.mean(0), expected[0], atol=6 * error)


# A step of JAX without jit is slow; on torch jit is torch.compile.
JIT = {"tensorflow": [False, True], "jax": [True], "torch": [False]}


@pytest.mark.integration
@pytest.mark.parametrize("jit", JIT[keras.config.backend()])
def test_a_recomputed_block_learns_the_same(jit):
    """All kinds of dropout must drop the same in both passes."""
    x, y = np.random.default_rng(0).standard_normal((2, 8, 6, 8))

    def train(remat):
        keras.utils.set_random_seed(0)
        block = EncoderBlock(
            2,
            12,
            attention_dropout=0.3,
            dropout_rate=0.2,
            drop_path_rate=0.4,
            remat=remat,
        )
        model = keras.Sequential([keras.Input((6, 8)), block])
        model.compile(keras.optimizers.SGD(0.5), "mse", jit_compile=jit)
        for _ in range(3):
            model.train_on_batch(x, y)
        return model.get_weights()

    for again, kept in zip(train(True), train(False), strict=True):
        np.testing.assert_allclose(again, kept, atol=1e-6)


def test_a_recomputed_block_returns_its_attention():
    block = EncoderBlock(2, 12, attention_dropout=0.3, remat=True)
    x = keras.random.normal((2, 6, 8))
    _, weights = block(x, return_attention_scores=True, training=True)
    np.testing.assert_allclose(to_numpy(weights).sum(-1), 1, atol=1e-6)
