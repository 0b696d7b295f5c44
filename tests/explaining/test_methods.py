"""Each method is its formula: against NumPy in float64, differences and by hand."""

import golden_attention as golden
import keras
import numpy as np
import pytest
from plain_forward import PlainModel
from small import FAMILIES
from small import images
from small import predict
from small import small_model

import cct_keras
from cct_keras.kernels.device import pretend_accelerator

pytestmark = [pytest.mark.backend, pytest.mark.integration]
POOLED = ("CCT", "CVT")
SAME_FOR_ALL_CLASSES = ("seqpool", "attention", "rollout")
CLASS_SPECIFIC = ("gradient", "gradient_rollout", "gradcam", "occlusion")
BY_NAME = {row["name"]: row for row in golden.ROWS}
# Every family, every kind of position, both ways of pooling.
DERIVED = (
    "attention_vit_4x4",
    "attention_deit_3x5",
    "original_cct_3x1_sine_3x3",
    "original_cvt_none_2x3",
    "original_vit_lite_none_2x3",
)
PLAIN = (*DERIVED, "attention_vit_5x3", "attention_cct_3x2_5x3", "original_cvt_4x4")


def usable(family):
    names = (*SAME_FOR_ALL_CLASSES, *CLASS_SPECIFIC)
    return names if family in POOLED else names[1:]


def explain(*arguments, **options):
    return cct_keras.explain(*arguments, verbose=False, **options)


def decided_model(family, **arguments):
    """A small model whose logits are all above 0, so that no map is nothing but 0."""
    model = small_model(family, **arguments)
    for layer in model.layers:
        if layer.name.startswith("head"):
            layer.kernel.assign(np.abs(keras.ops.convert_to_numpy(layer.kernel)))
    norm = model.get_layer("norm")
    norm.beta.assign(np.full(norm.beta.shape, 2.0))
    return model


