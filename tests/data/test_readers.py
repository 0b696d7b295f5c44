"""What is read from arrays, files, folders and names, and what is refused."""

import functools
import gzip
import io
import itertools
import pathlib
import struct
import warnings
import zipfile

import numpy as np
import pytest
from PIL import Image

from cct_keras.data.arrays import read_arrays
from cct_keras.data.arrays import read_npz
from cct_keras.data.folder import read_folder
from cct_keras.data.folder import read_headers
from cct_keras.data.folder import read_image
from cct_keras.data.folder import read_images
from cct_keras.data.idx import is_idx_folder
from cct_keras.data.idx import read_idx
from cct_keras.data.named import read_digits
from cct_keras.data.named import read_tfds
from cct_keras.data.raw import DataError

RANDOM = np.random.default_rng(0)
X = RANDOM.integers(0, 256, (6, 4, 5, 3), np.uint8)
X[0, 0, 0] = 0, 1, 255
Y = np.array([0, 1, 2, 0, 1, 2])


def train(source, **kwargs):
    return read_arrays(source, **kwargs).splits["train"]


# === Arrays ===


def test_arrays_come_back_as_they_are():
    data = read_arrays((X, Y), name="mine")
    assert data.name == "mine"
    assert data.class_names == ("0", "1", "2")
    assert data.notes == []
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
    x = RANDOM.integers(0, 256, (2500, 2, 2, 1), np.uint8)
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
        (X / 127.5 - 1, r"train: pixels from -1 to 1, .*normalisation is done for you"),
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


# === npz ===


@pytest.mark.parametrize(
    ("keys", "splits"),
    [
        (("x_train", "y_train"), ["train"]),
        (("x", "y"), ["train"]),
        (("images", "labels"), ["train"]),
        (("x", "y", "x_valid", "y_valid"), ["train", "validation"]),
        (
            ("x_train", "y_train", "x_test", "y_test", "x_validation", "y_validation"),
            ["train", "validation", "test"],
        ),
        (
            ("train_images", "train_labels", "val_images", "val_labels"),
            ["train", "validation"],
        ),
    ],
)
def test_npz(tmp_path, keys, splits):
    arrays = {key: X if "x" in key or "images" in key else Y for key in keys}
    np.savez_compressed(tmp_path / "mine.npz", **arrays)
    data = read_npz(tmp_path / "mine.npz")
    assert data.name == "mine"
    assert list(data.splits) == splits
    for split in data.splits.values():
        np.testing.assert_array_equal(split.images, X)
        np.testing.assert_array_equal(split.labels, Y)


@pytest.mark.parametrize(
    ("labels", "given", "names", "note"),
    [
        (Y, ["a", "b", "c"], ("a", "b", "c"), None),
        (Y + 1, ["a", "b", "c"], ("a", "b", "c"), None),
        (Y, list("abcde"), tuple("abcde"), "classes without training images: d, e"),
        (np.array(list("cbacba")), ["c", "b", "a"], ("a", "b", "c"), None),
    ],
)
def test_npz_with_class_names(tmp_path, labels, given, names, note):
    np.savez(tmp_path / "x.npz", x=X, y=labels, class_names=given)
    data = read_npz(str(tmp_path / "x.npz"))
    assert data.class_names == names
    assert data.notes == ([note] if note else [])


def test_npz_that_is_refused(tmp_path):
    path = tmp_path / "x.npz"

    def refuse(message, **arrays):
        if arrays:
            np.savez(path, **arrays)
        with pytest.raises(DataError, match=message) as info:
            read_npz(path)
        assert str(path) in str(info.value)
        assert "\n" not in str(info.value)

    refuse("no such file")
    found = r"\(keys found: "
    refuse(rf"{found}a, b\): no training images; x_train and y_train", a=X, b=Y)
    refuse(rf"{found}x_train\): x_train without y_train", x_train=X)
    refuse(rf"{found}y\): y without x", y=Y)
    refuse(rf"{found}x, y\): train: 6 images but 5 labels", x=X, y=Y[:5])
    refuse(rf"{found}x, y\): train: no images", x=X[:0], y=Y[:0])
    objects = np.array([{}] * 6)
    refuse(rf"{found}x, y\): y is an object array", x=X, y=objects)
    refuse("3 class names but 2", x=X, y=Y % 2 + 5, class_names=["a", "b", "c"])
    np.savez(path, x=X, y=Y)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refuse("not a complete .npz file")
    path.write_bytes(whole.replace(X.tobytes()[:50], bytes(50)))
    refuse(rf"{found}x, y\): x is broken or truncated")
    for content in (b"", b"hello", b"\x80\x04N."):
        path.write_bytes(content)
        refuse("not a complete .npz file; keys found: none")
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x", b"abc")
        file.writestr("y", b"abc")
    refuse(rf"{found}x, y\): x is not an array")
    with zipfile.ZipFile(path, "w") as file:
        pass
    refuse(rf"{found}none\): no training images")
    np.save(tmp_path / "y.npy", X)
    with pytest.raises(DataError, match="not a complete .npz file"):
        read_npz(tmp_path / "y.npy")


