"""The constructors: shapes, tops, inputs, features, bad arguments."""

import keras
import numpy as np
import pytest
from small import FAMILIES
from small import first_of_all
from small import images
from small import predict
from small import small_model

import cct_keras

family_names = pytest.mark.parametrize("family", list(FAMILIES))


@family_names
def test_top_gives_probabilities(family):
    y = predict(small_model(family), images(3, 16, 16, 3))
    assert y.shape == (3, 5)
    np.testing.assert_allclose(y.sum(axis=-1), 1, atol=1e-6)


@family_names
@pytest.mark.backend
def test_logits_are_what_the_softmax_sees(family):
    model = small_model(family)
    logits = small_model(family, classifier_activation=None)
    logits.set_weights(model.get_weights())
    x = images(3, 16, 16, 3)
    expected = keras.ops.softmax(predict(logits, x))
    np.testing.assert_allclose(predict(model, x), expected, atol=1e-6)


@family_names
@pytest.mark.parametrize(
    ("pooling", "shape"),
    [
        (None, (None, 16, 32)),
        ("seq", (None, 32)),
        ("avg", (None, 32)),
        ("max", (None, 32)),
    ],
)
@pytest.mark.backend
def test_without_top(family, pooling, shape):
    model = small_model(
        family,
        input_shape=(16, 16, 3),
        include_top=False,
        pooling=pooling,
    )
    if pooling is None:
        prefix = {"ViTLite": 1, "ViT": 1, "DeiT": 2}.get(family, 0)
        shape = (None, 16 + prefix, 32)
    assert model.output_shape == shape
    assert predict(model, images(2, 16, 16, 3)).shape == (2, *shape[1:])


def test_vit_lite_token_pooling_and_patch_pooling():
    x = images(2, 16, 16, 3)
    tokens = small_model("ViTLite", include_top=False)
    for pooling, expected in (
        ("token", lambda t: t[:, 0]),
        ("avg", lambda t: t[:, 1:].mean(axis=1)),
        ("max", lambda t: t[:, 1:].max(axis=1)),
    ):
        model = small_model("ViTLite", include_top=False, pooling=pooling)
        model.set_weights(tokens.get_weights())
        np.testing.assert_allclose(
            predict(model, x), expected(predict(tokens, x)), atol=1e-5
        )


@family_names
@pytest.mark.parametrize("shape", [(16, 16, 1), (16, 16, 7), (24, 40, 3), (8, 4, 3)])
def test_any_size_and_channels(family, shape):
    model = small_model(family, input_shape=shape)
    assert predict(model, images(2, *shape)).shape == (2, 5)


@family_names
@pytest.mark.backend
def test_channels_first(family):
    last = small_model(family, input_shape=(16, 24, 3), data_format="channels_last")
    first = small_model(family, input_shape=(3, 16, 24), data_format="channels_first")
    first.set_weights(last.get_weights())
    x = images(2, 16, 24, 3)
    y = predict(first, np.ascontiguousarray(x.transpose(0, 3, 1, 2)))
    np.testing.assert_allclose(y, predict(last, x), atol=1e-5)


def test_channels_first_variant_has_channels_first_default():
    model = cct_keras.create_model("cct_2_3x2_32", data_format="channels_first")
    assert model.input_shape == (None, 3, 32, 32)
    assert cct_keras.CCT(data_format="channels_first").input_shape == (
        None,
        3,
        224,
        224,
    )


@family_names
def test_images_of_any_size_without_positions(family):
    model = small_model(family, input_shape=(None, None, 3), positional_embedding=None)
    for size in (16, 24):
        assert predict(model, images(2, size, size, 3)).shape == (2, 5)


@family_names
def test_input_tensor(family):
    inputs = keras.Input((16, 16, 3))
    scaled = keras.layers.Rescaling(1 / 255)(inputs)
    model = small_model(family, input_shape=None, input_tensor=scaled)
    plain = small_model(family)
    plain.set_weights(model.get_weights())
    x = images(2, 16, 16, 3)
    np.testing.assert_allclose(predict(model, 255 * x), predict(plain, x), atol=1e-5)


