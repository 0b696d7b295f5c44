"""`linear_probe`, compared with scikit-learn's own pipeline."""

import dataclasses
import threading

import keras
import numpy as np
import pytest
import reference
from PIL import Image
from runs import eager
from runs import noise_images
from small import predict
from small import small_model
from small import stripes

import cct_keras
from cct_keras.cli import main as cli
from cct_keras.errors import DataError
from cct_keras.errors import ModelError
from cct_keras.errors import RecipeError
from cct_keras.recipes.rows import find_recipe
from cct_keras.training.build import build_model
from cct_keras.training.feature_cache import features_folder
from cct_keras.training.feature_cache import read_features
from cct_keras.training.feature_cache import write_features


@pytest.fixture(scope="module", autouse=True)
def eagerly():
    with eager():
        yield


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A cache of its own for every test."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    path = tmp_path_factory.mktemp("start") / "model.keras"
    keras.utils.set_random_seed(1)
    data = cct_keras.load_data(stripes(60))
    build_model(data, find_recipe("small", variant="tiny_2")).save(path)
    return path


def pixels_of(data, split):
    return np.concatenate(list(data.batches(split)))


def features_of(model, images):
    return predict(keras.Model(model.input, model.get_layer("head").input), images)


# === Both classifiers ===


def visible_classes(count):
    x, y = noise_images(count)
    x[y == 1, :8] //= 2  # Something to see.
    return x, y


def fitted_and_test(run):
    """Features and labels of the images that were fitted on, and of the test."""
    data = run.data
    fitted, test = (
        np.concatenate([features_of(run.model, pixels_of(data, x)) for x in splits])
        for splits in (("train", "validation"), ("test",))
    )
    labels = np.concatenate([data.train.labels, data.validation.labels])
    return fitted, labels, test, data.test.labels


def test_the_probe_is_a_logistic_regression(start):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data = cct_keras.load_data(visible_classes(90), image_size=16, channels=1)
    run = cct_keras.linear_probe(data, weights=start, penalties=(0.1, 1.0))
    assert run.metrics["penalty"] in (0.1, 1.0)
    assert run.metrics["variant"] == "tiny_2"
    assert run.metrics["estimate"] == "test"
    assert run.history == []
    fitted, labels, test, truth = fitted_and_test(run)
    expected = (
        make_pipeline(
            StandardScaler(),
            LogisticRegression(C=run.metrics["penalty"], max_iter=5000),
        )
        .fit(fitted, labels)
        .predict_proba(test)
    )
    found = predict(run.model, pixels_of(data, "test"))
    np.testing.assert_allclose(found, expected, atol=2e-3)
    accuracy = (expected.argmax(1) == truth).mean()
    assert run.metrics["test"]["top1"] == pytest.approx(accuracy)


def test_the_neighbors_are_those_of_scikit_learn(start):
    from sklearn.neighbors import KNeighborsClassifier

    data = cct_keras.load_data(visible_classes(90), image_size=16, channels=1)
    run = cct_keras.linear_probe(data, weights=start)
    fitted, labels, test, truth = fitted_and_test(run)
    k = run.metrics["knn"]["k"]
    neighbors = KNeighborsClassifier(
        k, metric="cosine", weights=lambda distance: np.exp((1 - distance) / 0.07)
    )
    expected = neighbors.fit(fitted, labels).predict_proba(test)
    chosen = np.clip(expected[np.arange(len(truth)), truth], 1e-7, 1)
    assert run.metrics["knn"]["count"] == len(truth)
    assert run.metrics["knn"]["loss"] == pytest.approx(-np.log(chosen).mean(), rel=1e-3)
    low, high = run.metrics["knn"]["top1_ci95"]
    assert low <= run.metrics["knn"]["top1"] <= high


def test_the_probe_of_two_classes_and_its_command(start, tmp_path, capsys):
    x, y = stripes(100, 4)
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=x[:40], y_test=y[:40])
    command = ["probe", str(tmp_path / "data.npz"), "--weights", str(start)]
    assert cli.main([*command, "--out", str(tmp_path / "probe.keras")]) == 0
    output = capsys.readouterr().out
    assert "accuracy on 40 test images" in output
    assert "logistic regression 100.00% (95 % interval" in output
    assert "parameters without a head" in output
    assert "of 16 tokens each" in output
    assert "left as initialized" not in output
    metrics = cct_keras.evaluate(tmp_path / "probe.keras", tmp_path / "data.npz")
    assert metrics["top1"] == 1.0


# === Bodies ===