def test_npz_header_that_claims_too_much(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": (1 << 60,)}
    )
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        file.writestr("x.npy", header.getvalue())
        file.writestr("y.npy", header.getvalue())
    with pytest.raises(DataError, match="x is broken or truncated"):
        read_npz(tmp_path / "x.npz")


# === idx ===


def idx(array, code=8):
    header = struct.pack(">BBBB", 0, 0, code, array.ndim)
    return header + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


IMAGES = idx(X[..., 0])
LABELS = idx(Y.astype(np.uint8))


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["train-images-idx3-ubyte", "train-labels-idx1-ubyte"], ["train"]),
        (["images", "labels"], ["train"]),
        (
            [
                "train-images.idx3-ubyte",
                "train-labels.idx1-ubyte",
                "t10k-images.idx3-ubyte",
                "t10k-labels.idx1-ubyte",
            ],
            ["train", "test"],
        ),
        (
            [
                "emnist-letters-test-images-idx3-ubyte.gz",
                "emnist-letters-test-labels-idx1-ubyte.gz",
                "emnist-letters-train-images-idx3-ubyte.gz",
                "emnist-letters-train-labels-idx1-ubyte.gz",
                "emnist-letters-val-images-idx3-ubyte",
                "emnist-letters-val-labels-idx1-ubyte",
            ],
            ["train", "validation", "test"],
        ),
    ],
)
def test_idx(tmp_path, names, splits):
    (tmp_path / "readme.txt").write_text("hello")
    (tmp_path / "more.gz").write_text("hello")
    assert not is_idx_folder(tmp_path)
    for name in names:
        data = IMAGES if "images" in name else LABELS
        data = gzip.compress(data) if name.endswith(".gz") else data
        (tmp_path / name).write_bytes(data)
    assert is_idx_folder(tmp_path)
    data = read_idx(tmp_path)
    assert data.name == tmp_path.name
    assert data.class_names == ("0", "1", "2")
    assert list(data.splits) == splits
    for split in data.splits.values():
        np.testing.assert_array_equal(split.images, X[..., :1])
        np.testing.assert_array_equal(split.labels, Y)


def test_idx_of_other_types_and_shapes(tmp_path):
    (tmp_path / "train-images").write_bytes(idx(X.astype(">f4"), 0x0D))
    (tmp_path / "train-labels").write_bytes(idx((Y + 1).astype(">i4"), 0x0C))
    data = read_idx(str(tmp_path))
    np.testing.assert_array_equal(data.splits["train"].images, X)
    assert data.class_names == ("1", "2", "3")


def test_idx_takes_the_plain_file_before_the_gzipped(tmp_path):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(IMAGES)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(b"broken")
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(LABELS)
    assert len(read_idx(tmp_path).splits["train"].labels) == 6


