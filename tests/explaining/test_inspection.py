"""What a model learned: filters, positions, attention distance and pooling weights."""

import dataclasses
import itertools

import keras
import numpy as np
import pytest
from pages import assert_nothing_outside
from pages import read_page
from raw_model import raw_model
from small import small_model
from small import stripes

import cct_keras
from cct_keras.errors import ModelError

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def data():
    """Eight pictures of stripes a split."""
    pixels, labels = stripes(24)
    pixels = np.repeat(pixels[..., None], 3, axis=-1)
    splits = {}
    for start, name in ((0, "train"), (8, "val"), (16, "test")):
        splits[f"x_{name}"] = pixels[start : start + 8]
        splits[f"y_{name}"] = labels[start : start + 8]
    return cct_keras.load_data(splits)


@pytest.fixture(scope="module", autouse=True)
def coarse_figures():
    """Fewer pixels take less time."""
    with pytest.MonkeyPatch.context() as context:
        context.setattr("cct_keras.drawing.html.DOTS_PER_INCH", 40)
        yield


def numbers(variable):
    return keras.ops.convert_to_numpy(variable)


# === From the weights ===


def test_filters_of_a_convolution_are_its_kernel():
    model = small_model("CCT")
    found = cct_keras.inspect_model(model)
    kernel = numbers(model.get_layer("tokenizer").convs[0].kernel)
    assert not found.filters_are_components
    assert found.explained_variance is None
    assert len(found.filters) == kernel.shape[-1]
    for index, picture in enumerate(found.filters):
        np.testing.assert_array_equal(picture, kernel[..., index])
    assert found.images == 0
    assert found.attention_distance is None
    assert found.pool_weights is None
    assert found.name == model.name


@pytest.mark.parametrize("family", ["CVT", "DeiT"])
def test_patches_are_shown_by_their_principal_components(family):
    from sklearn.decomposition import PCA

    model = small_model(family)
    found = cct_keras.inspect_model(model)
    assert found.filters_are_components
    assert found.filters.shape == (28, 4, 4, 3)
    components = found.filters.reshape(28, -1)
    np.testing.assert_allclose(components @ components.T, np.eye(28), atol=1e-5)
    kernel = numbers(model.get_layer("tokenizer").convs[0].kernel).astype("float64")
    pca = PCA(28, svd_solver="full").fit(kernel.reshape(48, 32).T)
    # Those whose share is as good as equal may come in any mixture.
    shares = pca.explained_variance_ratio_
    gaps = np.abs(np.diff(shares, prepend=np.inf, append=0))
    clear = np.minimum(gaps[:-1], gaps[1:]) > 1e-4
    assert clear.sum() > 10
    agreement = np.abs((components * pca.components_).sum(axis=1))
    np.testing.assert_allclose(agreement[clear], 1, atol=1e-3)
    np.testing.assert_allclose(found.explained_variance, shares, atol=1e-5)
    assert found.explained_variance.sum() <= 1 + 1e-6


@pytest.mark.parametrize(
    ("family", "prefix"), [("CCT", 0), ("ViTLite", 1), ("DeiT", 2)]
)
def test_positions_are_compared_by_their_cosine(family, prefix):
    model = small_model(family, input_shape=(16, 24, 3))
    table = numbers(model.get_layer("position_embedding").embeddings)[0, prefix:]
    found = cct_keras.inspect_model(model).position_similarity
    assert found.shape == (4, 6, 4, 6)
    for first, second in itertools.product((0, 7, 23), (0, 11, 23)):
        a, b = table[first].astype("float64"), table[second].astype("float64")
        cosine = a @ b / (np.linalg.norm(a) * np.linalg.norm(b))
        assert found.reshape(24, 24)[first, second] == pytest.approx(cosine, abs=1e-5)


def test_a_model_without_positions():
    model = small_model("CCT", positional_embedding=None)
    found = cct_keras.inspect_model(model)
    assert found.position_similarity is None
    assert set(found.plot()) == {"filters"}


def test_the_weights_of_a_model_without_head(data):
    model = small_model("ViT", include_top=False)
    found = cct_keras.inspect_model(model)
    assert found.filters.shape == (28, 4, 4, 3)
    assert found.position_similarity.shape == (4, 4, 4, 4)
    with pytest.raises(ModelError, match="the model has no head"):
        cct_keras.inspect_model(model, data)
    any_size = small_model(
        "CCT", input_shape=(None, None, 3), positional_embedding=None
    )
    with pytest.raises(ModelError, match="any size can be inspected without data only"):
        cct_keras.inspect_model(any_size, data)


# === From images ===


def uniform(model):
    """Queries and keys are 0, so every token attends to all of them alike."""
    for index in range(2):
        qkv = model.get_layer(f"block_{index}").attention.qkv
        kernel = numbers(qkv.kernel).copy()
        kernel[:, :64] = 0
        qkv.kernel.assign(kernel)
    return model


