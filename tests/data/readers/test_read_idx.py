"""Which idx files are read, and which are refused."""

import gzip
import itertools
import struct

import numpy as np
import pytest
from reader_samples import X
from reader_samples import Y

from cct_keras.data.readers.idx import is_idx_folder
from cct_keras.data.readers.idx import read_idx
from cct_keras.errors import DataError


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
        (
            "val-images-idx3-ubyte",
            IMAGES,
            "the validation labels that belong to it are",
        ),
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
    with pytest.raises(DataError, match="idx1-ubyte: the train images that belong to"):
        read_idx(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").rename(tmp_path / "t10k-labels-idx1-ubyte")
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(IMAGES)
    with pytest.raises(DataError, match="no training files, found test"):
        read_idx(tmp_path)
    (tmp_path / "test-images-idx3-ubyte").write_bytes(IMAGES)
    with pytest.raises(DataError, match="a second file of test images beside t10k-im"):
        read_idx(tmp_path)
    assert not is_idx_folder(tmp_path / "missing")