ABSURD = b"\0\0\x08\x03" + b"\xff" * 12


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-images-idx3-ubyte", IMAGES[:-1], "truncated: its header says shape"),
        ("train-images-idx3-ubyte", IMAGES + b"x", "longer than it should be"),
        ("train-images-idx3-ubyte", IMAGES[:9], "truncated in its header"),
        ("train-images-idx3-ubyte", b"", "its magic number is wrong"),
        ("train-images-idx3-ubyte", b"<html>", "its magic number is wrong"),
        ("train-images-idx3-ubyte", ABSURD, "truncated: .*4294967295"),
        ("train-images-idx3-ubyte", b"\0\0\x08\x02" + bytes(8), "2 axes; 1 .labels"),
        ("train-images-idx3-ubyte.gz", gzip.compress(IMAGES[:-1]), "truncated: its"),
        ("train-images-idx3-ubyte.gz", gzip.compress(IMAGES + b"x"), "longer than"),
        ("train-images-idx3-ubyte.gz", gzip.compress(ABSURD), "truncated: its header"),
        ("train-images-idx3-ubyte.gz", gzip.compress(IMAGES)[:-20], "broken or trunc"),
        ("train-images-idx3-ubyte.gz", IMAGES, "broken or truncated"),
        ("train-images-idx3-ubyte.gz", gzip.compress(b"x"), "magic number is wrong"),
        ("train-images-idx3-ubyte", idx(X[:5, ..., 0]), "labels but 5 images in"),
        ("val-images-idx3-ubyte", IMAGES, "the validation labels to it are missing"),
    ],
    # gzip writes the time of day into a file, and pytest the file into a name.
    ids=itertools.count(),
)
def test_idx_that_is_refused(tmp_path, name, content, message):
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(LABELS)
    if not name.startswith("train"):
        (tmp_path / "train-images-idx3-ubyte").write_bytes(IMAGES)
    (tmp_path / name).write_bytes(content)
    assert is_idx_folder(tmp_path)
    with pytest.raises(DataError, match=message) as info:
        read_idx(tmp_path)
    assert "-ubyte" in str(info.value)


def test_idx_folders_that_are_refused(tmp_path):
    with pytest.raises(DataError, match="no idx files, such as train-images"):
        read_idx(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(LABELS)
    with pytest.raises(DataError, match="idx1-ubyte: the train images to it are miss"):
        read_idx(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").rename(tmp_path / "t10k-labels-idx1-ubyte")
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(IMAGES)
    with pytest.raises(DataError, match="no training files, found test"):
        read_idx(tmp_path)
    (tmp_path / "test-images-idx3-ubyte").write_bytes(IMAGES)
    with pytest.raises(DataError, match="a second file of test images beside t10k-im"):
        read_idx(tmp_path)
    assert not is_idx_folder(tmp_path / "missing")


# === Folders ===


def save(path, size=(8, 6), mode="RGB", color=None, **kwargs):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color or 0).save(path, **kwargs)
    return path


def luminance(color):
    return round(np.dot(color, [0.299, 0.587, 0.114]))


def test_folder_of_classes(tmp_path):
    files = ["b/2.png", "b/1.JPG", "a/deep/er/x.webp", "a/z.TIFF", "b/.hidden.png"]
    for name in [*files, ".git/x.png", "b/.cache/x.png", "__MACOSX/b/x.png"]:
        save(tmp_path / name)
    (tmp_path / "empty").mkdir()
    (tmp_path / "a" / "notes.txt").write_text("hello")
    (tmp_path / "list.csv").write_text("hello")
    data = read_folder(tmp_path)
    assert data.name == tmp_path.name
    assert data.class_names == ("a", "b")
    assert list(data.splits) == ["train"]
    split = data.splits["train"]
    assert all(isinstance(path, pathlib.Path) for path in split.images)
    assert [path.relative_to(tmp_path).as_posix() for path in split.images] == [
        "a/z.TIFF",
        "a/deep/er/x.webp",
        "b/1.JPG",
        "b/2.png",
    ]
    assert split.labels.dtype == np.int64
    assert split.labels.tolist() == [0, 0, 1, 1]
    assert data.notes == [
        "train: class folders without images: empty",
        "files that are not images were skipped: 2, such as a/notes.txt",
    ]


def test_folder_of_splits(tmp_path):
    for name in ("Training/a/1.png", "Training/b/2.png", "Valid/b/3.png"):
        save(tmp_path / name)
    for name in ("testing/loose.png", "extra/a/5.png", "cover.png"):
        save(tmp_path / name)
    data = read_folder(str(tmp_path))
    assert list(data.splits) == ["train", "validation"]
    assert data.splits["validation"].labels.tolist() == [1]
    assert data.notes == [
        "test: left out, its class folders hold no images",
        "folders beside the splits were skipped: extra",
        "images outside of class folders were skipped: 2, such as testing/loose.png",
    ]


def test_class_can_be_called_train(tmp_path):
    for name in ("train/1.png", "car/2.png", "test/3.png"):
        save(tmp_path / name)
    assert read_folder(tmp_path).class_names == ("car", "test", "train")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], r": no images; expected <folder>/<class>/\*.jpg or"),
        (["1.png", "2.png"], r": images but no class folders; expected <folder>/<cl"),
        (["train/1.png", "test/2.png"], r"train: images but no class folders; expec"),
        (["a/1.png"], r": one class only \(a\); expected <folder>/<class>/\*.jpg"),
        (["set/a/1.png", "set/b/1.png"], r"one class only \(set\).*; or is .*set mea"),
        (["test/a/1.png", "val/b/1.png"], r": no train folder beside .*; expected"),
        (["train/a/1.png", "Train/b/1.png"], r"two folders for the train split: Train"),
        (["val/a/1.png", "valid/b/1.png"], r"two folders for the validation split: "),
        (
            ["train/a/1.png", "train/b/1.png", "test/c/1.png", "test/a/1.png"],
            r"test: classes without training images: c$",
        ),
    ],
)
def test_folders_that_are_refused(tmp_path, files, message):
    for name in files:
        save(tmp_path / name)
    with pytest.raises(DataError, match=message):
        read_folder(tmp_path)


