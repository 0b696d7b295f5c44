"""What the single layers compute, against closed forms and torch's numbers."""

import json
import math
import pathlib

import keras
import numpy as np
import pytest
from keras import ops
from reference import random_tensor
from reference import sinusoid
from scipy.special import erf

from cct_keras.layers import ClassToken
from cct_keras.layers import ConvTokenizer
from cct_keras.layers import DropPath
from cct_keras.layers import EncoderBlock
from cct_keras.layers import FeedForward
from cct_keras.layers import MultiHeadSelfAttention
from cct_keras.layers import PositionEmbedding
from cct_keras.layers import SeqPool
from cct_keras.layers import TokenPool

pytestmark = pytest.mark.backend

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"


def to_numpy(x):
    return ops.convert_to_numpy(x)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


# === DropPath ===


def test_drop_path_drops_whole_samples_and_keeps_the_expectation():
    x = np.ones((4000, 3, 2), "float32")
    y = to_numpy(DropPath(0.25)(x, training=True))
    per_sample = y.reshape(4000, -1)
    assert (per_sample == per_sample[:, :1]).all()
    assert np.isin(per_sample[:, 0], [0.0, np.float32(1 / 0.75)]).all()
    # Five standard errors of the mean: sqrt(p / (1 - p) / n).
    assert abs(y.mean() - 1) < 5 * math.sqrt(0.25 / 0.75 / 4000)


def test_drop_path_does_nothing_in_inference():
    x = normal(4, 3, 2)
    np.testing.assert_array_equal(to_numpy(DropPath(0.9)(x)), x)
    np.testing.assert_array_equal(to_numpy(DropPath(0.0)(x, training=True)), x)


def test_drop_paths_drop_different_samples():
    x = np.ones((64, 1), "float32")
    draws = [to_numpy(DropPath(0.5)(x, training=True)).tobytes() for _ in range(6)]
    assert len(set(draws)) == 6
    block = EncoderBlock(2, 4, drop_path_rate=0.5)
    first, second = (
        to_numpy(layer(x, training=True))
        for layer in (block.drop_path1, block.drop_path2)
    )
    assert not np.array_equal(first, second)


# === FeedForward ===


def test_gelu_is_exact():
    layer = FeedForward(1)
    layer.build((None, None, 1))
    for linear in (layer.linear1, layer.linear2):
        linear.set_weights([np.ones((1, 1)), np.zeros(1)])
    x = np.linspace(-6, 6, 241, dtype="float32").reshape(1, -1, 1)
    expected = 0.5 * x * (1 + erf(x / math.sqrt(2)))
    # The tanh approximation is off by up to 4.7e-4.
    np.testing.assert_allclose(to_numpy(layer(x)), expected, atol=1e-6)


# === MultiHeadSelfAttention ===


