"""`load_data` and its pipelines, through the public API."""

import dataclasses
import gzip

import numpy as np
import pytest
from PIL import Image

import cct_keras
from cct_keras.data import DataError
from cct_keras.data import dataset as dataset_module
from cct_keras.training import find_recipe

PLAIN = find_recipe(
    "small", crop="none", flip=0, augment="none", label_smoothing=0, batch_size=8
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "cache"))


def pixels(count, height=8, width=8, channels=3, seed=0):
    shape = (count, height, width, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, "uint8")


def arrays(count=40, classes=4, **size):
    return pixels(count, **size), np.arange(count) % classes


def batches(pipeline, count=None):
    return [
        tuple(np.asarray(part) for part in batch)
        for batch in (pipeline if count is None else pipeline.take(count))
    ]


def write_images(root, names, count, size=(10, 12), suffix="png", seed=0):
    generator = np.random.default_rng(seed)
    for name in names:
        (root / name).mkdir(parents=True)
        for i in range(count):
            image = generator.integers(0, 256, (*size, 3), "uint8")
            Image.fromarray(image).save(root / name / f"{i}.{suffix}")


# === Sources ===


def test_digits():
    data = cct_keras.load_data("digits")
    assert data.input_shape == (16, 16, 1)
    assert [len(s) for s in (data.train, data.validation, data.test)] == [
        1293,
        144,
        360,
    ]
    assert data.class_names == tuple("0123456789")


def test_the_same_images_in_every_form(tmp_path):
    """A folder, an .npz file, idx files and arrays give the same data set."""
    x, y = arrays(40)
    x_test, y_test = arrays(12, seed=1)
    np.savez(tmp_path / "set.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test)
    for split, images, labels in (("train", x, y), ("test", x_test, y_test)):
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            folder = tmp_path / "folder" / split / str(label)
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(folder / f"{i:03}.png")
        name = "train" if split == "train" else "t10k"
        (tmp_path / "idx").mkdir(exist_ok=True)
        header = b"\0\0\x08\x04" + np.array(images.shape, ">i4").tobytes()
        with gzip.open(tmp_path / "idx" / f"{name}-images-idx4-ubyte.gz", "wb") as f:
            f.write(header + images.tobytes())
        header = b"\0\0\x08\x01" + np.array([len(labels)], ">i4").tobytes()
        (tmp_path / "idx" / f"{name}-labels-idx1-ubyte").write_bytes(
            header + labels.astype("uint8").tobytes()
        )
    sets = [
        cct_keras.load_data(source)
        for source in (
            ((x, y), (x_test, y_test)),
            tmp_path / "set.npz",
            tmp_path / "folder",
            tmp_path / "idx",
        )
    ]
    for data in sets:
        assert data.input_shape == (8, 8, 3)
        assert data.class_names == ("0", "1", "2", "3")
        assert (data.mean, data.std) == (sets[0].mean, sets[0].std)
        found = sorted(image.tobytes() for image in data.test.images)
        assert found == sorted(image.tobytes() for image in x_test)


def test_normalisation_is_the_mean_of_the_training_pixels():
    x, y = arrays(60)
    data = cct_keras.load_data((x, y))
    train = data.train.images.array / 255
    np.testing.assert_allclose(data.mean, train.mean((0, 1, 2)), atol=6e-5)
    np.testing.assert_allclose(data.std, train.std((0, 1, 2)), atol=6e-5)


def test_statistics_are_cached(monkeypatch):
    x, y = arrays(40)
    first = cct_keras.load_data((x, y))

    def refuse(pixels):
        raise AssertionError("computed again")

    monkeypatch.setattr(dataset_module, "_statistics", refuse)
    assert cct_keras.load_data((x, y)).mean == first.mean


def test_the_known_normalisation_of_a_named_set(tmp_path, monkeypatch):
    raw = dataset_module.read_arrays(arrays(40), name="cifar10")
    monkeypatch.setattr(dataset_module, "read_tfds", lambda *_, **__: raw)
    data = cct_keras.load_data("cifar10")
    assert data.mean == (0.4914, 0.4822, 0.4465)


def test_names_with_a_configuration(monkeypatch):
    names = []

    def read(name, *_, **__):
        names.append(name)
        return dataset_module.read_arrays(arrays(40), name=name)

    monkeypatch.setattr(dataset_module, "read_tfds", read)
    assert cct_keras.load_data("emnist/letters").name == "emnist/letters"
    assert cct_keras.load_data("cifar10:3.0.2").mean == (0.4914, 0.4822, 0.4465)
    assert names == ["emnist/letters", "cifar10:3.0.2"]


def test_a_folder_may_have_the_name_of_a_data_set(tmp_path):
    write_images(tmp_path / "digits", ["a", "b"], 20, (24, 24))
    data = cct_keras.load_data(tmp_path / "digits")
    assert data.image_size == (24, 24)


def test_normalisation_does_not_depend_on_earlier_loads(tmp_path):
    write_images(tmp_path / "set", ["a", "b"], 20, (80, 80))
    cct_keras.load_data(tmp_path / "set", image_size=16)
    std = cct_keras.load_data(tmp_path / "set", image_size=64).std
    assert min(std) > 0.25


def test_one_data_set_stays_what_it_is():
    data = cct_keras.load_data(arrays())
    assert cct_keras.load_data(data) is data


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("no/such/folder", "no such file or folder: no/such/folder"),
        ("no_such_set", "no_such_set: no such file or folder, no such set"),
        ("missing.npz", "no such file or folder"),
        (arrays(4), "too few to cut"),
    ],
)
def test_refusals(source, message):
    with pytest.raises(DataError, match=message):
        cct_keras.load_data(source)