def test_folder_that_is_missing(tmp_path):
    with pytest.raises(DataError, match="missing: no such folder"):
        read_folder(tmp_path / "missing")


# === Image files ===


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "bmp", "gif", "tif"])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_formats(tmp_path, suffix, mode):
    color = 200 if mode == "L" else (200, 100, 50)
    path = save(tmp_path / f"x.{suffix}", mode=mode, color=color)
    pixels = read_image(path)
    assert pixels.dtype == np.uint8
    assert pixels.shape == (6, 8, 3)
    assert np.abs(pixels[0, 0] - np.int64(color)).max() <= 6
    gray = read_image(path, 1)
    assert gray.shape == (6, 8, 1)
    assert abs(int(gray[0, 0, 0]) - (200 if mode == "L" else 124)) <= 6
    # WebP has no gray mode.
    expected = 1 if mode == "L" and suffix != "webp" else 3
    assert read_image(path, None).shape[2] == expected
    sizes, channels, broken = read_headers([path])
    assert (sizes.tolist(), channels.tolist(), broken) == ([[6, 8]], [expected], {})


@pytest.mark.parametrize(
    ("mode", "color", "expected", "channels"),
    [
        ("RGBA", (10, 20, 30, 0), (255, 255, 255), 3),
        ("RGBA", (10, 20, 30, 255), (10, 20, 30), 3),
        ("RGBA", (0, 0, 0, 51), (204, 204, 204), 3),
        ("LA", (10, 0), (255, 255, 255), 1),
        ("LA", (10, 255), (10, 10, 10), 1),
        ("1", 1, (255, 255, 255), 1),
        ("I;16", 65535, (255, 255, 255), 1),
        ("I;16", 257 * 100, (100, 100, 100), 1),
        ("I;16", 300, (1, 1, 1), 1),
    ],
)
def test_modes(tmp_path, mode, color, expected, channels):
    path = save(tmp_path / "x.png", mode=mode, color=color)
    assert tuple(read_image(path)[3, 3].tolist()) == expected
    assert read_image(path, None).shape == (6, 8, channels)
    assert read_image(path, 1)[3, 3].tolist() == [luminance(expected)]
    assert read_headers([path])[1].tolist() == [channels]


def test_palettes(tmp_path):
    image = Image.new("P", (4, 2), 1)
    image.putpalette([0, 0, 0, 10, 20, 30, 40, 50, 60])
    image.putpixel((0, 0), 2)
    image.save(tmp_path / "x.png")
    pixels = read_image(tmp_path / "x.png")
    assert pixels[0, :2].tolist() == [[40, 50, 60], [10, 20, 30]]
    assert read_image(tmp_path / "x.png", None).shape[2] == 3
    image.putpalette([0, 0, 0, 10, 10, 10, 60, 60, 60])
    image.save(tmp_path / "gray.png")
    assert read_image(tmp_path / "gray.png", None)[0, :2].tolist() == [[60], [10]]
    assert read_headers([tmp_path / "gray.png"])[1].tolist() == [1]
    image.putpalette([0, 0, 0, 10, 20, 30, 40, 50, 60])
    for transparency in (1, bytes([255, 0, 255])):
        image.save(tmp_path / "x.png", transparency=transparency)
        pixels = read_image(tmp_path / "x.png", None)
        assert pixels[0, :2].tolist() == [[40, 50, 60], [255, 255, 255]]


