"""Which folders of images are read, and which are refused."""

import pathlib

import numpy as np
import pytest
from PIL import Image

from cct_keras.data.readers.folder import read_folder
from cct_keras.errors import DataError


def save(path, size=(8, 6), mode="RGB", color=None, **kwargs):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color or 0).save(path, **kwargs)
    return path


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
    assert data.notes == (
        "train: class folders without images: empty",
        "files that are not images were skipped: 2, such as a/notes.txt",
    )


def test_folder_of_splits(tmp_path):
    for name in ("Training/a/1.png", "Training/b/2.png", "Valid/b/3.png"):
        save(tmp_path / name)
    for name in ("testing/loose.png", "extra/a/5.png", "cover.png"):
        save(tmp_path / name)
    data = read_folder(str(tmp_path))
    assert list(data.splits) == ["train", "validation"]
    assert data.splits["validation"].labels.tolist() == [1]
    assert data.notes == (
        "test: left out, its class folders hold no images",
        "folders beside the splits were skipped: extra",
        "images outside of class folders were skipped: 2, such as testing/loose.png",
    )


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
