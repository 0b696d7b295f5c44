"""Which .npz files are read, and which are refused."""

import io
import zipfile

import numpy as np
import pytest
from reader_samples import X
from reader_samples import Y

from cct_keras.data.readers.npz import read_npz
from cct_keras.errors import DataError


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
    assert data.notes == ((note,) if note else ())


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