def test_transparent_color(tmp_path):
    path = save(tmp_path / "x.png", color=(1, 2, 3), transparency=(1, 2, 3))
    assert (read_image(path) == 255).all()
    path = save(tmp_path / "y.png", mode="L", color=7, transparency=7)
    assert (read_image(path, None) == 255).all()


def test_cmyk(tmp_path):
    for name in ("x.jpg", "x.tif"):
        path = save(tmp_path / name, mode="CMYK", color=(0, 255, 255, 0))
        pixels = read_image(path).astype(int)
        assert np.abs(pixels - [255, 0, 0]).max() <= 4


def test_32_bit_pixels_are_refused(tmp_path):
    for mode, color in (("F", 0.5), ("I", 1 << 20)):
        path = save(tmp_path / f"{mode}.tif", mode=mode, color=color)
        with pytest.raises(DataError, match=r"\.tif: gray pixels of 32 bits; 8 or 16"):
            read_image(path)


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
def test_orientation(tmp_path, suffix):
    upright = np.zeros((16, 32, 3), np.uint8)
    upright[:8, :8] = 255
    # How a camera stores the picture, by the value of its tag.
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, -1),
        9: upright,
    }
    for value, pixels in stored.items():
        exif = Image.Exif()
        exif[0x0112] = value
        path = tmp_path / f"{value}.{suffix}"
        Image.fromarray(np.ascontiguousarray(pixels)).save(path, exif=exif)
        result = read_image(path)
        assert result.shape == upright.shape
        assert np.abs(result.astype(int) - upright).mean() < 8
        assert read_image(path, shrink=8).shape == (8, 16, 3)
        assert read_headers([path])[0].tolist() == [[16, 32]]


def test_corrupt_exif_is_no_reason_to_refuse(tmp_path):
    for number, data in enumerate(
        (
            b"Exif\0\0garbage",
            b"Exif\0\0MM\0*\0\0\0\x08\0\x05\x01\x12\0\x05\xff\xff\xff\xff\0\0\0\1",
            b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x02\0\xff\0\0\0\x08\0\0\0",
        )
    ):
        path = save(tmp_path / f"{number}.jpg", exif=data)
        assert read_image(path).shape == (6, 8, 3)
        assert read_headers([path])[2] == {}


def test_warnings_of_others_are_not_silenced(tmp_path):
    read_image(save(tmp_path / "x.png"))
    with pytest.warns(UserWarning, match="mine"):
        warnings.warn("mine", stacklevel=1)
    before = list(warnings.filters)
    read_image(tmp_path / "x.png")
    assert warnings.filters == before


def test_shrink(tmp_path):
    gradient = np.linspace(0, 255, 400)[None, :, None] * np.ones((300, 1, 3))
    for name in ("x.jpg", "x.png"):
        path = tmp_path / name
        Image.fromarray(gradient.astype(np.uint8)).save(path)
        assert read_image(path, shrink=300).shape == (300, 400, 3)
        assert read_image(path, shrink=301).shape == (300, 400, 3)
        small = read_image(path, shrink=60)
        assert small.shape == (60, 80, 3)
        expected = gradient.reshape(60, 5, 80, 5, 3).mean(axis=(1, 3))
        assert np.abs(small - expected).max() < 4
        assert read_image(path, 1, shrink=1).shape == (1, 1, 1)
    thin = save(tmp_path / "thin.png", size=(2, 999))
    assert read_image(thin, shrink=1).shape[1] == 1
    with pytest.raises(ValueError, match="shrink must be positive, got 0"):
        read_image(thin, shrink=0)
    with pytest.raises(ValueError, match="channels must be 1, 3 or None, got 4"):
        read_image(thin, 4)


