"""Arrays in an .npz file."""

import os
import pathlib
import zipfile
import zlib

import numpy as np

from cct_keras.data.raw import RawData
from cct_keras.data.readers.pairs import data_from_pairs
from cct_keras.data.readers.pairs import find_pairs
from cct_keras.errors import DataError

MEMBER_ERRORS = (
    ValueError,
    OSError,
    EOFError,
    MemoryError,
    RuntimeError,  # zipfile raises it for encrypted members.
    zipfile.BadZipFile,
    zlib.error,
)


def is_npz_file(source) -> bool:
    """Whether a source is a file with the suffix .npz."""
    return (
        isinstance(source, pathlib.Path)
        and source.suffix == ".npz"
        and source.is_file()
    )


def read_npz(path: str | os.PathLike) -> RawData:
    """Reads a data set from an .npz file.

    Args:
        path: File with the keys of `read_arrays`, or `x` and `y`, or `images` and
            `labels`, or `train_images`, `train_labels` and so on as in MedMNIST.

    Example:

    >>> read_npz("pneumoniamnist.npz")  # Needs the files.  # doctest: +SKIP
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path}: not a complete .npz file; keys found: none")
    try:
        with np.load(path, allow_pickle=False) as file:
            where = f"{path} (keys found: {', '.join(file.files) or 'none'})"
            members = _Members(file, where)
            pairs = find_pairs(members, where=where)
            class_names = None
            if "class_names" in members:
                class_names = members["class_names"]
    except zipfile.BadZipFile as error:
        raise DataError(f"{path}: not a complete .npz file: {error}") from error
    return data_from_pairs(pairs, name=path.stem, where=where, class_names=class_names)


class _Members:
    """The arrays of an .npz file; the error for one that cannot be read names it."""

    def __init__(self, file, where):
        self.file = file
        self.where = where

    def __contains__(self, key):
        return key in self.file.files

    def __getitem__(self, key):
        try:
            array = self.file[key]
        except MEMBER_ERRORS as error:
            if "allow_pickle" in str(error):
                reason = "an object array; numbers or strings are expected"
            else:
                reason = "broken or truncated"
            raise DataError(f"{self.where}: {key} is {reason}") from error
        if not isinstance(array, np.ndarray):
            raise DataError(f"{self.where}: {key} is not an array")
        return array