def assert_same_maps(found, expected, tolerance=1e-5):
    """Up to a share of the largest value."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    largest = np.abs(expected).max()
    assert largest > 0
    np.testing.assert_allclose(found, expected, atol=tolerance * largest)


# === Formulas ===


@pytest.mark.parametrize("name", PLAIN)
def test_rollout_is_a_product_of_matrices_and_seqpool_its_weights(name):
    row = BY_NAME[name]
    attention = golden.attention_of(row).mean(axis=1)
    flow = np.eye(attention.shape[-1])
    for weights in attention:
        flow = (0.5 * weights + 0.5 * np.eye(len(flow))) @ flow
    expected = golden.on_grid(row, golden.reading_of(row) @ flow)
    model, image = golden.model_of(row), golden.image_of(row)
    found = explain(model, image, "rollout")
    np.testing.assert_allclose(found.token_maps[0], expected, atol=1e-6)
    if row["pool"] is not None:
        expected = golden.on_grid(row, np.ravel(row["pool"]))
        found = explain(model, image, "seqpool")
        np.testing.assert_allclose(found.token_maps[0], expected, atol=1e-6)


@pytest.fixture(scope="module", params=DERIVED)
def derived(request):
    """A model, an image, and the derivatives of one logit in float64."""
    row = BY_NAME[request.param]
    model, image = golden.model_of(row), golden.image_of(row)
    tokens = cct_keras.feature_extractor(model, "tokenizer")(image)["tokenizer"]
    tokens = keras.ops.convert_to_numpy(tokens)[0].astype("float64")
    tokens = tokens.reshape(-1, row["embedding_dim"])
    plain, target = PlainModel(row, golden.state_of(row)), 3
    logits, attention, pool = plain(tokens[None])
    # The model in NumPy is the model of the goldens.
    np.testing.assert_allclose(logits.ravel(), np.ravel(row["logits"]), atol=1e-5)
    for ours, theirs in zip(attention, golden.attention_of(row), strict=True):
        np.testing.assert_allclose(ours[0], theirs, atol=1e-6)
    relevances = [
        np.maximum(weights[0] * plain.slope(tokens, target, number), 0).mean(axis=0)
        for number, weights in enumerate(attention)
    ]
    start = golden.reading_of(row)
    if pool is not None:
        start = np.maximum(pool[0] * plain.slope(tokens, target, "pool"), 0)
    return {
        "row": row,
        "model": model,
        "image": image,
        "target": target,
        "tokens": tokens,
        "slope": plain.slope(tokens, target, "tokens"),
        "relevances": relevances,
        "start": start,
    }


def map_of(derived, method):
    found = explain(derived["model"], derived["image"], method, derived["target"])
    assert list(found.targets) == [derived["target"]]
    return found.token_maps[0]


def test_gradient_is_relevance_by_differences(derived):
    """Chefer, Gur and Wolf: R = R + relu(attention x gradient) R, block by block."""
    flow = np.eye(len(derived["start"]))
    for relevance in derived["relevances"]:
        flow = flow + relevance @ flow
    expected = golden.on_grid(derived["row"], derived["start"] @ flow)
    assert_same_maps(map_of(derived, "gradient"), expected, 1e-4)


def test_gradient_rollout_is_a_product_of_shares(derived):
    identity = np.eye(len(derived["start"]))
    flow = identity
    for relevance in derived["relevances"]:
        total = relevance.sum(axis=1, keepdims=True)
        shares = relevance / np.where(total > 0, total, 1)
        flow = (0.5 * shares + 0.5 * identity) @ flow
    expected = golden.on_grid(derived["row"], derived["start"] @ flow)
    assert_same_maps(map_of(derived, "gradient_rollout"), expected, 1e-4)


def test_gradcam_is_weighted_channels(derived):
    """The mean slope of each channel weighs it; what speaks against is left out."""
    weighted = derived["tokens"] @ derived["slope"].mean(axis=0)
    expected = golden.on_grid(derived["row"], np.maximum(weighted, 0))
    assert_same_maps(map_of(derived, "gradcam"), expected, 1e-4)


def test_gradient_in_closed_form_where_blocks_do_nothing():
    """Where attention changes nothing, a token counts by its own share of the logit."""
    model = small_model("CCT", classifier_activation=None)
    for index in range(2):
        attention = model.get_layer(f"block_{index}").attention
        attention.proj.kernel.assign(np.zeros(attention.proj.kernel.shape))
    pool, head = model.get_layer("pool").attention, model.get_layer("head")
    pool.kernel.assign(images(*pool.kernel.shape, seed=1))
    x = images(2, 16, 16, 3)
    tokens = keras.ops.convert_to_numpy(
        cct_keras.feature_extractor(model, "norm")(x)["norm"]
    ).reshape(2, 16, 32)
    scores = tokens @ keras.ops.convert_to_numpy(pool.kernel)[:, 0]
    weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    shares = tokens @ keras.ops.convert_to_numpy(head.kernel)[:, 2]
    expected = np.maximum(weights * shares, 0).reshape(2, 4, 4)
    assert_same_maps(explain(model, x, "gradient", 2).token_maps, expected)


# === Occlusion, by hand ===


def falls_by_hand(model, image, grid, window, target, fill):
    """How the log-probability falls, the mean of all windows over a token."""
    height, width = image.shape[0] // grid[0], image.shape[1] // grid[1]
    places = [
        (slice(top, top + window[0]), slice(left, left + window[1]))
        for top in range(grid[0] - window[0] + 1)
        for left in range(grid[1] - window[1] + 1)
    ]
    covered = np.repeat(image[None], len(places), axis=0)
    for picture, (rows, columns) in zip(covered, places, strict=True):
        picture[
            rows.start * height : rows.stop * height,
            columns.start * width : columns.stop * width,
        ] = fill
    before = np.log(predict(model, image[None])[0, target])
    falls = before - np.log(predict(model, covered)[:, target])
    total, count = np.zeros(grid), np.zeros(grid)
    for fall, place in zip(falls, places, strict=True):
        total[place] += fall
        count[place] += 1
    return total / count


def test_occlusion_token_by_token():
    model, image = small_model("CCT"), images(16, 16, 3)
    expected = falls_by_hand(model, image, (4, 4), (1, 1), 1, 0)
    found = explain(model, image, "occlusion", 1)
    assert found.signed
    np.testing.assert_allclose(found.token_maps[0], expected, atol=2e-6)


def test_occlusion_by_windows_of_several_tokens():
    """A seventh of a side is covered at once: here two rows of eleven."""
    model = small_model("CVT", input_shape=(11, 4, 3), patch_size=1)
    image = images(11, 4, 3)
    expected = falls_by_hand(model, image, (11, 4), (2, 1), 0, 0)
    found = explain(model, image, "occlusion", 0)
    np.testing.assert_allclose(found.token_maps[0], expected, atol=2e-6)


def test_occlusion_covers_pixels_with_their_mean():
    """A model that normalizes its images is shown its mean color."""
    model = cct_keras.load_classifier("cct_2_3x2_32.digits")
    mean = model.get_layer("preprocessing").mean
    image = np.random.default_rng(0).integers(0, 256, (16, 16, 1), "uint8")
    pixels = image.astype("float32")
    fill = 255 * np.array(mean)
    expected = falls_by_hand(model, pixels, (4, 4), (1, 1), 3, fill)
    found = explain(model, image, "occlusion", 3)
    np.testing.assert_allclose(found.token_maps[0], expected, atol=1e-4)


# === Every family and method ===


@pytest.mark.parametrize("family", FAMILIES)
def test_every_method_of_a_family(family):
    """Maps of the right kind, the model's own probabilities, and targets that count."""
    model, x = decided_model(family), images(3, 16, 16, 3)
    probabilities = predict(model, x)
    for method in usable(family):
        if method == "occlusion" and family not in ("CCT", "DeiT"):
            # It asks the model and knows no family.
            continue
        found = explain(model, x, method)
        assert found.method == method
        assert found.token_maps.shape == (3, 4, 4)
        assert found.maps.shape == (3, 16, 16)
        assert found.token_maps.dtype == np.float32
        assert np.isfinite(found.token_maps).all()
        assert found.signed == (method == "occlusion")
        assert found.signed or found.token_maps.min() >= 0
        np.testing.assert_allclose(found.probabilities, probabilities, atol=1e-5)
        np.testing.assert_array_equal(found.targets, probabilities.argmax(axis=1))
        others = (found.targets + 1) % 5
        other = explain(model, x, method, list(others))
        np.testing.assert_array_equal(other.targets, others)
        same = np.allclose(other.token_maps, found.token_maps, rtol=1e-4, atol=1e-9)
        assert same == (method in SAME_FOR_ALL_CLASSES), method