@pytest.fixture
def broken_files(tmp_path, monkeypatch):
    noise = Image.fromarray(RANDOM.integers(0, 256, (64, 64, 3), np.uint8))
    files = {}
    for suffix in ("jpg", "png", "webp", "bmp", "gif", "tif"):
        path = tmp_path / f"half.{suffix}"
        noise.save(path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        files[path] = "."
    (tmp_path / "empty.jpg").write_bytes(b"")
    files[tmp_path / "empty.jpg"] = "^empty file$"
    (tmp_path / "text.jpg").write_text("hello")
    files[tmp_path / "text.jpg"] = "^not one of JPEG, PNG, WEBP, BMP, GIF, TIFF$"
    noise.save(tmp_path / "script.eps")
    (tmp_path / "script.eps").rename(tmp_path / "script.jpg")
    files[tmp_path / "script.jpg"] = "^not one of JPEG"
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100_000)
    files[save(tmp_path / "bomb.png", size=(500, 500))] = "decompression bomb"
    files[tmp_path / "missing.jpg"] = "^no such file$"
    return files


def test_broken_files_are_named(broken_files, tmp_path):
    good = [save(tmp_path / "good.png"), save(tmp_path / "large.png", (300, 400))]
    paths = [good[0], *broken_files, good[1]]
    read = functools.partial(read_image, channels=1, shrink=6)
    images, broken = read_images(paths, read)
    assert images[0].shape == (6, 8, 1)
    assert images[-1].shape == (8, 6, 1)
    assert images[1:-1] == [None] * len(broken_files)
    assert list(broken) == list(broken_files)
    for path, reason in broken.items():
        with pytest.raises(DataError, match=broken_files[path]):
            raise DataError(reason)
        with pytest.raises(DataError) as info:
            read_image(path)
        assert str(info.value).startswith(f"{path}: ")
        assert "\n" not in str(info.value)
    sizes, channels, broken = read_headers(paths)
    assert sizes[[0, -1]].tolist() == [[6, 8], [400, 300]]
    assert channels[[0, -1]].tolist() == [3, 3]
    for name in ("empty.jpg", "text.jpg", "script.jpg", "bomb.png", "missing.jpg"):
        assert tmp_path / name in broken
        assert sizes[paths.index(tmp_path / name)].tolist() == [0, 0]


def test_many_files_keep_their_order(tmp_path):
    paths = [save(tmp_path / f"{i}.png", size=(i + 1, 3)) for i in range(40)]
    images, broken = read_images(paths, read_image)
    assert [image.shape[1] for image in images] == list(range(1, 41))
    assert broken == {}
    sizes, _, _ = read_headers(iter(paths))
    assert sizes[:, 1].tolist() == list(range(1, 41))
    sizes, channels, broken = read_headers([])
    assert (sizes.shape, channels.shape, broken) == ((0, 2), (0,), {})


def test_errors_of_the_program_are_not_hidden(tmp_path):
    path = save(tmp_path / "x.png")
    with pytest.raises(ValueError, match="channels must be"):
        read_images([path], functools.partial(read_image, channels=2))


# === By name ===


def test_digits():
    data = read_digits()
    assert data.name == "digits"
    assert data.class_names == tuple("0123456789")
    assert data.splits["train"].images.shape == (1437, 8, 8, 1)
    assert data.splits["test"].images.shape == (360, 8, 8, 1)
    again = read_digits()
    for name, split in data.splits.items():
        assert split.images.dtype == np.uint8
        assert (split.images.min(), split.images.max()) == (0, 255)
        assert split.labels.dtype == np.int64
        assert np.bincount(split.labels).min() > 0.09 * len(split.labels)
        np.testing.assert_array_equal(split.images, again.splits[name].images)


@pytest.fixture(scope="module")
def tfds():
    return pytest.importorskip("tensorflow_datasets")