# Models whose head reads something different each, and whether they have one.
BODIES = {
    "cct": ("CCT", {}),
    "vit_lite": ("ViTLite", {}),
    "distilled": ("DeiT", {}),
    "pre_logits": ("ViT", {"representation_size": 24}),
    "mae": (
        "ViT",
        {"class_token": True, "top_pooling": "avg", "final_norm": "pooled"},
    ),
    "siglip": ("ViT", {"top_pooling": "map", "activation": "gelu_tanh"}),
    "both": ("ViT", {"top_pooling": "token_avg"}),
    "dinov2": ("ViT", {"layer_scale": 0.1, "num_registers": 4, "include_top": False}),
    "clip": (
        "ViT",
        {
            "patch_bias": False,
            "norm_before_blocks": True,
            "activation": "quick_gelu",
            "include_top": False,
            "pooling": "token",
            "projection_dim": 8,
        },
    ),
    "cct_body": ("CCT", {"include_top": False}),
}


def what_a_head_reads(model, name):
    """The layer whose output it is, in a model without a head."""
    layers = [layer.name for layer in model.layers]
    if "head" in layers:
        return model.get_layer("head").input
    if name == "dinov2":
        return model.output[:, 0]
    if name == "cct_body":
        return keras.ops.mean(model.output, axis=1)
    return model.get_layer("pool").output


# The others are as different, and take a second each.
IN_DEFAULT_TIER = ("mae", "pre_logits", "dinov2", "clip", "cct_body")


@pytest.mark.parametrize(
    "name",
    [
        name
        if name in IN_DEFAULT_TIER
        else pytest.param(name, marks=pytest.mark.integration)
        for name in BODIES
    ],
)
def test_it_reads_what_the_head_reads_and_saves_what_it_fitted(name, tmp_path):
    family, arguments = BODIES[name]
    suffix = ".keras" if arguments.get("include_top", True) else ".weights.h5"
    arguments = {"num_layers": 1, **arguments}
    model = small_model(family, num_classes=3, **arguments)
    for weight in model.weights:
        # Other than at the start, so that each of them counts.
        noise = keras.random.normal(weight.shape, stddev=0.2, seed=len(weight.path))
        weight.assign(weight + noise)
    path = tmp_path / f"start{suffix}"
    model.save(path) if suffix == ".keras" else model.save_weights(path)
    x, y = visible_classes(36)
    source = (x[:24], y[:24]), (x[24:], y[24:])
    run = cct_keras.linear_probe(source, weights=path, image_size=16, cache=False)

    images = pixels_of(run.data, "test")
    inputs = (images / 255 - np.array(run.data.mean)) / np.array(run.data.std)
    expected = predict(
        keras.Model(model.input, what_a_head_reads(model, name)),
        inputs.astype("float32"),
    )
    found = features_of(run.model, images)
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)

    run.model.save(tmp_path / "probe.keras")
    metrics = cct_keras.evaluate(tmp_path / "probe.keras", source)
    for key in ("top1", "confusion", "count"):
        assert metrics[key] == run.metrics["test"][key]
    assert metrics["loss"] == pytest.approx(run.metrics["test"]["loss"], rel=1e-4)


def test_other_features(tmp_path):
    model = small_model("ViT", num_layers=1, num_registers=2, include_top=False)
    model.save_weights(tmp_path / "body.weights.h5")
    for features, width in (("token", 32), ("avg", 32), ("token_avg", 64)):
        run = cct_keras.linear_probe(
            visible_classes(24),
            weights=tmp_path / "body.weights.h5",
            features=features,
            image_size=16,
            penalties=(1.0,),
        )
        images = pixels_of(run.data, "train")
        inputs = (images / 255 - np.array(run.data.mean)) / np.array(run.data.std)
        tokens = predict(model, inputs.astype("float32"))
        parts = {"token": tokens[:, 0], "avg": tokens[:, 3:].mean(1)}
        parts["token_avg"] = np.concatenate(list(parts.values()), axis=1)
        found = features_of(run.model, images)
        assert found.shape[1] == width
        np.testing.assert_allclose(found, parts[features], atol=1e-4)


def test_features_that_the_weights_lack(start):
    with pytest.raises(RecipeError, match="`features` must be one of avg for these"):
        cct_keras.linear_probe(stripes(60), weights=start, features="token")
    with pytest.raises(RecipeError, match="`features` must be one of"):
        cct_keras.linear_probe(stripes(60), weights=start, features="pixels")


# === The cache ===