def test_attention_has_all_blocks_and_heads_and_other_methods_have_none():
    model, x = decided_model("CCT", num_layers=3), images(2, 16, 16, 3)
    assert explain(model, x, "attention").attention_maps.shape == (2, 3, 2, 4, 4)
    assert explain(model, x, "rollout").attention_maps is None


def test_the_default_is_gradient_rollout():
    model, x = decided_model("CCT"), images(1, 16, 16, 3)
    found = explain(model, x)
    assert found.method == "gradient_rollout"
    expected = explain(model, x, "gradient_rollout").token_maps
    np.testing.assert_array_equal(found.token_maps, expected)


def test_targets_by_name_by_number_and_for_each_image():
    model, x = decided_model("CCT"), images(3, 16, 16, 3)
    names = ("ape", "bee", "cat", "dog", "elk")
    by_number = explain(model, x, "gradient", 2, class_names=names)
    by_name = explain(model, x, "gradient", "cat", class_names=names)
    np.testing.assert_array_equal(by_number.token_maps, by_name.token_maps)
    assert list(by_name.targets) == [2, 2, 2]
    mixed = explain(model, x, "gradient", ["elk", 2, np.int64(0)], class_names=names)
    assert list(mixed.targets) == [4, 2, 0]
    assert_same_maps(mixed.token_maps[1], by_name.token_maps[1])
    assert not np.allclose(mixed.token_maps[0], by_name.token_maps[0])
    assert mixed.class_names == names
    predicted = [names[i] for i in mixed.probabilities.argmax(axis=1)]
    assert mixed.predictions == predicted