def make_builder(
    tfds, class_name, *, shape=(4, 5, 3), splits=("train", "test"), version="1.0.0", **f
):
    """A builder class that tfds knows by name."""
    features = {
        "image": tfds.features.Image(shape=shape),
        "label": tfds.features.ClassLabel(names=["cat", "dog"]),
        **f,
    }

    class Tiny(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version(version)
        pkg_dir_path = pathlib.Path(__file__).parent
        name = class_name

        def _info(self):
            return self.dataset_info_from_configs(
                features=tfds.features.FeaturesDict(features),
                supervised_keys=("image", "label"),
            )

        def _split_generators(self, dl_manager):
            return {split: self._generate_examples(split) for split in splits}

        def _generate_examples(self, split):
            for i, (image, label) in enumerate(examples(shape, split)):
                example = {"image": image, "label": label}
                yield i, example | {key: 0 for key in f}

    return Tiny


def examples(shape, split):
    for i in range(6):
        height, width = (shape[0] or 4 + i), (shape[1] or 5 + i)
        pixels = np.full((height, width, shape[2]), 40 * i, np.uint8)
        yield pixels, -1 if split == "test" and i == 5 else i % 2


def register(monkeypatch, tfds, builder_class):
    registry = tfds.core.registered._DATASET_REGISTRY
    monkeypatch.setitem(registry, builder_class.name, builder_class)


def prepare(builder_class, data_dir):
    builder_class(data_dir=data_dir).download_and_prepare()


def check_tiny(data, name):
    assert data.name == name
    assert data.class_names == ("cat", "dog")
    assert list(data.splits) == ["train", "test"]
    images, labels = data.splits["train"].images, data.splits["train"].labels
    assert images.dtype == np.uint8
    assert images.shape == (6, 4, 5, 3)
    assert labels.dtype == np.int64
    assert (images[:, 0, 0, 0] // 40 % 2 == labels).all()
    assert sorted(images[:, 0, 0, 0].tolist()) == [0, 40, 80, 120, 160, 200]
    assert len(data.splits["test"].labels) == len(data.splits["test"].images) == 5
    assert data.notes[-1] == "test: 1 images without a label were left out"


def test_tfds_prepared_and_by_code(tfds, tmp_path, monkeypatch, capfd):
    builder_class = make_builder(tfds, "tiny_by_code")
    register(monkeypatch, tfds, builder_class)
    check_tiny(read_tfds("tiny_by_code", tmp_path), "tiny_by_code")

    def fail(self, **kwargs):
        raise AssertionError("it is prepared already")

    monkeypatch.setattr(builder_class, "download_and_prepare", fail)
    capfd.readouterr()
    check_tiny(read_tfds("tiny_by_code", str(tmp_path)), "tiny_by_code")
    assert capfd.readouterr().err == ""
    parts = {"train": "train[:4]", "validation": "train[4:]"}
    data = read_tfds("tiny_by_code", tmp_path, splits=parts)
    assert [len(split.labels) for split in data.splits.values()] == [4, 2]

    newer = make_builder(tfds, "tiny_by_code", version="2.0.0")
    monkeypatch.setattr(newer, "download_and_prepare", fail)
    register(monkeypatch, tfds, newer)
    data = read_tfds("tiny_by_code", tmp_path)
    check_tiny(data, "tiny_by_code")
    assert "version 1.0.0 was read, as 2.0.0 is not prepared" in data.notes[0]


def test_tfds_without_code(tfds, tmp_path):
    prepare(make_builder(tfds, "tiny_file"), tmp_path)
    check_tiny(read_tfds("tiny_file", tmp_path), "tiny_file")
    check_tiny(read_tfds("tiny_file:1.0.0", tmp_path), "tiny_file:1.0.0")
    with pytest.raises(DataError, match="tiny_file:9.0.0: .*no such set"):
        read_tfds("tiny_file:9.0.0", tmp_path)
    (tmp_path / "tiny_file" / "1.0.0" / "features.json").write_text("{")
    with pytest.raises(DataError, match="tiny_file: the copy in .* is broken: "):
        read_tfds("tiny_file", tmp_path)


def test_tfds_of_differing_sizes(tfds, tmp_path, monkeypatch):
    """Photographs stay files: taken out once, read in any order ever after."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    prepare(make_builder(tfds, "tiny_sizes", shape=(None, None, 1)), tmp_path)
    data = read_tfds("tiny_sizes", tmp_path)
    train = data.splits["train"]
    assert len(data.splits["test"].images) == 5
    pixels = [read_image(path, None) for path in train.images]
    assert sorted(image.shape for image in pixels)[0] == (4, 5, 1)
    for image, label in zip(pixels, train.labels, strict=True):
        assert image[0, 0, 0] // 40 % 2 == label
    stamps = [path.stat().st_mtime_ns for path in train.images]
    again = read_tfds("tiny_sizes", tmp_path).splits["train"].images
    assert [path.stat().st_mtime_ns for path in again] == stamps


def test_tfds_that_does_not_fit_in_memory(tfds, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("cct_keras.data.named.memory_budget", lambda: 100)
    prepare(make_builder(tfds, "tiny_large", splits=["train"]), tmp_path)
    split = read_tfds("tiny_large", tmp_path).splits["train"]
    assert [read_image(path).shape for path in split.images] == [(4, 5, 3)] * 6


def test_tfds_refusals_at_reading(tfds, tmp_path):
    prepare(make_builder(tfds, "tiny_odd", splits=["train"]), tmp_path)
    assert list(read_tfds("tiny_odd", tmp_path).splits) == ["train"]
    with pytest.raises(DataError, match="tiny_odd: nope cannot be read: "):
        read_tfds("tiny_odd", tmp_path, splits={"train": "nope"})
    with pytest.raises(DataError, match="splits must map train.* to some of train; "):
        read_tfds("tiny_odd", tmp_path, splits={"test": "train"})
    with pytest.raises(DataError, match="splits must map train, .*'dev'"):
        read_tfds("tiny_odd", tmp_path, splits={"train": "train", "dev": "train"})
    with pytest.raises(
        DataError, match=r"tiny_odd: train\[:0\] cannot be read: .*no d"
    ):
        read_tfds("tiny_odd", tmp_path, splits={"train": "train[:0]"})
    [record] = (tmp_path / "tiny_odd").rglob("*.tfrecord*")
    record.write_bytes(record.read_bytes()[:-30])
    with pytest.raises(DataError, match="tiny_odd: train cannot be read: "):
        read_tfds("tiny_odd", tmp_path)


def test_tfds_without_a_training_split(tfds, tmp_path):
    prepare(make_builder(tfds, "tiny_late", splits=["full"]), tmp_path)
    with pytest.raises(DataError, match="tiny_late: splits must map train.*of full;"):
        read_tfds("tiny_late", tmp_path)
    data = read_tfds("tiny_late", tmp_path, splits={"train": "full"})
    assert len(data.splits["train"].labels) == 6


def test_tfds_with_several_labels_takes_the_supervised(tfds, tmp_path):
    coarse = tfds.features.ClassLabel(num_classes=3)
    prepare(make_builder(tfds, "tiny_hundred", coarse=coarse), tmp_path)
    check_tiny(read_tfds("tiny_hundred", tmp_path), "tiny_hundred")


def test_tfds_features_are_checked_before_a_download(tfds, tmp_path, monkeypatch):
    number = tfds.features.Scalar(np.int64)
    register(monkeypatch, tfds, make_builder(tfds, "tiny_plain", label=number))
    with pytest.raises(DataError, match=r"tiny_plain: one Image .*label \(Scalar\)"):
        read_tfds("tiny_plain", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_tfds_that_cannot_be_downloaded(tfds, tmp_path, monkeypatch):
    builder_class = make_builder(tfds, "tiny_remote")

    def download(self, dl_manager):
        dl_manager.download("http://127.0.0.1:9/tiny.zip")

    # Its ten attempts take more than three minutes.
    downloader = "tensorflow_datasets.core.download.downloader"
    monkeypatch.setattr(f"{downloader}.MAX_RETRIES", 0)
    monkeypatch.setattr(builder_class, "_split_generators", download)
    register(monkeypatch, tfds, builder_class)
    with pytest.raises(DataError, match="tiny_remote: cannot be downloaded") as info:
        read_tfds("tiny_remote", tmp_path)
    assert "pass as data_dir a folder" in str(info.value)
    assert "Max retries exceeded" in str(info.value)
    assert "tiny_remote/1.0.0" in str(info.value)
    assert "\n" not in str(info.value)


def test_tfds_names_that_are_unknown(tfds, tmp_path):
    with pytest.raises(DataError, match="cifar11: .*near matches: cifar10"):
        read_tfds("cifar11", tmp_path)
    for name in ("", "qqqqqqqq", "/", "a:b:c", "../x"):
        with pytest.raises(DataError, match="no such set in TensorFlow Datasets"):
            read_tfds(name, tmp_path)
    with pytest.raises(DataError, match="^emnist/nope: ") as info:
        read_tfds("emnist/nope", tmp_path)
    assert "\n" not in str(info.value)
