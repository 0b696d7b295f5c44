"""Which arrays are read, and which are refused."""

import numpy as np
import pytest
from reader_samples import X
from reader_samples import Y

from cct_keras.data.readers.arrays import read_arrays
from cct_keras.errors import DataError


def train(source, **kwargs):
    return read_arrays(source, **kwargs).splits["train"]


def test_arrays_come_back_as_they_are():
    data = read_arrays((X, Y), name="mine")
    assert data.name == "mine"
    assert data.class_names == ("0", "1", "2")
    assert data.notes == ()
    assert list(data.splits) == ["train"]
    split = data.splits["train"]
    assert split.images.dtype == np.uint8
    assert split.labels.dtype == np.int64
    np.testing.assert_array_equal(split.images, X)
    np.testing.assert_array_equal(split.labels, Y)


@pytest.mark.parametrize(
    ("source", "splits"),
    [
        ((X, Y), ["train"]),
        ([X, Y], ["train"]),
        ((list(X[:2]), [0, 1]), ["train"]),
        (((X, Y), (X, Y)), ["train", "test"]),
        (([X, Y], [X, Y]), ["train", "test"]),
        (((X, Y),) * 3, ["train", "validation", "test"]),
        ({"x_train": X, "y_train": Y}, ["train"]),
        (
            {"x_train": X, "y_train": Y, "x_val": X, "y_val": Y},
            ["train", "validation"],
        ),
        ({"x_train": X, "y_train": Y, "x_test": X, "y_test": Y}, ["train", "test"]),
    ],
)
def test_forms_of_a_source(source, splits):
    assert list(read_arrays(source).splits) == splits


@pytest.mark.parametrize("source", [X, (X,), (X, Y, X), "x", None, ((X, Y),) * 4])
def test_other_forms_are_refused(source):
    with pytest.raises(DataError, match=r"^arrays: expected \(x, y\).*got "):
        read_arrays(source)


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (X[..., 0], X[..., :1]),
        (X[..., :1], X[..., :1]),
        (np.moveaxis(X, -1, 1), X),
        (np.moveaxis(X[..., :1], -1, 1), X[..., :1]),
        (X.astype(np.int64), X),
        (X.astype(np.uint16), X),
        (X.astype(np.float64), X),
        (X.astype(np.float32) / 255, X),
        (X.astype(np.float16) / 255, X),
        (X.astype(np.float32) / 255 * 1.0000002, X),
        (X.astype(np.uint16) * 257, X),
        (X > 127, (X > 127) * np.uint8(255)),
    ],
)
def test_pixels_become_uint8(images, expected):
    result = train((images, Y)).images
    assert result.dtype == np.uint8
    np.testing.assert_array_equal(result, expected)


def test_large_float_sets_are_converted_in_full():
    x = np.random.default_rng(0).integers(0, 256, (2500, 2, 2, 1), np.uint8)
    y = np.arange(2500) % 2
    np.testing.assert_array_equal(train((x / 255, y)).images, x)


def test_transparent_arrays_are_laid_over_white():
    x = np.zeros((2, 3, 3, 4), np.uint8)
    x[1, ..., 3] = 255
    data = read_arrays((x, [0, 1]))
    assert data.splits["train"].images.shape == (2, 3, 3, 3)
    assert [int(image.mean()) for image in data.splits["train"].images] == [255, 0]
    assert any("over white" in note for note in data.notes)