@pytest.fixture
def photos(tmp_path):
    write_photos(tmp_path / "photos" / "train", [5, 5])
    write_photos(tmp_path / "photos" / "test", [3, 3])
    return tmp_path / "photos"


def write_photos(folder, counts):
    """A folder a class, of images that differ in their upper half."""
    generator = np.random.default_rng(0)
    for number, count in enumerate(counts):
        (folder / f"class{number}").mkdir(parents=True)
        for index in range(count):
            pixels = generator.integers(0, 120, (20, 24, 3)).astype("uint8")
            pixels[:10, :, number % 3] += np.uint8((40 + 10 * number) % 130)
            Image.fromarray(pixels).save(folder / f"class{number}" / f"{index}.png")
    return folder


@pytest.fixture
def passes(monkeypatch):
    """The number of images of each batch that passed through a model."""
    counts = []
    predict_on_batch = keras.Model.predict_on_batch

    def count(self, x):
        counts.append(len(x))
        return predict_on_batch(self, x)

    monkeypatch.setattr(keras.Model, "predict_on_batch", count)
    return counts


def probe(data, weights, **options):
    """The metrics without times, and what was said."""
    lines = []
    run = cct_keras.linear_probe(
        data,
        weights=weights,
        penalties=(1.0,),
        verbose=True,
        log=lines.append,
        **options,
    )
    return {k: v for k, v in run.metrics.items() if k != "seconds"}, lines


def test_a_second_probe_runs_no_model(start, photos, passes):
    first, lines = probe(photos, start)
    assert sum(passes) == 16
    assert not any("cache" in line for line in lines)
    passes.clear()
    second, lines = probe(photos, start)
    assert not passes
    assert second == first
    assert "features: found in the cache, 16 images" in lines
    assert probe(photos, start, cache=False)[0] == first
    assert sum(passes) == 16


def test_what_features_depend_on(start, photos, passes, tmp_path):
    probe(photos, start)

    def is_computed(data=photos, weights=start, **options):
        passes.clear()
        probe(data, weights, **options)
        return bool(passes)

    assert not is_computed()
    assert is_computed(image_size=24)
    assert is_computed(features="avg")
    model = keras.models.load_model(start)
    model.get_layer("head").kernel.assign(model.get_layer("head").kernel + 1)
    model.save(tmp_path / "other_head.keras")
    assert not is_computed(weights=tmp_path / "other_head.keras")
    gamma = model.get_layer("norm").gamma
    gamma.assign(gamma * 1.001)
    model.save(tmp_path / "other_body.keras")
    assert is_computed(weights=tmp_path / "other_body.keras")
    changed = photos / "train" / "class0" / "3.png"
    pixels = np.array(Image.open(changed))
    pixels[0, 0, 0] ^= 1
    Image.fromarray(pixels).save(changed)
    assert is_computed()
    (photos / "train" / "class0" / "4.png").unlink()
    assert is_computed()


def test_data_in_memory_are_known_by_their_pixels(start, passes):
    data = cct_keras.load_data(stripes(60))
    probe(data, start)
    passes.clear()
    pixels = data.train.images.array.copy()
    pixels[0, 0, 0] ^= 1
    split = dataclasses.replace(data.train, images=type(data.train.images)(pixels))
    # Nobody has hashed these images anew.
    probe(dataclasses.replace(data, train=split), start)
    assert sum(passes) > 0


def test_a_damaged_file_is_computed_anew(start, photos, passes):
    expected, _ = probe(photos, start)
    (path,) = features_folder().iterdir()
    content = path.read_bytes()
    damaged = [
        b"",
        content[:-5],
        content[:-9] + bytes([content[-9] ^ 4]) + content[-8:],
        content.replace(b"[16, 16]", b"[16, 17]"),
        b"cos\nsystem\n(S'false'\ntR.",
        b"[" * 100_000,
    ]
    for number, other in enumerate(damaged):
        path.write_bytes(other)
        passes.clear()
        assert probe(photos, start)[0] == expected
        assert sum(passes) == 16, f"file {number}"
        assert path.read_bytes() == content


def test_any_changed_byte_is_noticed():
    features = np.arange(24, dtype="float32").reshape(8, 3)
    assert write_features("key", features, {"broken": {}}) is None
    path = features_folder() / "key"
    content = bytearray(path.read_bytes())
    generator = np.random.default_rng(0)
    for _ in range(300):
        changed = content.copy()
        for position in generator.integers(0, len(content), generator.integers(1, 4)):
            changed[position] = generator.integers(0, 256)
        path.write_bytes(changed)
        found = read_features("key", (8, 3))
        if found is not None:
            np.testing.assert_array_equal(found[0], features)
            assert found[1] == {"broken": {}}