@family_names
@pytest.mark.parametrize(
    "policy",
    first_of_all(("mixed_float16", "mixed_bfloat16", "float64"), "mixed_float16"),
)
@pytest.mark.backend
def test_dtype(family, policy):
    if policy == "float64" and keras.config.backend() == "jax":
        pytest.skip("JAX has float64 only where it is switched on")
    model = small_model(family, dtype=policy)
    assert model.get_layer("block_0").dtype_policy.name == policy
    assert model.output.dtype == policy.replace("mixed_float16", "float32").replace(
        "mixed_bfloat16", "float32"
    )
    exact = small_model(family)
    exact.set_weights(model.get_weights())
    x = images(2, 16, 16, 3)
    np.testing.assert_allclose(predict(model, x), predict(exact, x), atol=0.02)


@family_names
@pytest.mark.parametrize("pooling", ["seq", "avg", "max"])
def test_the_layout_of_images_is_not_that_of_tokens(family, pooling):
    keras.config.set_image_data_format("channels_first")
    try:
        model = small_model(
            family, input_shape=(3, 16, 24), include_top=False, pooling=pooling
        )
        assert model.output_shape == (None, 32)
    finally:
        keras.config.set_image_data_format("channels_last")


def test_integers_of_numpy():
    model = small_model("CCT", num_classes=np.int64(5), kernel_size=np.int64(3))
    assert model.output_shape == (None, 5)


def test_stochastic_depth_grows_linearly():
    model = cct_keras.create_model("cct_7_3x1_32")
    rates = [model.get_layer(f"block_{i}").drop_path_rate for i in range(7)]
    np.testing.assert_allclose(rates, np.linspace(0, 0.1, 7))
    block = model.get_layer("block_6")
    assert block.drop_path1.rate == block.drop_path2.rate == pytest.approx(0.1)
    assert block.attention_dropout == 0.1


@family_names
@pytest.mark.backend
def test_with_input_shape(family):
    model = small_model(family, positional_embedding="learnable")
    resized = cct_keras.with_input_shape(model, (24, 32, 3))
    assert resized.input_shape == (None, 24, 32, 3)
    positions = resized.get_layer("position_embedding")
    assert positions.grid == (6, 8)
    assert np.isfinite(predict(resized, images(2, 24, 32, 3))).all()
    back = cct_keras.with_input_shape(model, (16, 16, 3))
    x = images(2, 16, 16, 3)
    np.testing.assert_allclose(predict(back, x), predict(model, x), atol=1e-6)
    # What is constant over the grid stays so at any resolution.
    table = np.zeros(model.get_layer("position_embedding").embeddings.shape)
    table[...] = images(1, 1, 32)
    model.get_layer("position_embedding").embeddings.assign(table)
    resized = cct_keras.with_input_shape(model, (24, 32, 3))
    np.testing.assert_allclose(
        resized.get_layer("position_embedding").embeddings.numpy()[0, -1],
        table[0, -1],
        atol=1e-6,
    )


def test_with_input_shape_behind_preprocessing_and_a_new_head():
    inputs = keras.Input((16, 16, 3))
    scaled = keras.layers.Rescaling(1 / 255)(inputs)
    model = small_model("CCT", input_shape=None, input_tensor=scaled)
    head = keras.layers.Dense(3, name="mine")(model.get_layer("pool").output)
    model = keras.Model(model.input, head)
    resized = cct_keras.with_input_shape(model, (20, 16, 3))
    assert resized.output_shape == (None, 3)
    assert resized.get_layer("position_embedding").grid == (5, 4)


@pytest.mark.parametrize(
    ("shape", "message"),
    [((16, 16, 1), "channels"), ((16, 16), "rank"), ((16, 18, 3), None)],
)
def test_with_input_shape_refuses(shape, message):
    model = small_model("CCT")
    if message is None:
        assert cct_keras.with_input_shape(model, shape).input_shape[1:] == shape
        return
    with pytest.raises(ValueError, match=message):
        cct_keras.with_input_shape(model, shape)
    other = keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Flatten()])
    with pytest.raises(ValueError, match="ConvTokenizer"):
        cct_keras.with_input_shape(other, (8, 8, 3))
    with pytest.raises(ValueError, match="divisible by `patch_size`"):
        cct_keras.with_input_shape(small_model("CVT"), (18, 16, 3))
    for bad in (48, (None, None, 3)):
        with pytest.raises(ValueError, match="tuple of integers"):
            cct_keras.with_input_shape(model, bad)


