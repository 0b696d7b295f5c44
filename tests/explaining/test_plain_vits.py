"""Modern plain ViTs: registers are at no place, and every way of pooling is read."""

import json
import pathlib

import keras
import numpy as np
import pytest
import reference
from small import images
from small import predict
from small import small_model
from small import stripes

import cct_keras
from cct_keras.errors import ModelError
from cct_keras.kernels.observation import observe

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
backend = pytest.mark.backend
METHODS = ("attention", "rollout", "gradient", "gradient_rollout", "gradcam")
# Arguments, how many tokens stand before those of the image, and whether the pooling
# has weights.
KINDS = {
    "registers": ({"num_registers": 3}, 4, False),
    "no class token": ({"top_pooling": "avg", "num_registers": 2}, 2, False),
    "mean beside class token": ({"top_pooling": "avg", "class_token": True}, 1, False),
    "both": ({"top_pooling": "token_avg", "num_registers": 1}, 2, False),
    "attention pooling": ({"top_pooling": "map"}, 0, True),
    "attention pooling of some": (
        {"top_pooling": "map", "class_token": True, "num_registers": 2},
        3,
        True,
    ),
    "no position": ({"class_token_position": False, "num_registers": 1}, 2, False),
    "scales and gates": ({"layer_scale": 0.5, "activation": "swiglu"}, 1, False),
    "CLIP": (
        {"patch_bias": False, "norm_before_blocks": True, "activation": "quick_gelu"},
        1,
        False,
    ),
    "DINOv2": (
        {"num_registers": 4, "layer_scale": 1.0, "top_pooling": "token_avg"},
        5,
        False,
    ),
}
SOME = ("both", "attention pooling of some")
X = images(2, 16, 16, 3)


def numbers(x):
    return keras.ops.convert_to_numpy(x).astype("float64")


def softmax(x):
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def explain(model, *arguments):
    return cct_keras.explain(model, X, *arguments, verbose=False)


def plain_vit(kind, **arguments):
    """A small model whose numbers are large enough for maps that are not flat."""
    keras.utils.set_random_seed(1)
    model = small_model("ViT", **{**KINDS[kind][0], **arguments})
    for weight in model.weights:
        if len(weight.shape) == 2:
            weight.assign(3 * numbers(weight))
    return model


def tokens_after(model, layer):
    return numbers(cct_keras.feature_extractor(model, layer)(X)[layer])


def attention_of(model):
    """`(images, blocks, tokens, tokens)`, the mean of the heads."""
    seen = []

    def look(kind, value):
        if kind == "attention":
            seen.append(numbers(value).mean(axis=1))
        return value

    with observe(look):
        model(X, training=False)
    return np.stack(seen, axis=1)


def pooling_weights(model):
    """Those of attention pooling by its formula, `(images, heads, tokens)`."""
    pool = model.get_layer("pool")
    layer = "image_tokens" if "image_tokens" in names_of(model) else "norm"
    x = tokens_after(model, layer)
    query = numbers(pool.probe)[0] @ numbers(pool.query.kernel)
    query = query + numbers(pool.query.bias)
    key = x @ numbers(pool.key_value.kernel)[:, :32] + numbers(pool.key_value.bias)[:32]
    scores = np.einsum(
        "hd,bthd->bht", query.reshape(2, 16), key.reshape(2, -1, 2, 16) / 4
    )
    return softmax(scores)


def names_of(model):
    return {layer.name for layer in model.layers}


def reading_of(model, kind):
    """How much the head reads of each token, by what the arguments say."""
    arguments, prefix, has_weights = KINDS[kind]
    reading = np.zeros((2, prefix + 16))
    if has_weights:
        reading[:, prefix:] = pooling_weights(model).mean(axis=1)
    elif arguments.get("top_pooling") == "avg":
        reading[:, prefix:] = 1 / 16
    elif arguments.get("top_pooling") == "token_avg":
        reading[:, 0], reading[:, prefix:] = 1 / 2, 1 / 32
    else:
        reading[:, 0] = 1
    return reading


def on_grid(values, prefix):
    return values[:, prefix:].reshape(2, 4, 4)


@backend
@pytest.mark.parametrize(
    "kind",
    [
        kind if kind in SOME else pytest.param(kind, marks=pytest.mark.integration)
        for kind in KINDS
    ],
)
def test_rollout_drops_what_is_at_no_place(kind):
    model, prefix = plain_vit(kind), KINDS[kind][1]
    attention = attention_of(model)
    assert attention.shape == (2, 2, prefix + 16, prefix + 16)
    reading = reading_of(model, kind)
    flow = np.eye(prefix + 16)
    for block in range(2):
        flow = (0.5 * attention[:, block] + 0.5 * np.eye(prefix + 16)) @ flow
    expected = on_grid((reading[:, None] @ flow)[:, 0], prefix)
    found = explain(model, "rollout").token_maps
    np.testing.assert_allclose(found, expected, atol=1e-6)
    expected = on_grid((reading[:, None] @ attention[:, -1])[:, 0], prefix)
    found = explain(model, "attention").token_maps
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.integration
@pytest.mark.parametrize(
    "kind",
    [
        # JAX takes ten seconds to compile each.
        pytest.param(kind, marks=backend) if kind in SOME else kind
        for kind in KINDS
    ],
)
def test_every_method(kind):
    """Maps of the grid, and the probabilities that the model has by itself."""
    model, (_, _, has_weights) = plain_vit(kind), KINDS[kind]
    expected = predict(model, X)
    for method in (*METHODS, "occlusion", *(["seqpool"] if has_weights else [])):
        found = explain(model, method)
        assert found.token_maps.shape == (2, 4, 4), method
        assert found.maps.shape == (2, 16, 16)
        assert np.isfinite(found.token_maps).all()
        assert found.signed or found.token_maps.min() >= 0
        np.testing.assert_allclose(found.probabilities, expected, atol=1e-5)
    if not has_weights:
        with pytest.raises(ModelError, match="this model has none; use one of"):
            explain(model, "seqpool")
    np.testing.assert_array_equal(predict(model, X), expected)