def test_the_oldest_features_make_room(start, photos, monkeypatch):
    for side in (16, 20, 24):
        probe(photos, start, image_size=side)
    before = {path.name: path for path in features_folder().iterdir()}
    size = max(path.stat().st_size for path in before.values())
    monkeypatch.setenv("CCT_KERAS_FEATURES_GIB", str(2.5 * size / 2**30))
    probe(photos, start, image_size=16)  # The oldest is used, and young again.
    probe(photos, start, image_size=28)
    left = {path.name for path in features_folder().iterdir()}
    assert len(left) == 2
    assert len(left & set(before)) == 1
    lines = probe(photos, start, image_size=16)[1]
    assert any("found in the cache" in line for line in lines)


def test_no_room_at_all(start, photos, monkeypatch):
    monkeypatch.setenv("CCT_KERAS_FEATURES_GIB", "0")
    probe(photos, start)
    assert not features_folder().exists()
    monkeypatch.setenv("CCT_KERAS_FEATURES_GIB", "1e-9")
    assert any("not kept" in line for line in probe(photos, start)[1])
    monkeypatch.setenv("CCT_KERAS_FEATURES_GIB", "much")
    with pytest.raises(RecipeError, match="must be a number of GiB.*'much'"):
        probe(photos, start)


def test_a_cache_that_cannot_be_written(start, photos):
    features_folder().parent.mkdir(parents=True)
    features_folder().write_text("in the way")
    assert any("not kept" in line for line in probe(photos, start)[1])


def test_several_at_once_read_and_write_one_file():
    features = np.arange(40000, dtype="float32").reshape(400, 100)
    wrong = []

    def work():
        for _ in range(10):
            assert write_features("key", features, {"broken": {}}) is None
            found, noted = read_features("key", (400, 100))
            if noted != {"broken": {}} or not np.array_equal(found, features):
                wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert [path.name for path in features_folder().iterdir()] == ["key"]


def test_broken_files_are_left_out(start, photos, passes, capsys):
    path = photos / "test" / "class1" / "2.png"
    path.write_bytes(path.read_bytes()[:-60])  # Its header is fine.
    first, lines = probe(photos, start)
    assert first["test"]["count"] == 5
    assert any("1 broken files were skipped" in line for line in lines)
    passes.clear()
    second, lines = probe(photos, start)
    assert second == first
    assert not passes
    assert any("1 broken files were skipped" in line for line in lines)
    assert "skipped" in capsys.readouterr().err


# === Few images ===


@pytest.mark.parametrize(
    ("counts", "measured", "estimate"),
    [
        ([1, 1], None, None),
        ([2, 2], 4, "leave-one-out"),
        ([3] * 4, 12, "leave-one-out"),
        ([1, 4], 4, "leave-one-out"),
        pytest.param([5, 5], 10, "leave-one-out", marks=pytest.mark.integration),
        pytest.param([1] * 30, None, None, marks=pytest.mark.integration),
        pytest.param(
            [1, 50], 50, "10-fold cross-validation", marks=pytest.mark.integration
        ),
        pytest.param([105, 105], 32, "test", marks=pytest.mark.integration),
    ],
)
def test_few_images(counts, measured, estimate, start, tmp_path, capsys):
    folder = write_photos(tmp_path / "few", counts)
    out = tmp_path / "probe.keras"
    command = ["probe", str(folder), "--weights", str(start), "--out", str(out)]
    assert cli.main(command) == 0
    output = capsys.readouterr().out
    if estimate is None:
        assert "accuracy unknown: every class has a single image" in output
    elif estimate == "test":
        assert f"accuracy on {measured} test images" in output
    else:
        assert f"accuracy by {estimate} over {measured} images, as none" in output
        assert f"no test split, and {sum(counts)} images are too few" in output
    alone = counts.count(1) if len(set(counts)) > 1 else 0
    assert ("alone in their class" in output) == bool(alone)
    # The model knows every class, and was fitted on every image but those of a test.
    metrics = cct_keras.evaluate(out, folder)
    assert metrics["count"] == (measured if estimate == "test" else sum(counts))
    assert estimate == "test" or metrics["top1"] > 0.9


