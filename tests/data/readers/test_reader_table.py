"""A reader is a file and a row."""

import numpy as np
import pytest
from reader_samples import X
from reader_samples import Y

import cct_keras
from cct_keras.data.readers import table
from cct_keras.data.readers.arrays import read_arrays
from cct_keras.errors import DataError


def test_which_reader_reads_which_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in ("photos", "mnist", "cifar10"):
        (tmp_path / folder).mkdir()
    (tmp_path / "mnist/train-labels-idx1-ubyte").touch()
    (tmp_path / "set.npz").touch()
    expected = {
        "photos": "folder of image files",
        tmp_path / "photos": "folder of image files",
        "~/photos": "folder of image files",
        "mnist": "folder of idx files",
        "set.npz": ".npz file",
        "digits": "digits",
        "cifar100": "tensorflow-datasets",
        "emnist/letters:3.1.0": "tensorflow-datasets",
        # A folder comes before a data set of the same name.
        "cifar10": "folder of image files",
    }
    found = {source: table.find_reader(source).name for source in expected}
    assert found == expected
    assert table.find_reader((X, Y)).name == "arrays"
    assert table.find_reader({}).name == "arrays"
    assert table.find_reader("no/such/folder/here") is None


def test_every_reader_returns_its_known_row():
    assert table.read_source("digits").known.image_size == 16
    assert table.read_source((X, Y)).known is None


def test_a_new_reader_is_a_row(tmp_path, monkeypatch):
    """Images and labels in a text file: ten lines, and `load_data` reads it."""

    def is_text(source):
        return getattr(source, "suffix", None) == ".csv"

    def read_text(path):
        rows = np.loadtxt(path, delimiter=",", dtype="uint8")
        return read_arrays((rows[:, 1:].reshape(-1, 4, 4), rows[:, 0]), name=path.stem)

    rows = np.random.default_rng(0).integers(0, 256, (40, 17))
    rows[:, 0] = np.arange(40) % 2
    np.savetxt(tmp_path / "mine.csv", rows, "%d", ",")
    with pytest.raises(DataError, match="this is another file"):
        cct_keras.load_data(tmp_path / "mine.csv")
    row = table.Reader("text", is_text, read_text)
    monkeypatch.setattr(table, "READERS", (*table.READERS, row))
    data = cct_keras.load_data(tmp_path / "mine.csv")
    assert data.name == "mine"
    assert data.input_shape == (4, 4, 1)


def test_sources_that_nobody_reads(tmp_path):
    with pytest.raises(DataError, match="no such file or folder: no/such/folder/here"):
        table.read_source("no/such/folder/here")
    (tmp_path / "x.txt").touch()
    with pytest.raises(DataError, match=r"x\.txt: a data set is a folder, an .npz"):
        table.read_source(tmp_path / "x.txt")