def test_another_file(tmp_path):
    (tmp_path / "a.csv").write_text("1,2")
    with pytest.raises(DataError, match=r"a\.csv: a data set is a folder, an .npz"):
        cct_keras.load_data(tmp_path / "a.csv")


# === Splits ===


def test_cut_splits_keep_the_classes_and_the_seed():
    x, y = pixels(400), np.repeat([0, 1, 2], [300, 80, 20])
    data = cct_keras.load_data((x, y), seed=3)
    assert [len(s) for s in (data.train, data.validation, data.test)] == [306, 34, 60]
    np.testing.assert_array_equal(np.bincount(data.test.labels), [45, 12, 3])
    np.testing.assert_array_equal(np.bincount(data.validation.labels), [25, 7, 2])
    again = cct_keras.load_data((x, y), seed=3)
    other = cct_keras.load_data((x, y), seed=4)
    assert data.fingerprint == again.fingerprint != other.fingerprint
    assert any("no validation split: 34 of 340" in note for note in data.notes)
    parts = [data.train, data.validation, data.test]
    images = {image.tobytes() for part in parts for image in part.images}
    assert len(images) == 400


def test_many_small_classes():
    data = cct_keras.load_data((pixels(150), np.repeat(np.arange(50), 3)))
    assert [len(s) for s in (data.train, data.validation, data.test)] == [115, 13, 22]
    assert len(np.unique(data.train.labels)) == 50


def test_duplicates_across_splits_are_reported():
    x, y = arrays(40)
    data = cct_keras.load_data(((x, y), (x[:7], y[:7])), validation=0.25)
    assert any("of 7 images of test are also in train" in note for note in data.notes)
    clean = cct_keras.load_data(((x, y), arrays(8, seed=9)))
    assert not any("also in" in note for note in clean.notes)


def test_jpeg_cifar_is_recognised(tmp_path):
    names = cct_keras.class_names("cifar10")
    for split in ("train", "test"):
        write_images(tmp_path / "j" / split, names, 3, (32, 32), "jpg")
        write_images(tmp_path / "p" / split, names, 3, (32, 32), "png")
    data = cct_keras.load_data(tmp_path / "j", validation=0.3)
    assert any("CIFAR-10 (JPEG)" in note for note in data.notes)
    data = cct_keras.load_data(tmp_path / "p", validation=0.3)
    assert not any("JPEG" in note for note in data.notes)