def test_attention_weights_sum_to_one_and_do_not_change_the_output():
    x = normal(2, 5, 8)
    layer = MultiHeadSelfAttention(2)
    output, weights = layer(x, return_attention_scores=True)
    assert tuple(weights.shape) == (2, 2, 5, 5)
    np.testing.assert_allclose(to_numpy(weights).sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(to_numpy(layer(x)), to_numpy(output), atol=1e-6)


def test_attention_of_equal_scores_is_the_mean():
    x = normal(2, 5, 4)
    layer = MultiHeadSelfAttention(2)
    layer.build(x.shape)
    no_query = np.concatenate([np.zeros((4, 8)), np.eye(4)], axis=1)
    layer.qkv.set_weights([no_query])
    layer.proj.set_weights([np.eye(4), np.zeros(4)])
    expected = np.broadcast_to(x.mean(axis=1, keepdims=True), x.shape)
    np.testing.assert_allclose(to_numpy(layer(x)), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (MultiHeadSelfAttention(2), (None, 2, 6, 6)),
        (EncoderBlock(2, 12), (None, 2, 6, 6)),
        (SeqPool(), (None, 6)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_weights_are_returned_in_functional_models_that_save(layer, shape, tmp_path):
    inputs = keras.Input((6, 8))
    output, weights = layer(inputs, return_attention_scores=True)
    assert weights.shape == shape
    model = keras.Model(inputs, [output, weights])
    model.save(tmp_path / "model.keras")
    restored = keras.models.load_model(tmp_path / "model.keras")
    x = normal(2, 6, 8)
    for ours, theirs in zip(model(x), restored(x), strict=True):
        np.testing.assert_allclose(to_numpy(ours), to_numpy(theirs), atol=1e-6)


# === EncoderBlock ===


def test_block_orders():
    """With branches that give zero only the norms are left."""
    x = normal(2, 5, 8)
    for pre_norm in (False, True):
        block = EncoderBlock(2, 12, pre_norm=pre_norm)
        block.build(x.shape)
        for linear in (block.attention.proj, block.feed_forward.linear2):
            linear.set_weights([np.zeros(w.shape) for w in linear.weights])
        centered = x - x.mean(-1, keepdims=True)
        normed = centered / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        expected = x if pre_norm else normed
        np.testing.assert_allclose(to_numpy(block(x)), expected, atol=1e-5)


# === SeqPool, ClassToken, TokenPool ===


def test_seq_pool_is_a_weighted_mean():
    x = normal(2, 5, 4)
    layer = SeqPool()
    output, weights = layer(x, return_attention_scores=True)
    weights = to_numpy(weights)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(
        to_numpy(output), np.einsum("bn,bnd->bd", weights, x), atol=1e-6
    )
    layer.attention.set_weights([np.zeros((4, 1)), np.ones(1)])
    np.testing.assert_allclose(to_numpy(layer(x)), x.mean(axis=1), atol=1e-6)


def test_class_token_goes_first_and_is_read_back():
    x = normal(2, 5, 4)
    layer = ClassToken()
    y = layer(x)
    layer.token.assign(np.full((1, 1, 4), 7.0))
    np.testing.assert_array_equal(to_numpy(TokenPool()(layer(x))), np.full((2, 4), 7.0))
    np.testing.assert_array_equal(to_numpy(y)[:, 0], 0)
    np.testing.assert_array_equal(to_numpy(y)[:, 1:], x)


# === ConvTokenizer ===


def test_max_pool_padding_never_wins():
    """All activations below zero: a zero in the padding would show."""
    layer = ConvTokenizer(1, kernel_size=1, padding=0, activation=None)
    x = -1 - np.abs(normal(1, 4, 4, 1))
    layer.build(x.shape)
    layer.convs[0].set_weights([np.ones((1, 1, 1, 1))])
    y = to_numpy(layer(x)).reshape(2, 2)
    assert y[0, 0] == x[0, :2, :2].max()
    assert y[1, 1] == x[0, 1:, 1:].max()


def test_channels_first_is_the_same_tokens():
    x = normal(2, 9, 12, 3)
    last = ConvTokenizer(8, num_conv_layers=2, data_format="channels_last")
    first = ConvTokenizer(8, num_conv_layers=2, data_format="channels_first")
    expected = last(x)
    transposed = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    first.build(transposed.shape)
    first.set_weights(last.get_weights())
    np.testing.assert_allclose(
        to_numpy(first(transposed)), to_numpy(expected), atol=1e-6
    )


@pytest.mark.parametrize("size", [(32, 32), (39, 52), (7, 5), (1, 1)])
@pytest.mark.parametrize("kernel_size", [1, 2, 3, 5, 7])
def test_grid_is_true(size, kernel_size):
    layer = ConvTokenizer(4, kernel_size=kernel_size, num_conv_layers=2)
    x = normal(1, *size, 3)
    rows, columns = layer.compute_grid(x.shape)
    assert tuple(layer(x).shape) == (1, rows * columns, 4)


# === PositionEmbedding ===


@pytest.mark.parametrize(
    "case",
    json.loads((GOLDEN / "resize.json").read_text()),
    ids=lambda case: f"{case['name']}_{case['interpolation']}",
)
@pytest.mark.parametrize("prefix", [0, 2])
def test_learnable_positions_resize_like_torch(case, prefix, tmp_path):
    grid, new_grid = tuple(case["grid"]), tuple(case["new_grid"])
    table = random_tensor(case["name"], (1, *grid, 2)).reshape(1, -1, 2)
    head = normal(1, prefix, 2)

    def model_for(grid):
        inputs = keras.Input((prefix + math.prod(grid), 2))
        layer = PositionEmbedding(
            grid, num_prefix_tokens=prefix, interpolation=case["interpolation"]
        )
        return keras.Model(inputs, layer(inputs)), layer

    model, layer = model_for(grid)
    layer.embeddings.assign(np.concatenate([head, table], axis=1))
    model.save_weights(tmp_path / "a.weights.h5")
    model, layer = model_for(new_grid)
    model.load_weights(tmp_path / "a.weights.h5")
    expected = np.concatenate([head, np.array(case["table"])], axis=1)
    np.testing.assert_allclose(to_numpy(layer.embeddings), expected, atol=1e-6)


@pytest.mark.parametrize(("length", "dim"), [(64, 128), (577, 384), (5, 7)])
def test_sine_table(length, dim):
    layer = PositionEmbedding((1, length), kind="sine")
    layer.build((None, length, dim))
    np.testing.assert_allclose(
        to_numpy(layer.embeddings), sinusoid(length, dim), atol=1e-6
    )
    assert not layer.trainable_variables
    assert len(layer.weights) == 1


def test_sine_table_is_made_anew_for_another_grid(tmp_path):
    for grid in ((2, 3), (4, 5)):
        inputs = keras.Input((1 + math.prod(grid), 8))
        layer = PositionEmbedding(grid, kind="sine", num_prefix_tokens=1)
        model = keras.Model(inputs, layer(inputs))
        if grid == (2, 3):
            model.save_weights(tmp_path / "a.weights.h5")
    model.load_weights(tmp_path / "a.weights.h5")
    np.testing.assert_allclose(to_numpy(layer.embeddings), sinusoid(21, 8), atol=1e-6)


def test_a_learned_table_is_no_sine_table():
    layer = PositionEmbedding((2, 3), kind="sine")
    layer.build((None, 6, 8))
    with pytest.raises(ValueError, match="needs the sinusoid"):
        layer.load_table(normal(1, 6, 8))


# === Initial weights ===


def test_initial_weights_have_the_originals_scale():
    tokenizer = ConvTokenizer(256, kernel_size=3)
    tokenizer.build((None, 32, 32, 64))
    kernel = tokenizer.convs[0].kernel.numpy()
    assert abs(kernel.std() / math.sqrt(2 / (9 * 64)) - 1) < 0.02
    patches = ConvTokenizer(256, kernel_size=4, stride=4, padding=0, use_bias=True)
    patches.build((None, 32, 32, 3))
    bias, bound = patches.convs[0].bias.numpy(), 1 / math.sqrt(4 * 4 * 3)
    assert np.abs(bias).max() <= bound
    assert abs(bias.std() / (bound / math.sqrt(3)) - 1) < 0.1
    block = EncoderBlock(4, 512)
    block.build((None, None, 256))
    for linear in (block.attention.qkv, block.feed_forward.linear1):
        kernel = linear.kernel.numpy()
        assert abs(kernel.std() / 0.02 - 1) < 0.02
        assert np.abs(kernel).max() > 0.07, "truncated"
    positions = PositionEmbedding((16, 16))
    positions.build((None, 256, 256))
    assert abs(positions.embeddings.numpy().std() / 0.2 - 1) < 0.02


# === Bad arguments ===


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DropPath(-0.1), "`rate`.*-0.1"),
        (lambda: DropPath(1.0), "`rate`.*1.0"),
        (lambda: FeedForward(0), "`hidden_dim`.*0"),
        (lambda: FeedForward(4, dropout_rate="x"), "`dropout_rate`.*'x'"),
        (
            lambda: FeedForward(4, activation="silu"),
            "`activation`.*'silu'",
        ),
        (
            lambda: EncoderBlock(2, 4, activation=None),
            "`activation`.*None",
        ),
        (lambda: MultiHeadSelfAttention(3)(normal(1, 4, 8)), "divisible.*8.*3"),
        (lambda: MultiHeadSelfAttention(2)(normal(4, 8)), r"rank 3.*\(4, 8\)"),
        (lambda: EncoderBlock(2, 4, attention_dropout=2), "`attention_dropout`.*2"),
        (lambda: SeqPool()(normal(4, 8)), r"rank 3.*\(4, 8\)"),
        (lambda: ClassToken()(normal(4, 8)), "rank 3"),
        (lambda: TokenPool(-1), "`index`.*-1"),
        (lambda: PositionEmbedding((2, 3), kind="cosine"), "`kind`.*'cosine'"),
        (lambda: PositionEmbedding(6), "`grid`.*6"),
        (lambda: PositionEmbedding((2, 3))(normal(1, 7, 8)), "6 tokens.*7"),
        (lambda: ConvTokenizer(8)(normal(4, 4, 3)), "rank 4"),
        (lambda: ConvTokenizer(8, padding=-1), "`padding`.*-1"),
        (lambda: ConvTokenizer(8, pooling_padding=2), "`pooling_padding`.*2"),
        (lambda: ConvTokenizer(8, data_format="nhwc"), "`data_format`.*'nhwc'"),
        (
            lambda: ConvTokenizer(8, kernel_size=5, padding=0)(normal(1, 4, 4, 3)),
            "no token",
        ),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
