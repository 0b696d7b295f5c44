"""Pieces that are computed otherwise than Keras does, against NumPy in float64."""

import math

import keras
import numpy as np
import pytest
from gradients import gradient
from keras import ops

from cct_keras.layers import EncoderBlock
from cct_keras.layers import LayerNormalization
from cct_keras.layers.feed_forward import exact_gelu
from cct_keras.layers.linear import Linear
from cct_keras.layers.max_pool import max_pool

pytestmark = pytest.mark.backend

RANDOM = np.random.default_rng(0)


def to_numpy(x):
    return ops.convert_to_numpy(x)


def windows(x, size, stride, padding):
    """Of each output the places in a padded image that it sees, row by row."""
    width = [(0, 0), (padding, padding), (padding, padding), (0, 0)]
    padded = np.pad(x, width, constant_values=-np.inf)
    rows, columns = ((side - size) // stride + 1 for side in padded.shape[1:3])
    for i in range(rows):
        for j in range(columns):
            top, left = i * stride, j * stride
            yield i, j, padded[:, top : top + size, left : left + size]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("shape", "size", "stride", "padding"),
    [((2, 8, 7, 3), 3, 2, 1), ((1, 9, 9, 2), 3, 3, 0), ((2, 6, 5, 1), 2, 1, 1)],
)
def test_max_pool(shape, size, stride, padding, training):
    # All different, so that one place has the gradient.
    x = RANDOM.permutation(math.prod(shape)).reshape(shape) - 20.0

    def pool(x):
        return max_pool(x, size, stride, padding, positive=False, training=training)

    found = to_numpy(pool(ops.convert_to_tensor(x, "float32")))
    upstream = RANDOM.standard_normal(found.shape)
    expected = np.empty(found.shape)
    slope = np.zeros(shape)
    for i, j, window in windows(x, size, stride, padding):
        expected[:, i, j] = window.max((1, 2))
        for image, channel in np.ndindex(shape[0], shape[3]):
            won = x == expected[image, i, j, channel]
            slope[won] += upstream[image, i, j, channel]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(gradient(pool, x, upstream), slope, atol=1e-5)


@pytest.mark.parametrize("training", [False, True])
def test_a_tie_in_a_pool_gives_its_gradient_once(training):
    """Flat parts of an image are equal far and wide."""
    x = np.full((1, 4, 4, 1), 3.0)

    def pool(x):
        return max_pool(x, 3, 2, 1, positive=True, training=training)

    slope = gradient(pool, x, np.ones((1, 2, 2, 1)))
    assert slope.sum() == pytest.approx(4)
    assert slope.min() >= 0


@pytest.mark.parametrize("training", [False, True])
def test_gelu(training):
    x = np.linspace(-6, 6, 101)
    upstream = RANDOM.standard_normal(101)
    cdf = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in x])
    pdf = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)

    def gelu(x):
        return exact_gelu(x, training)

    found = to_numpy(gelu(ops.convert_to_tensor(x, "float32")))
    np.testing.assert_allclose(found, x * cdf, atol=1e-6)
    expected = upstream * (cdf + x * pdf)
    np.testing.assert_allclose(gradient(gelu, x, upstream), expected, atol=1e-5)


@pytest.mark.parametrize("training", [False, True])
def test_layer_norm(training):
    x = 5 + 3 * RANDOM.standard_normal((4, 7, 32))
    gamma, beta = np.linspace(-1, 2, 32), np.linspace(3, 1, 32)
    upstream = RANDOM.standard_normal(x.shape)
    layer = LayerNormalization(1e-3)
    layer.build(x.shape)
    layer.set_weights([gamma, beta])
    scale = 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-3)
    normal = (x - x.mean(-1, keepdims=True)) * scale
    found = to_numpy(layer(x, training=training))
    np.testing.assert_allclose(found, normal * gamma + beta, atol=1e-5)
    inner = upstream * gamma
    inner = inner - inner.mean(-1, keepdims=True)
    inner = inner - normal * (inner * normal).mean(-1, keepdims=True)
    slope = gradient(lambda x: layer(x, training=training), x, upstream)
    np.testing.assert_allclose(slope, inner * scale, atol=1e-5)


needs_torch = pytest.mark.skipif(
    keras.config.backend() != "torch", reason="Linear is for torch"
)


@needs_torch
@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 12), (64, 12), (0, 12), (2, 3, 12)])
def test_linear(shape, use_bias):
    x = RANDOM.standard_normal(shape)
    layer = Linear(5, use_bias=use_bias, bias_initializer="normal")
    layer.build((None, 12))
    kernel, *bias = (to_numpy(weight) for weight in layer.weights)
    found = to_numpy(layer(ops.convert_to_tensor(x, "float32")))
    np.testing.assert_allclose(found, x @ kernel + sum(bias), atol=1e-5)
    upstream = RANDOM.standard_normal((*shape[:-1], 5))
    slope = gradient(layer, x, upstream)
    np.testing.assert_allclose(slope, upstream @ kernel.T, atol=1e-5)


@needs_torch
def test_linear_learns_what_dense_learns():
    x, y = RANDOM.standard_normal((32, 12)), RANDOM.standard_normal((32, 5))

    def learn(layer):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((12,)), layer(5)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
        model.fit(x, y, 16, epochs=2, verbose=0, shuffle=False)
        return model.get_weights()

    for ours, theirs in zip(learn(Linear), learn(keras.layers.Dense), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_projections_can_be_quantized_and_adapted_by_keras():
    tokens = np.ones((2, 4, 8), "float32")
    block = EncoderBlock(2, 8)
    model = keras.Sequential([keras.Input((4, 8)), block])
    before = to_numpy(model(tokens))
    model.quantize("int8")
    assert block.attention.qkv.quantization_mode == "int8"
    np.testing.assert_allclose(to_numpy(model(tokens)), before, atol=0.05)
    adapted = EncoderBlock(2, 8)
    adapted.build((None, 4, 8))
    expected = to_numpy(adapted(tokens))
    adapted.attention.qkv.enable_lora(2)
    np.testing.assert_allclose(to_numpy(adapted(tokens)), expected, atol=1e-6)
