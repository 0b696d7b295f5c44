"""`load_data` reads every kind of source, through the public API."""

import gzip

import numpy as np
import pytest
from made_images import arrays
from made_images import write_images
from PIL import Image
from tiny_builders import make_builder
from tiny_builders import prepare
from tiny_builders import register

import cct_keras
from cct_keras.errors import DataError


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


def test_the_known_normalization_of_a_named_set(tfds, tmp_path):
    """The published mean, whether or not a version is named."""
    prepare(make_builder(tfds, "cifar10", shape=(32, 32, 3), version="3.0.2"), tmp_path)
    for name in ("cifar10", "cifar10:3.0.2"):
        data = cct_keras.load_data(name, data_dir=tmp_path)
        assert data.name == name
        assert data.mean == (0.4914, 0.4822, 0.4465)
    gray = cct_keras.load_data("cifar10", data_dir=tmp_path, channels=1)
    assert gray.mean != data.mean


def test_the_known_splits_of_a_named_set(tfds, tmp_path):
    """The labels of ImageNet's test images are secret: its validation is the test."""
    splits = ["train", "validation"]
    prepare(make_builder(tfds, "imagenet2012", splits=splits), tmp_path)
    data = cct_keras.load_data("imagenet2012", data_dir=tmp_path)
    assert (len(data.train), len(data.validation), len(data.test)) == (5, 1, 6)


def test_names_with_a_configuration(tfds, tmp_path, monkeypatch):
    builder_class = make_builder(tfds, "tiny_configured", config="letters")
    register(monkeypatch, tfds, builder_class)
    prepare(builder_class, tmp_path)
    data = cct_keras.load_data("tiny_configured/letters", data_dir=tmp_path)
    assert data.name == "tiny_configured/letters"
    assert data.class_names == ("cat", "dog")


def test_a_folder_may_have_the_name_of_a_data_set(tmp_path):
    write_images(tmp_path / "digits", ["a", "b"], 20, (24, 24))
    data = cct_keras.load_data(tmp_path / "digits")
    assert data.image_size == (24, 24)


def test_files_that_are_read_when_they_are_needed(tmp_path):
    write_images(tmp_path / "set", ["a", "b"], 20)
    now = cct_keras.load_data(tmp_path / "set", image_size=8)
    later = cct_keras.load_data(tmp_path / "set", image_size=8, in_memory=False)
    assert later.fingerprint == now.fingerprint
    assert (later.mean, later.std) == (now.mean, now.std)
    for split in ("train", "validation", "test"):
        pairs = zip(now.batches(split), later.batches(split), strict=True)
        for expected, found in pairs:
            np.testing.assert_array_equal(found, expected)
    (later.train.files[0]).unlink()
    assert len(next(iter(later.batches("test")))) == len(later.test)


def test_a_normalization_that_is_given():
    color = ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    data = cct_keras.load_data(arrays(), normalization=color)
    assert (data.mean, data.std) == color
    gray = cct_keras.load_data(arrays(), channels=1, normalization=color)
    assert len(gray.mean) == 1


def test_one_data_set_stays_what_it_is():
    data = cct_keras.load_data(arrays())
    assert cct_keras.load_data(data) is data


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("no/such/folder", "no such file or folder: no/such/folder"),
        ("no_such_set", "no_such_set: no such file or folder, no such data set"),
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