def goldens(file):
    rows = json.loads((GOLDEN / file).read_text())
    return {row["name"]: row for row in rows}


@backend
@pytest.mark.parametrize("name", ["dinov2_registers", "siglip"])
def test_attention_is_that_of_transformers(name):
    """Of DINOv2 with registers, and of SigLIP with the attention of its pooling."""
    row = goldens("plain_vits.json")[name]
    state = {
        key: reference.random_tensor(key, tuple(shape))
        for key, shape in row["shapes"].items()
    }
    model = cct_keras.convert(state, num_heads=row["num_heads"])
    seen = {"attention": [], "pool": []}

    def look(kind, value):
        seen.setdefault(kind, []).append(numbers(value)[0])
        return value

    with observe(look):
        model(reference.random_images(name, (1, *row["input_shape"])), training=False)
    expected = goldens("attention_plain_vits.json")[name]
    np.testing.assert_allclose(seen["attention"], expected["attention"], atol=1e-6)
    if expected["pool"] is None:
        assert not seen["pool"]
    else:
        np.testing.assert_allclose(seen["pool"], [expected["pool"]], atol=1e-6)


@backend
@pytest.mark.parametrize("kind", ["attention pooling", "attention pooling of some"])
def test_attention_pooling_is_shown_as_its_weights(kind):
    model = plain_vit(kind)
    expected = pooling_weights(model).mean(axis=1).reshape(2, 4, 4)
    found = explain(model, "seqpool")
    np.testing.assert_allclose(found.token_maps, expected, atol=1e-6)
    np.testing.assert_allclose(found.token_maps.sum(axis=(1, 2)), 1, atol=1e-5)


def without_blocks(kind):
    """Attention changes nothing, so that a token counts by what the head reads of it.

    All logits are above 0, so that no map is nothing but 0.
    """
    model = plain_vit(kind, classifier_activation=None)
    for index in range(2):
        proj = model.get_layer(f"block_{index}").attention.proj
        proj.kernel.assign(np.zeros(proj.kernel.shape))
    return model


def assert_same_maps(found, expected):
    assert expected.max() > 0
    np.testing.assert_allclose(found, expected, atol=1e-5 * expected.max())


@backend
def test_a_mean_begins_with_each_token_s_share_of_the_logit():
    """Not with equal values, which would hide the tokens that matter."""
    model = without_blocks("no class token")
    shares = tokens_after(model, "norm") @ numbers(model.get_layer("head").kernel)
    expected = on_grid(np.maximum(shares[..., 3] / 16, 0), 2)
    assert_same_maps(explain(model, "gradient", 3).token_maps, expected)


@backend
def test_a_mean_beside_the_class_token_does_so_too():
    model = without_blocks("both")
    kernel = numbers(model.get_layer("head").kernel)
    assert kernel.shape == (64, 5)
    shares = tokens_after(model, "norm") @ kernel[32:]
    expected = on_grid(np.maximum(shares[..., 3] / 16, 0), 2)
    assert_same_maps(explain(model, "gradient", 3).token_maps, expected)


@backend
def test_attention_pooling_begins_with_each_head_s_share_of_the_logit():
    model = without_blocks("attention pooling of some")
    pool = model.get_layer("pool")
    linear = pool.feed_forward.linear2.kernel
    linear.assign(np.zeros(linear.shape))
    x = tokens_after(model, "image_tokens")
    value = x @ numbers(pool.key_value.kernel)[:, 32:]
    value = (value + numbers(pool.key_value.bias)[32:]).reshape(2, 16, 2, 16)
    outward = numbers(pool.proj.kernel) @ numbers(model.get_layer("head").kernel)[:, 3]
    shares = np.einsum("bthd,hd->bht", value, outward.reshape(2, 16))
    expected = np.maximum(pooling_weights(model) * shares, 0).mean(axis=1)
    found = explain(model, "gradient", 3).token_maps
    assert_same_maps(found, expected.reshape(2, 4, 4))


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["registers", "both", "attention pooling of some"])
def test_what_such_a_model_learned_and_how_far_its_maps_can_be_trusted(kind):
    pixels, labels = stripes(16)
    pixels = np.repeat(pixels[..., None], 3, axis=-1)
    data = cct_keras.load_data((pixels, labels))
    model, (_, prefix, has_weights) = plain_vit(kind, num_classes=2), KINDS[kind]
    found = cct_keras.inspect_model(model, data, split="train", count=5)
    assert found.head_attention.shape == (2, 2, 4, 4)
    assert found.position_similarity.shape == (4, 4, 4, 4)
    # Registers take a part of the attention, and are no place of the picture.
    assert found.head_attention.sum() < 4 - 1e-3 * prefix
    assert (found.pool_weights is not None) == has_weights
    if has_weights:
        assert found.pool_weights.sum() == pytest.approx(1, abs=1e-5)
    assert 0 < found.attention_distance.min() < found.attention_distance.max() < 22
    judged = cct_keras.judge_explanations(
        model, data, ["rollout"], split="train", count=4
    )
    assert list(judged.rows) == ["rollout", "random", "center"]
    assert judged.counts["deletion"] == 4


def test_what_a_model_projects_to_are_no_classes():
    """As CLIP's tower of images ends."""
    tower = small_model("ViT", include_top=False, pooling="token", projection_dim=6)
    with pytest.raises(ModelError, match="the model has no head"):
        explain(tower)