def test_a_name_that_looks_like_a_number_is_a_name():
    model, x = decided_model("CCT"), images(1, 16, 16, 3)
    names = ("4", "3", "2", "1", "0")
    assert list(explain(model, x, "rollout", "4", class_names=names).targets) == [0]
    assert list(explain(model, x, "rollout", 4, class_names=names).targets) == [4]


def test_logits_are_explained_and_probabilities_told():
    """With and without a softmax at the end, a model has the same maps."""
    model = decided_model("CCT")
    logits = decided_model("CCT", classifier_activation=None)
    logits.set_weights(model.get_weights())
    x = images(2, 16, 16, 3)
    found = explain(model, x, "gradient", 1)
    values = predict(logits, x).astype("float64")
    expected = np.exp(values) / np.exp(values).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-5)
    assert_same_maps(found.token_maps, explain(logits, x, "gradient", 1).token_maps)


def test_many_images_are_explained_like_few():
    """More than 48 images are compiled, in batches of which the last is smaller."""
    model, x = decided_model("CCT"), images(50, 16, 16, 3)
    targets = np.arange(50) % 5
    few = explain(model, x[-7:], "gradient_rollout", list(targets[-7:]))
    many = explain(model, x, "gradient_rollout", list(targets), batch_size=20)
    assert len(many) == 50
    np.testing.assert_array_equal(many.targets, targets)
    assert_same_maps(many.token_maps[-7:], few.token_maps)
    np.testing.assert_allclose(many.probabilities, predict(model, x), atol=1e-5)


def test_images_do_not_influence_each_other():
    model, x = decided_model("ViT"), images(4, 16, 16, 3)
    together = explain(model, x, "gradient")
    alone = [explain(model, image, "gradient").token_maps[0] for image in x]
    assert_same_maps(together.token_maps, np.stack(alone))
    one_by_one = explain(model, x, "gradient", batch_size=1)
    assert_same_maps(one_by_one.token_maps, together.token_maps)


# === Models of all kinds ===


def test_a_frozen_model():
    model, x = decided_model("CCT"), images(2, 16, 16, 3)
    methods = ("attention", "gradient", "gradcam")
    expected = {name: explain(model, x, name).token_maps for name in methods}
    frozen = decided_model("CCT")
    frozen.set_weights(model.get_weights())
    frozen.trainable = False
    for method, maps in expected.items():
        assert_same_maps(explain(frozen, x, method).token_maps, maps)
    assert not frozen.trainable_variables


def test_a_model_with_adapters():
    """Untrained adapters change no map, and trained ones do."""
    model, x = decided_model("CCT"), images(2, 16, 16, 3)
    expected = explain(model, x, "gradient", 0).token_maps
    adapted = cct_keras.add_lora(model, rank=2)
    assert_same_maps(explain(adapted, x, "gradient", 0).token_maps, expected)
    for variable in adapted.trainable_variables:
        variable.assign(images(*variable.shape, seed=3))
    found = explain(adapted, x, "gradient", 0)
    assert not np.allclose(found.token_maps, expected, rtol=0.01)
    np.testing.assert_allclose(found.probabilities, predict(adapted, x), atol=1e-5)


@pytest.mark.integration
@pytest.mark.parametrize("family", ["CCT", "ViT"])
def test_half_precision(family):
    model, x = decided_model(family), images(2, 16, 16, 3)
    keras.config.set_dtype_policy("mixed_bfloat16")
    half = decided_model(family)
    half.set_weights(model.get_weights())
    for method in ("attention", "gradient"):
        found = explain(half, x, method, 1)
        assert found.token_maps.dtype == np.float32
        expected = explain(model, x, method, 1).token_maps
        assert_same_maps(found.token_maps, expected, 0.1)