def test_scale_is_the_one_of_the_training_images():
    dark = np.full((2, 4, 5, 3), 0.5)
    data = read_arrays(((X / 255, Y), (dark, [0, 1])))
    assert (data.splits["test"].images == 128).all()
    sixteen = np.full((2, 4, 5, 3), 257, np.uint16)
    data = read_arrays(((X.astype(np.uint16) * 257, Y), (sixteen, [0, 1])))
    assert (data.splits["test"].images == 1).all()
    assert data.notes[0] == "16-bit pixels were scaled from 0..65535 to 0..255"
    assert data.notes[1] == "the test images are dark: no pixel exceeds 1 of 255"
    with pytest.raises(DataError, match=r"test: pixels from 0 to 255, .*0\.\.1;"):
        read_arrays(((X / 255, Y), (X, Y)))
    with pytest.raises(DataError, match=r"test: pixels from 0 to 1, but .*0\.\.255;"):
        read_arrays(((X, Y), (X / 255, Y)))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (X / 127.5 - 1, r"train: pixels from -1 to 1, .*normalization is done for you"),
        (X.astype(int) - 1, r"train: pixels from -1 to 254, expected raw .*0\.\.255"),
        (X.astype(int) + 1, r"train: pixels from 1 to 256, expected raw"),
        (X * 2.0, r"train: pixels from 0 to 510"),
        (np.where(X == 255, np.nan, X), r"train: the images contain NaN or infinity"),
        (np.where(X == 255, np.inf, X), r"train: the images contain NaN or infinity"),
        (X.reshape(6, -1), r"images of shape \(6, 60\); \(n, height, width\)"),
        (np.zeros((6, 8, 8, 5)), r"train: 5 channels; 1 \(gray\)"),
        (X[:0], r"train: no images; the array has shape \(0, 4, 5, 3\)"),
        (X.astype(str), r"train: images of type <U3; raw pixels"),
        ([X[0], X[1, 1:]], r"train: the images differ in size"),
        (X[:5], r"train: 5 images but 6 labels"),
    ],
)
def test_other_images_are_refused(images, message):
    with pytest.raises(DataError, match=message):
        read_arrays((images, Y))


def test_splits_of_differing_channels_are_refused():
    with pytest.raises(DataError, match=r"channels .* differ: {'train': 3, 'test': 1}"):
        read_arrays(((X, Y), (X[..., :1], Y)))


@pytest.mark.parametrize(
    ("labels", "names", "encoded"),
    [
        (Y[:, None], ("0", "1", "2"), Y),
        (np.eye(3)[Y], ("0", "1", "2"), Y),
        (np.eye(3, dtype=bool)[Y], ("0", "1", "2"), Y),
        ([9, 3, 7, 9, 3, 7], ("3", "7", "9"), [2, 0, 1, 2, 0, 1]),
        ([-1, 1, 1, 1, 1, -1], ("-1", "1"), [0, 1, 1, 1, 1, 0]),
        (Y.astype(np.uint8) + 1, ("1", "2", "3"), Y),
        (Y.astype(float), ("0", "1", "2"), Y),
        (Y == 1, ("False", "True"), Y == 1),
        (["dog", "cat", "dog", "dog", "cat", "emu"], ("cat", "dog", "emu"), None),
        (np.array([b"b", b"a"] * 3), ("a", "b"), [1, 0] * 3),
        (np.array(["b", b"a"] * 3, object), ("a", "b"), [1, 0] * 3),
    ],
)
def test_labels_become_numbers(labels, names, encoded):
    data = read_arrays((X, labels))
    assert data.class_names == names
    result = data.splits["train"].labels
    assert result.dtype == np.int64
    if encoded is None:
        assert [names[i] for i in result] == labels
    else:
        np.testing.assert_array_equal(result, encoded)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1] * 6, r"^arrays: one class only \(1\); two are needed"),
        (np.full((6, 3), 0.3), r"train: labels of shape \(6, 3\) that are not one-hot"),
        (Y + 0.5, "train: the labels are not whole numbers"),
        (Y * np.nan, "train: the labels are not whole numbers"),
        (np.array([None] * 6), "train: labels of mixed types"),
        (np.array([b"\xff", b"a"] * 3), "train: the labels are not UTF-8 text"),
        (Y * 1j, "train: labels of type complex128; integers or strings"),
        (np.zeros((6, 1, 1)), r"train: labels of shape \(6, 1, 1\); \(n,\)"),
        ([], r"train: no labels; the array has shape \(0,\)"),
        ([[0], [1, 2]], "train: the labels differ in length"),
    ],
)
def test_other_labels_are_refused(labels, message):
    with pytest.raises(DataError, match=message):
        read_arrays((X, labels))


def test_labels_unknown_to_training_are_refused():
    with pytest.raises(DataError, match="test has labels that train .*: 5, 6$"):
        read_arrays(((X, Y), (X, [0, 1, 2, 5, 5, 6])))
    many = np.arange(6) + 10
    with pytest.raises(DataError, match="10, 11, 12, 13, 14 and 1 more$"):
        read_arrays(((X, Y), (X, many)))
    with pytest.raises(DataError, match="labels differ in type: {'train': 'int64'"):
        read_arrays(((X, Y), (X, list("abcabc"))))