# === Images ===


def test_broken_files_are_named_and_skipped(tmp_path, capsys):
    write_images(tmp_path / "set", ["cat", "dog"], 20, (40, 40), "jpg")
    (tmp_path / "set/cat/bad.jpg").write_bytes(b"no image")
    whole = (tmp_path / "set/dog/3.jpg").read_bytes()
    (tmp_path / "set/dog/cut.jpg").write_bytes(whole[: len(whole) // 2])
    data = cct_keras.load_data(tmp_path / "set")
    assert sum(len(s) for s in (data.train, data.validation, data.test)) == 40
    notes = " ".join(data.notes)
    assert "bad.jpg" in notes
    assert "cut.jpg" in notes
    assert "bad.jpg" in capsys.readouterr().err


def test_size_of_the_images():
    small = cct_keras.load_data(arrays(40, height=28, width=20))
    assert small.image_size == (28, 20)
    patches = cct_keras.load_data(arrays(40, height=30, width=21), multiple=4)
    assert patches.image_size == (32, 24)
    large = cct_keras.load_data(arrays(40, height=100, width=130))
    assert large.image_size == (64, 64)
    # Room for crops, but not the whole.
    assert large.train.images.array.shape[1:3] == (80, 104)
    given = cct_keras.load_data(arrays(40), image_size=(12, 16))
    assert given.test.images.array.shape[1:] == (12, 16, 3)
    for size in (0, (1, 2, 3), "big"):
        with pytest.raises(DataError, match="`image_size` must be a side"):
            cct_keras.load_data(arrays(40), image_size=size)


def test_evaluation_sees_what_the_preprocessing_layer_makes(tmp_path):
    """The pipeline resizes with Pillow, a saved model with its own layer."""
    height, width = np.mgrid[:60, :90]
    waves = np.sin(height / 7)[..., None] * np.cos(width / 9)[..., None]
    image = (127 + 100 * waves * [1, 0.5, -1]).astype("uint8")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(12):
            Image.fromarray(np.roll(image, 5 * i, 1)).save(tmp_path / name / f"{i}.png")
    data = cct_keras.load_data(tmp_path, image_size=(32, 32), crop=0.9)
    layer = cct_keras.layers.Preprocessing(
        (32, 32), mean=data.mean, std=data.std, crop=0.9
    )
    file = np.asarray(Image.open(tmp_path / "a/0.png"))
    ours = dataset_module._evaluation_image(3, (32, 32), 0.9, file)
    by_layer = np.asarray(layer.fit_size(file[None].astype("float32")))[0]
    assert np.abs(ours - by_layer).max() < 2


def test_images_of_many_sizes(tmp_path):
    generator = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(20):
            size = generator.integers(20, 60, 2)
            image = generator.integers(0, 256, (*size, 3), "uint8")
            Image.fromarray(image).save(tmp_path / name / f"{i}.png")
    data = cct_keras.load_data(tmp_path, image_size=24)
    recipe = find_recipe("small", batch_size=8)
    first = batches(data.training_pipeline(recipe, epochs=1))
    again = batches(data.training_pipeline(recipe, epochs=1))
    assert first[0][0].shape == (8, 24, 24, 3)
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
    plain = batches(data.training_pipeline(PLAIN, epochs=1))
    assert plain[0][0].shape == (8, 24, 24, 3)


def test_more_than_fits_in_memory(tmp_path, monkeypatch, capsys):
    """The same batches as from memory, and a file that breaks later is no crash."""
    write_images(tmp_path / "set", ["a", "b"], 20, (24, 24))
    in_memory = cct_keras.load_data(tmp_path / "set", image_size=24)
    monkeypatch.setattr(dataset_module, "memory_budget", lambda: 1000)
    on_disk = cct_keras.load_data(tmp_path / "set", image_size=24)
    assert any("do not fit in memory" in note for note in on_disk.notes)
    assert on_disk.fingerprint == in_memory.fingerprint
    for data in (in_memory, on_disk):
        assert data.mean == in_memory.mean
    pipelines = [
        (data.training_pipeline(PLAIN, epochs=1), data.pipeline("test", 4))
        for data in (in_memory, on_disk)
    ]
    for one, other in zip(*pipelines, strict=True):
        for (a, la), (b, lb) in zip(batches(one), batches(other), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-3)
            np.testing.assert_array_equal(la, lb)
    store, labels = on_disk.train.images, on_disk.train.labels
    last = np.flatnonzero(labels == 0)[-1]
    store.paths[last].write_bytes(b"gone")
    assert len(batches(on_disk.training_pipeline(PLAIN, epochs=1))) == 3
    assert store.paths[last].name in capsys.readouterr().err
    # Another of its class stands in.
    first = np.flatnonzero(labels == 0)[0]
    np.testing.assert_array_equal(store[last], store[first])


# === Pipelines ===


def test_evaluation_keeps_order_and_the_last_batch():
    data = cct_keras.load_data((arrays(40), arrays(21, seed=2)))
    found = batches(data.pipeline("test", 8))
    assert [len(labels) for _, labels in found] == [8, 8, 5]
    images = np.concatenate([images for images, _ in found])
    np.testing.assert_array_equal(images, data.test.images.array)
    labels = np.concatenate([labels for _, labels in found])
    np.testing.assert_array_equal(labels.argmax(1), data.test.labels)
    assert labels.shape == (21, 4)


def test_an_epoch_has_every_image_once():
    data = cct_keras.load_data(arrays(64), validation=0.25, test=0.34)
    assert len(data.train) % 8 == 0
    seen = [
        x
        for images, _ in batches(data.training_pipeline(PLAIN, epochs=1))
        for x in images
    ]
    known = {image.astype("float32").tobytes() for image in data.train.images}
    assert {image.tobytes() for image in seen} == known
    assert len(seen) == len(data.train)


def test_training_and_evaluation_see_the_same_part_of_an_image(tmp_path):
    """Three colours side by side: a square keeps the one in the middle."""
    strip = np.zeros((32, 96, 3), "uint8")
    strip[:, :32, 0] = strip[:, 32:64, 1] = strip[:, 64:, 2] = 200
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(12):
            Image.fromarray(strip).save(tmp_path / name / f"{i}.png")
    data = cct_keras.load_data(tmp_path, image_size=32)
    for pipeline in (data.training_pipeline(PLAIN, epochs=1), data.pipeline("test")):
        images, _ = batches(pipeline, 1)[0]
        assert images[..., 1].min() > 190
        assert images[..., [0, 2]].max() < 10


def test_labels_stay_with_their_images():
    x = np.repeat(np.arange(40, dtype="uint8"), 8 * 8 * 3).reshape(40, 8, 8, 3)
    data = cct_keras.load_data((x, np.arange(40) % 4))
    for images, labels in batches(data.training_pipeline(PLAIN, epochs=1)):
        np.testing.assert_array_equal(images[:, 0, 0, 0] % 4, labels.argmax(1))


@pytest.mark.filterwarnings("ignore")
def test_keras_cv_goes_on_where_it_was():
    recipe = dataclasses.replace(PLAIN, augment="keras_cv")
    data = cct_keras.load_data(arrays(40))
    whole = batches(data.training_pipeline(recipe, epochs=2, seed=5))
    later = batches(data.training_pipeline(recipe, first_epoch=1, epochs=2, seed=5))
    plain = batches(data.training_pipeline(PLAIN, epochs=2, seed=5))
    for (a, _), (b, _) in zip(whole[len(whole) // 2 :], later, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(whole[0][0], plain[0][0])
    grey = cct_keras.load_data(arrays(40, channels=1))
    with pytest.raises(ValueError, match="colour images only"):
        grey.training_pipeline(recipe)


@pytest.mark.parametrize(("channels", "same"), [(3, "auto"), (1, "none")])
def test_auto_color_spares_grey_images(channels, same):
    data = cct_keras.load_data(arrays(40, channels=channels))
    found, expected = (
        batches(data.training_pipeline(dataclasses.replace(PLAIN, augment=kind)))
        for kind in ("auto-color", same)
    )
    for (a, _), (b, _) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


EVERYTHING = find_recipe(
    "cifar10_1500",
    batch_size=8,
    repeats=2,
    mix_off_epoch=2,
    epochs=4,
    cooldown_epochs=0,
)


@pytest.mark.parametrize(
    "recipe", [EVERYTHING, find_recipe("legacy_200", batch_size=8)]
)
def test_an_epoch_does_not_depend_on_where_a_run_began(recipe):
    """Same seed: same images, same augmentation, same order, for any first epoch."""
    data = cct_keras.load_data(arrays(64, height=16, width=16))
    steps = len(data.train) // 8
    whole = batches(data.training_pipeline(recipe, epochs=3, seed=5))
    later = batches(data.training_pipeline(recipe, first_epoch=2, epochs=3, seed=5))
    assert len(whole) == 3 * steps
    for (a, la), (b, lb) in zip(whole[2 * steps :], later, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(la, lb)
    other = batches(data.training_pipeline(recipe, first_epoch=2, epochs=3, seed=6))
    assert not np.array_equal(later[0][0], other[0][0])
    assert not np.array_equal(whole[0][0], whole[steps][0])


def test_mixing_ends_at_its_epoch():
    recipe = dataclasses.replace(EVERYTHING, label_smoothing=0.0, mix_off_epoch=1)
    data = cct_keras.load_data(arrays(64))
    steps = len(data.train) // 8
    found = batches(data.training_pipeline(recipe, epochs=2))
    mixed = [bool(((labels > 0) & (labels < 1)).any()) for _, labels in found]
    assert any(mixed[:steps])
    assert not any(mixed[steps:])


def test_label_smoothing():
    recipe = dataclasses.replace(PLAIN, label_smoothing=0.1)
    data = cct_keras.load_data(arrays(64))
    _, labels = batches(data.training_pipeline(recipe, epochs=1), 1)[0]
    np.testing.assert_allclose(np.sort(labels)[:, -1], 0.9 + 0.1 / 4, rtol=1e-6)
    np.testing.assert_allclose(np.sort(labels)[:, 0], 0.1 / 4, rtol=1e-6)


def test_repeated_augmentation():
    recipe = dataclasses.replace(PLAIN, repeats=2)
    data = cct_keras.load_data(arrays(64))
    for images, _ in batches(data.training_pipeline(recipe, epochs=1)):
        np.testing.assert_array_equal(images[0::2], images[1::2])
        assert len({image.tobytes() for image in images}) == 4


def test_fewer_images_than_a_batch():
    recipe = dataclasses.replace(PLAIN, batch_size=512)
    data = cct_keras.load_data(arrays(40))
    found = batches(data.training_pipeline(recipe, epochs=2))
    assert [len(labels) for _, labels in found] == [len(data.train)] * 2


def test_grey_images_are_not_mirrored_by_default():
    recipe = dataclasses.replace(PLAIN, flip="auto")
    ramp = np.tile(np.arange(8, dtype="uint8") * 30, (60, 8, 1))
    grey = cct_keras.load_data((ramp, np.arange(60) % 2))
    colour = cct_keras.load_data((np.stack([ramp] * 3, -1), np.arange(60) % 2))
    falling = [
        sum((images[:, 0, 0, 0] > 0).sum() for images, _ in batches(pipeline))
        for pipeline in (
            grey.training_pipeline(recipe, epochs=1),
            colour.training_pipeline(recipe, epochs=1),
        )
    ]
    assert falling[0] == 0
    assert 0 < falling[1] < 48