@pytest.mark.parametrize(
    "family", ["CCT", pytest.param("DeiT", marks=pytest.mark.integration)]
)
def test_channels_first(family):
    """The same maps as of the model with channels last, whichever way images lie."""
    last = decided_model(family, input_shape=(16, 24, 3))
    first = decided_model(family, input_shape=(3, 16, 24), data_format="channels_first")
    first.set_weights(last.get_weights())
    x = images(2, 16, 24, 3)
    for method in ("gradient", "occlusion"):
        expected = explain(last, x, method, 1)
        found = explain(first, np.moveaxis(x, -1, 1), method, 1)
        assert_same_maps(found.token_maps, expected.token_maps, 1e-4)
        np.testing.assert_allclose(
            found.probabilities, expected.probabilities, atol=1e-5
        )
    pixels = np.random.default_rng(0).integers(0, 256, (1, 16, 24, 3), "uint8")
    found, expected = (explain(m, pixels, "gradcam", 1) for m in (first, last))
    assert_same_maps(found.token_maps, expected.token_maps, 1e-4)


def test_a_model_for_images_of_any_size():
    """Each image has the maps that a model of its own size gives it."""
    any_size = decided_model(
        "CCT", input_shape=(None, None, 3), positional_embedding=None
    )
    pictures = [images(16, 16, 3), images(24, 12, 3, seed=1), images(16, 16, 3, seed=2)]
    fixed = [
        decided_model("CCT", input_shape=shape, positional_embedding=None)
        for shape in ((16, 16, 3), (24, 12, 3))
    ]
    for model in fixed:
        model.set_weights(any_size.get_weights())
    found = explain(any_size, pictures, "gradient", 1)
    assert [x.shape for x in found.token_maps] == [(4, 4), (6, 3), (4, 4)]
    for index, picture in enumerate(pictures):
        expected = explain(fixed[index % 2], picture, "gradient", 1)
        assert_same_maps(found.token_maps[index], expected.token_maps[0], 1e-4)
        np.testing.assert_allclose(
            found.probabilities[index], expected.probabilities[0], atol=1e-5
        )


@pytest.mark.parametrize(
    "family", ["CCT", pytest.param("ViTLite", marks=pytest.mark.integration)]
)
def test_another_head(family):
    """A head of the user's own, whose softmax is part of its layer."""
    model, x = decided_model(family), images(2, 16, 16, 3)
    head = keras.layers.Dense(3, "softmax", name="head")
    other = keras.Model(model.input, head(model.get_layer("pool").output))
    expected = predict(other, x)
    for method in ("gradient", "gradcam"):
        found = explain(other, x, method)
        np.testing.assert_allclose(found.probabilities, expected, atol=1e-5)
        assert found.class_names == ("0", "1", "2")
        assert found.token_maps.shape == (2, 4, 4)
    np.testing.assert_allclose(
        explain(other, x, "attention").token_maps,
        explain(model, x, "attention").token_maps,
        atol=1e-6,
    )


@pytest.mark.parametrize(
    "ending",
    [
        keras.layers.Softmax(),
        keras.ops.softmax,
        lambda x: keras.layers.Activation("linear")(keras.layers.Softmax()(x)),
    ],
)
def test_a_softmax_of_the_user_s_own_is_not_taken_for_logits(ending):
    """Behind logits of ours, whatever makes the probabilities; none is made twice."""
    model, x = decided_model("CCT", classifier_activation=None), images(2, 16, 16, 3)
    other = keras.Model(model.input, ending(model.output))
    found, expected = explain(other, x, "gradient"), explain(model, x, "gradient")
    np.testing.assert_allclose(found.probabilities, predict(other, x), atol=1e-5)
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-5)
    assert_same_maps(found.token_maps, expected.token_maps, 1e-4)