def mean_distance(rows, columns, height, width):
    """Between the centers of all pairs of tokens, a token and itself included."""
    centers = [
        ((row + 0.5) * height / rows, (column + 0.5) * width / columns)
        for row in range(rows)
        for column in range(columns)
    ]
    pairs = itertools.product(centers, centers)
    return np.mean([np.hypot(a[0] - b[0], a[1] - b[1]) for a, b in pairs])


@pytest.mark.backend
@pytest.mark.parametrize("family", ["CCT", "ViTLite", "DeiT"])
def test_uniform_attention_looks_at_the_mean_distance(family, data):
    """Of the image's tokens: a class token is at no place."""
    model = uniform(small_model(family, num_classes=2, input_shape=(16, 32, 3)))
    found = cct_keras.inspect_model(model, data)
    assert found.images == 8
    assert found.attention_distance.shape == (2, 2)
    expected = mean_distance(4, 8, 16, 32)
    np.testing.assert_allclose(found.attention_distance, expected, rtol=1e-5)
    assert found.uniform_distance == pytest.approx(expected, rel=1e-5)
    assert found.head_attention.shape == (2, 2, 4, 8)
    prefix = {"CCT": 0, "ViTLite": 1, "DeiT": 2}[family]
    np.testing.assert_allclose(found.head_attention, 1 / (32 + prefix), rtol=1e-4)


@pytest.mark.backend
def test_attention_to_oneself_is_no_distance(data):
    """Positions that nothing else outweighs, and queries that ask for their own."""
    model = small_model("CVT", num_classes=2, embedding_dim=32)
    table = np.zeros((1, 16, 32), "float32")
    table[0, :, :16] = 1000 * np.eye(16)
    model.get_layer("position_embedding").embeddings.assign(table)
    qkv = model.get_layer("block_0").attention.qkv
    kernel = numbers(qkv.kernel).copy()
    kernel[:, :64] = 0
    # Both heads read all sixteen positions, as queries and as keys.
    for start in (0, 16, 32, 48):
        kernel[:16, start : start + 16] = 10 * np.eye(16)
    qkv.kernel.assign(kernel)
    found = cct_keras.inspect_model(model, data).attention_distance
    np.testing.assert_allclose(found[0], 0, atol=1e-4)
    assert found[1].min() > 1


def test_pool_weights_are_the_mean_of_seqpool(data):
    model = raw_model()
    weights = model.get_weights()
    found = cct_keras.inspect_model(model, data, split="test")
    pixels = np.stack([data.test.images[i] for i in range(8)])
    maps = cct_keras.explain(model, pixels, "seqpool").token_maps
    np.testing.assert_allclose(found.pool_weights, maps.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(found.pool_deviation, maps.std(axis=0), atol=1e-6)
    heads = cct_keras.explain(model, pixels, "attention").attention_maps
    np.testing.assert_allclose(found.head_attention, heads.mean(axis=0), atol=1e-6)
    for old, new in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_model_without_seqpool_has_no_weights_of_it(data):
    found = cct_keras.inspect_model(small_model("ViT", num_classes=2), data, count=3)
    assert found.images == 3
    assert found.pool_weights is None
    assert found.pool_deviation is None


# === Figures and files ===


@pytest.fixture(scope="module")
def saved(data, tmp_path_factory):
    inspection = cct_keras.inspect_model(raw_model(), data)
    hostile = "<script>alert('x')</script>"
    inspection = dataclasses.replace(inspection, name=hostile)
    folder = tmp_path_factory.mktemp("learned") / "new" / "folder"
    return inspection, inspection.save(folder), hostile


def test_figures(saved):
    from matplotlib.figure import Figure

    figures = saved[0].plot()
    assert list(figures) == ["filters", "positions", "distance", "heads", "pool"]
    assert all(isinstance(figure, Figure) for figure in figures.values())


def test_files(saved):
    inspection, page, _ = saved
    names = {path.name: path for path in page.parent.iterdir()}
    assert page.name == "learned.html"
    assert set(names) == {
        "learned.html",
        "learned.npz",
        "learned-filters.png",
        "learned-positions.png",
        "learned-distance.svg",
        "learned-heads.png",
        "learned-pool.png",
    }
    assert names["learned-filters.png"].read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in names["learned-distance.svg"].read_bytes()
    stored = np.load(names["learned.npz"])
    for name in (
        "filters",
        "position_similarity",
        "attention_distance",
        "head_attention",
        "pool_weights",
        "pool_deviation",
    ):
        np.testing.assert_array_equal(stored[name], getattr(inspection, name))


def test_the_page(saved):
    _, path, hostile = saved
    page = read_page(path)
    assert_nothing_outside(page)
    assert f"What {hostile} learned" in page.text
    assert "script" not in [tag for tag, _ in page.tags]
    names = [attributes["alt"] for tag, attributes in page.tags if tag == "img"]
    assert names == [
        "First filters",
        "Positions",
        "Attention distance",
        "Attention by head",
        "Pooling",
    ]
