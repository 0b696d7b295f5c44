"""The linear layers of a block against those of Keras."""

import warnings

import keras
import numpy as np
import pytest
from keras import ops

from cct_keras.layers import EncoderBlock
from cct_keras.layers.linear import Linear

pytestmark = pytest.mark.backend

RANDOM = np.random.default_rng(0)


def to_numpy(x):
    return ops.convert_to_numpy(x)


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 12), (64, 12), (0, 12), (2, 3, 12)])
def test_the_closed_form(shape, use_bias):
    x = RANDOM.standard_normal(shape)
    layer = Linear(5, use_bias=use_bias)
    layer.build((None, 12))
    layer.set_weights([RANDOM.standard_normal(w.shape) for w in layer.weights])
    kernel, *bias = layer.get_weights()
    expected = x @ kernel + sum(bias)
    np.testing.assert_allclose(to_numpy(layer(x)), expected, atol=1e-5)


def test_it_learns_what_dense_learns():
    x, y = RANDOM.standard_normal((32, 12)), RANDOM.standard_normal((32, 5))
    start = RANDOM.standard_normal((12, 5)), RANDOM.standard_normal(5)

    def learn(layer):
        model = keras.Sequential([keras.Input((12,)), layer(5)])
        model.set_weights(start)
        model.compile(keras.optimizers.SGD(0.1), "mse")
        for half in (slice(16), slice(16, 32)):
            model.train_on_batch(x[half], y[half])
        return model.get_weights()

    for ours, theirs in zip(learn(Linear), learn(keras.layers.Dense), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_a_block_can_be_quantized():
    tokens = RANDOM.standard_normal((2, 4, 8)).astype("float32")
    block = EncoderBlock(2, 8, drop_path_rate=0.1, dropout_rate=0.1)
    model = keras.Sequential([keras.Input((4, 8)), block])
    before = to_numpy(model(tokens))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.quantize("int8")
    # Keras remarks on every layer that it cannot quantize, but not that one of ours
    # is not built.
    messages = {str(warning.message) for warning in caught}
    assert not [message for message in messages if "built" in message]
    attention, feed_forward = block.attention, block.feed_forward
    for layer in (
        attention.qkv,
        attention.proj,
        feed_forward.linear1,
        feed_forward.linear2,
    ):
        assert layer.quantization_mode == "int8"
    np.testing.assert_allclose(to_numpy(model(tokens)), before, atol=0.05)


def test_a_block_can_have_the_adapters_of_keras():
    tokens = np.ones((2, 4, 8), "float32")
    block = EncoderBlock(2, 8)
    expected = to_numpy(block(tokens))
    block.attention.qkv.enable_lora(2)
    np.testing.assert_allclose(to_numpy(block(tokens)), expected, atol=1e-6)
    kernel, a, b = (
        RANDOM.standard_normal(shape) for shape in ((8, 24), (8, 2), (2, 24))
    )
    qkv = block.attention.qkv
    qkv._kernel.assign(kernel)
    qkv.lora_kernel_a.assign(a)
    qkv.lora_kernel_b.assign(b)
    x = RANDOM.standard_normal((3, 8))
    np.testing.assert_allclose(to_numpy(qkv(x)), x @ (kernel + a @ b), atol=1e-4)
