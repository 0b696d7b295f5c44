"""Which data sets of TensorFlow Datasets are read, and which are refused."""

import numpy as np
import pytest
from tiny_builders import make_builder
from tiny_builders import prepare
from tiny_builders import register

from cct_keras.data.readers.tfds import read_tfds
from cct_keras.errors import DataError
from cct_keras.runtime.image_files import read_image


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
    with pytest.raises(DataError, match="tiny_file:9.0.0: .*no such data set"):
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
    monkeypatch.setattr("cct_keras.data.readers.tfds.memory_budget", lambda: 100)
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
    assert "give as `data_dir=` a folder" in str(info.value)
    assert "Max retries exceeded" in str(info.value)
    assert "tiny_remote/1.0.0" in str(info.value)
    assert "\n" not in str(info.value)


def test_tfds_names_that_are_unknown(tfds, tmp_path):
    with pytest.raises(DataError, match="cifar11: .*Did you mean: cifar10"):
        read_tfds("cifar11", tmp_path)
    for name in ("", "qqqqqqqq", "/", "a:b:c", "../x"):
        with pytest.raises(DataError, match="no such data set in TensorFlow Datasets"):
            read_tfds(name, tmp_path)
    with pytest.raises(DataError, match="^emnist/nope: ") as info:
        read_tfds("emnist/nope", tmp_path)
    assert "\n" not in str(info.value)