def test_a_single_logit_is_a_class_or_none():
    """Its softmax would be 1 whatever the picture shows."""
    model, x = decided_model("CCT", num_classes=1), images(2, 16, 16, 3)
    logits = keras.Model(model.input, model.get_layer("head").output)
    expected = 1 / (1 + np.exp(-predict(logits, x)))
    found = explain(logits, x, "occlusion")
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-5)
    assert np.ptp(found.token_maps) > 0


def test_a_mean_of_tokens_reads_all_of_them_alike():
    model, x = decided_model("ViT", top_pooling="avg"), images(2, 16, 16, 3)
    for method in ("gradient", "gradcam"):
        assert explain(model, x, method).token_maps.shape == (2, 4, 4)
    found = explain(model, x, "attention")
    # Rows sum to 1, and so does a mean of them.
    np.testing.assert_allclose(found.attention_maps.sum(axis=(-1, -2)), 1, atol=1e-5)


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_a_quantized_model():
    model, x = decided_model("CCT"), images(2, 16, 16, 3)
    before = explain(model, x, "attention")
    model.quantize("int8")
    after = explain(model, x, "attention")
    np.testing.assert_allclose(after.probabilities, predict(model, x), atol=1e-5)
    assert not np.array_equal(after.probabilities, before.probabilities)
    assert_same_maps(after.token_maps, before.token_maps, 0.1)
    assert np.isfinite(explain(model, x, "gradient").token_maps).all()


# === The model stays as it is ===


def test_explaining_changes_nothing():
    model, x = decided_model("CCT"), images(3, 16, 16, 3)
    before, weights = predict(model, x), model.get_weights()
    variables = list(model.variables)
    layers = [layer.name for layer in model.layers]
    features = cct_keras.feature_extractor(model, "block_1")(x)["block_1"]
    for method in ("attention", "gradient", "gradcam"):
        explain(model, x, method)
    np.testing.assert_array_equal(predict(model, x), before)
    for old, new in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    assert all(a is b for a, b in zip(variables, model.variables, strict=True))
    assert [layer.name for layer in model.layers] == layers
    again = cct_keras.feature_extractor(model, "block_1")(x)["block_1"]
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(again), keras.ops.convert_to_numpy(features)
    )


def test_other_weights_give_other_maps():
    """Nothing that was computed before is remembered."""
    model, other, x = decided_model("CCT"), decided_model("CCT"), images(2, 16, 16, 3)
    first = explain(model, x, "gradient", 0)
    model.set_weights(other.get_weights())
    second = explain(model, x, "gradient", 0)
    assert not np.allclose(second.token_maps, first.token_maps, rtol=0.01)
    expected = explain(other, x, "gradient", 0)
    assert_same_maps(second.token_maps, expected.token_maps)
    np.testing.assert_allclose(second.probabilities, expected.probabilities, atol=1e-6)


@pytest.mark.integration
def test_other_weights_give_other_maps_of_compiled_functions():
    model, other, x = decided_model("CCT"), decided_model("CCT"), images(49, 16, 16, 3)
    first = explain(model, x, "rollout")
    model.set_weights(other.get_weights())
    second = explain(model, x, "rollout")
    assert not np.allclose(second.token_maps, first.token_maps, rtol=0.01)
    expected = explain(other, x[:3], "rollout").token_maps
    assert_same_maps(second.token_maps[:3], expected)


def test_fused_attention_is_used_outside():
    """As on an accelerator: fused operations show nothing, and agree with the rest."""
    model, x = decided_model("ViT"), images(3, 16, 16, 3)
    expected = explain(model, x, "gradient")
    plain = predict(model, x)
    with pretend_accelerator():
        found = explain(model, x, "gradient")
        fused = predict(model, x)
    np.testing.assert_allclose(fused, plain, atol=1e-5)
    np.testing.assert_allclose(found.probabilities, fused, atol=1e-5)
    assert_same_maps(found.token_maps, expected.token_maps, 1e-4)