def test_leaving_one_out(start):
    """Compared with fits that are made by hand, without each of the images."""
    x, y = visible_classes(12)
    run = cct_keras.linear_probe((x, y), weights=start, penalties=(1.0,))
    assert run.metrics["estimate"] == "leave-one-out"
    hits = []
    for image in range(12):
        kept = [i for i in range(12) if i != image]
        source = (x[kept], y[kept]), (x[:3], y[:3])
        other = cct_keras.linear_probe(
            source, weights=start, penalties=(1.0,), cache=False
        )
        found = predict(other.model, x[[image]].astype("float32"))
        hits.append(found.argmax() == y[image])
    assert run.metrics["test"]["top1"] == pytest.approx(np.mean(hits))


@pytest.mark.integration
def test_a_probe_of_few_images_is_exported(tmp_path):
    body = small_model("CCT", num_layers=1, include_top=False)
    for weight in body.weights:
        weight.assign(weight + keras.random.normal(weight.shape, stddev=0.1, seed=1))
    body.save_weights(tmp_path / "body.weights.h5")
    x, y = visible_classes(24)
    run = cct_keras.linear_probe(
        (x, y), weights=tmp_path / "body.weights.h5", image_size=16, penalties=(1.0,)
    )
    assert run.metrics["features"] == "the mean of the image's tokens"
    run.model.save(tmp_path / "probe.keras")
    cct_keras.export(tmp_path / "probe.keras", tmp_path / "probe.onnx")
    found = cct_keras.evaluate(tmp_path / "probe.onnx", (x, y))
    expected = cct_keras.evaluate(tmp_path / "probe.keras", (x, y))
    assert found["count"] == 24
    assert found["confusion"] == expected["confusion"]


def test_few_training_images_and_a_test_of_ones_own(start):
    x, y = visible_classes(60)
    run = cct_keras.linear_probe(((x[:3], y[:3]), (x[3:], y[3:])), weights=start)
    assert run.metrics["test"]["count"] == run.metrics["knn"]["count"] == 57


def test_a_class_without_training_images(start):
    x, y = visible_classes(30)
    data = cct_keras.load_data((x, y), image_size=16, channels=1)
    known = data.train.labels != 2
    split = dataclasses.replace(
        data.train,
        images=type(data.train.images)(
            np.stack([data.train.images[i] for i in np.flatnonzero(known)])
        ),
        labels=data.train.labels[known],
    )
    none = dataclasses.replace(
        data.validation,
        images=type(data.train.images)(np.zeros((0, 16, 16, 1), "uint8")),
        labels=np.zeros(0, "int64"),
    )
    data = dataclasses.replace(data, train=split, validation=none)
    run = cct_keras.linear_probe(data, weights=start)
    assert predict(run.model, pixels_of(data, "test"))[:, 2].max() == 0


def test_images_of_one_class(start):
    data = cct_keras.load_data(stripes(60))
    splits = {
        name: dataclasses.replace(split, labels=np.zeros_like(split.labels))
        for name in ("train", "validation", "test")
        for split in [getattr(data, name)]
    }
    with pytest.raises(DataError, match="two classes or more.*51 images of 0"):
        cct_keras.linear_probe(dataclasses.replace(data, **splits), weights=start)


def test_constant_features(start):
    images, labels = np.full((10, 16, 16), 7, "uint8"), np.arange(10) % 2
    lines = probe((images, labels), start)[1]
    assert any("the features of all images are the same" in line for line in lines)


def test_features_that_are_no_numbers(start, tmp_path):
    model = keras.models.load_model(start)
    model.get_layer("norm").gamma.assign(np.full(16, np.nan))
    model.save(tmp_path / "nan.keras")
    with pytest.raises(ModelError, match="features of 30 of 30 images are not finite"):
        cct_keras.linear_probe(stripes(30), weights=tmp_path / "nan.keras")
    assert not features_folder().exists()


def test_a_probe_without_weights():
    with pytest.raises(RecipeError, match="needs `weights`.*Received: weights=None"):
        cct_keras.linear_probe(stripes(60), weights=None)


@pytest.mark.parametrize(
    ("width", "positions", "message"),
    [
        (24, 17, "its heads: name them to `convert`"),
        (192, 13, "the grid of its positions: name it to `convert`"),
    ],
)
def test_a_file_that_does_not_tell_everything(width, positions, message, tmp_path):
    state = reference.random_vit_state(
        tokens=4,
        num_classes=3,
        num_layers=1,
        embedding_dim=width,
        mlp_ratio=1,
        patch_size=4,
    )
    state["pos_embed"] = np.zeros((1, positions, width), "float32")
    np.savez(tmp_path / "mine.npz", **state)
    with pytest.raises(RecipeError, match=rf"mine\.npz does not tell {message}"):
        cct_keras.linear_probe(stripes(30), weights=tmp_path / "mine.npz")