def test_feature_extractor():
    model = small_model("CCT")
    x = images(2, 16, 16, 3)
    features = cct_keras.feature_extractor(model)(x)
    assert {k: tuple(v.shape) for k, v in features.items()} == {
        "block_0": (2, 16, 32),
        "block_1": (2, 16, 32),
    }
    chosen = cct_keras.feature_extractor(model, ["tokenizer", "pool", "predictions"])
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(chosen(x)["predictions"]),
        predict(model, x),
        atol=1e-6,
    )
    with pytest.raises(ValueError, match="block_9"):
        cct_keras.feature_extractor(model, ["block_9"])


def test_swapping_the_head_is_one_line():
    model = small_model("CCT")
    tuned = keras.Model(
        model.input,
        keras.layers.Dense(3, "softmax", name="head")(model.get_layer("pool").output),
    )
    assert predict(tuned, images(2, 16, 16, 3)).shape == (2, 3)


@pytest.mark.parametrize(
    ("family", "arguments", "message"),
    [
        ("CCT", {"num_heads": 3}, "embedding_dim.*divisible.*num_heads.*32.*3"),
        ("CVT", {"num_heads": 3}, "CVT.*divisible"),
        ("CVT", {"input_shape": (18, 16, 3)}, "divisible by `patch_size`.*18.*4"),
        ("ViTLite", {"input_shape": (16, 30, 3)}, "ViTLite.*divisible.*30"),
        ("CVT", {"input_shape": (0, 16, 3)}, r"input_shape\[0\].*0"),
        ("CCT", {"kernel_size": 7, "padding": 0, "input_shape": (6, 6, 3)}, "no token"),
        ("CCT", {"positional_embedding": "cosine"}, "positional_embedding.*'cosine'"),
        ("CCT", {"input_shape": (16, 16)}, r"input_shape.*\(16, 16\)"),
        ("CCT", {"input_shape": 16}, "input_shape.*16"),
        ("CCT", {"input_shape": (16, 16, None)}, "channels.*known"),
        ("CCT", {"input_shape": (None, None, 3)}, "height and width.*known"),
        ("CCT", {"dropout_rate": -0.1}, "dropout_rate.*-0.1"),
        ("CCT", {"attention_dropout": 1.5}, "attention_dropout.*1.5"),
        ("CCT", {"stochastic_depth": -1}, "stochastic_depth.*-1"),
        ("CCT", {"num_layers": 0}, "num_layers.*0"),
        ("CCT", {"num_layers": 2.5}, "num_layers.*2.5"),
        ("CCT", {"mlp_ratio": 0}, "mlp_ratio.*0"),
        ("CCT", {"mlp_ratio": "3"}, "mlp_ratio.*'3'"),
        ("CCT", {"num_classes": 0}, "num_classes.*0"),
        ("CCT", {"include_top": False, "pooling": "mean"}, "pooling.*'mean'"),
        ("CCT", {"include_top": False, "pooling": "token"}, "pooling.*'token'"),
        ("CCT", {"pooling": "mean"}, "pooling.*'mean'"),
        ("CCT", {"mlp_ratio": True}, "mlp_ratio.*True"),
        ("CCT", {"weights": 3}, "weights.*3"),
        ("CVT", {"patch_size": 0}, "patch_size.*0"),
        ("CVT", {"data_format": "nchw"}, "data_format.*'nchw'"),
        ("CCT", {"weights": "nowhere.weights.h5"}, "existing file.*nowhere"),
    ],
)
def test_bad_arguments_are_named(family, arguments, message):
    with pytest.raises(ValueError, match=message):
        small_model(family, **arguments)


def test_input_tensor_and_input_shape_must_agree():
    with pytest.raises(ValueError, match="agree"):
        small_model("CCT", input_tensor=keras.Input((8, 8, 3)))


def test_with_input_shape_of_a_model_for_raw_pixels():
    model = cct_keras.create_model("cct_2_3x2_32", include_preprocessing=True)
    larger = cct_keras.with_input_shape(model, (48, 64, 3))
    assert larger.input_shape == (None, None, None, 3)
    assert larger.get_layer("preprocessing").image_size == (48, 64)
    assert larger.get_layer("position_embedding").grid == (12, 16)
