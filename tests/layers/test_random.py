"""Random masks, and what is recomputed with them."""

import keras
import numpy as np
import pytest
from keras import ops

from cct_keras.layers import EncoderBlock
from cct_keras.layers import LayerNormalization
from cct_keras.layers import MultiHeadSelfAttention
from cct_keras.layers.keep_mask import keep_mask

pytestmark = pytest.mark.backend


def to_numpy(x):
    return ops.convert_to_numpy(x)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.99, 1 - 1e-9])
@pytest.mark.parametrize("shape", [(40, 3, 16, 16), (40, 3, 17, 17)])
def test_share_of_the_mask(shape, rate):
    mask = to_numpy(keep_mask(shape, rate, keras.random.SeedGenerator(1)))
    assert mask.shape == shape
    assert mask.dtype == bool
    for axis in range(len(shape)):
        others = tuple(i for i in range(len(shape)) if i != axis)
        count = mask.size / shape[axis]
        spread = np.sqrt(rate * (1 - rate) / count)
        np.testing.assert_allclose(mask.mean(others), 1 - rate, atol=5 * spread)
    neighbours = mask[..., 1:] == mask[..., :-1]
    expected = rate**2 + (1 - rate) ** 2
    spread = np.sqrt(expected * (1 - expected) / neighbours.size)
    assert neighbours.mean() == pytest.approx(expected, abs=6 * spread)


def test_masks_follow_the_seed():
    first, second = (keras.random.SeedGenerator(7) for _ in range(2))
    masks = [to_numpy(keep_mask((64, 64), 0.5, first)) for _ in range(2)]
    again = [to_numpy(keep_mask((64, 64), 0.5, second)) for _ in range(2)]
    np.testing.assert_array_equal(masks, again)
    assert (masks[0] != masks[1]).mean() == pytest.approx(0.5, abs=0.05)


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


@pytest.mark.skipif(keras.config.backend() != "torch", reason="of torch")
def test_chunks_on_torch_have_the_gradients_of_autograd(monkeypatch):
    import torch

    from cct_keras.layers import torch_attention as chunked

    torch.manual_seed(0)
    # Parts of two and one of the three images and heads
    monkeypatch.setattr(chunked, "CHUNK_BYTES", 2 * 4 * 5**2)
    tensors = [torch.randn(3, 1, 5, 8, requires_grad=True) for _ in range(3)]

    keep = keep_mask((3, 1, 5, 5), 0.4, keras.random.SeedGenerator(9))

    def plain(query, key, value):
        weights = torch.softmax(query @ key.mT * 8**-0.5, -1)
        return (weights * keep / 0.6) @ value

    output = chunked.torch_attention(*tensors, 0.4, keras.random.SeedGenerator(9))
    expected = plain(*tensors)
    torch.testing.assert_close(output, expected)
    upstream = torch.randn_like(output)
    gradients = torch.autograd.grad(output, tensors, upstream)
    for a, b in zip(
        gradients, torch.autograd.grad(expected, tensors, upstream), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_layer_norm_in_half_precision_has_exact_moments():
    """1,000 squared does not fit into float16."""
    x = 1000 + np.arange(64, dtype="float32")[None]
    layer = LayerNormalization(dtype="mixed_float16")
    expected = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
    np.testing.assert_allclose(to_numpy(layer(x)), expected, atol=2e-3)


@pytest.mark.parametrize("jit", [False, True])
def test_recomputed_blocks_learn_the_same(jit):
    """All kinds of dropout must drop the same in both passes."""
    if jit and keras.config.backend() == "torch":
        pytest.skip("jit is torch.compile there")
    images = np.random.default_rng(0).standard_normal((8, 6, 8))
    targets = np.random.default_rng(1).standard_normal((8, 6, 8))

    def train(remat):
        keras.utils.set_random_seed(0)
        tokens = keras.Input((6, 8))
        x = tokens
        for _ in range(2):
            x = EncoderBlock(
                2,
                12,
                attention_dropout=0.3,
                dropout_rate=0.2,
                drop_path_rate=0.4,
                remat=remat,
            )(x)
        model = keras.Model(tokens, x)
        model.compile(keras.optimizers.SGD(0.5), "mse", jit_compile=jit)
        model.fit(images, targets, 4, epochs=2, verbose=0, shuffle=False)
        return model.get_weights()

    for again, kept in zip(train(True), train(False), strict=True):
        np.testing.assert_allclose(again, kept, atol=1e-6)
