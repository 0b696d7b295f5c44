"""The idx format of MNIST and its relatives, plain or gzipped."""

import gzip
import math
import os
import pathlib
import re
import struct
import zlib

import numpy as np

from cct_keras.data.raw import RawData
from cct_keras.data.readers.pairs import data_from_pairs
from cct_keras.errors import DataError

DTYPES = {
    0x08: np.dtype("u1"),
    0x09: np.dtype("i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}
AXES = (1, 3, 4)
NAMED_IDX = re.compile(r"idx\d?[-_.]?ubyte|-ubyte", re.IGNORECASE)
# The first word that is found counts: 'medieval-train' is a training file.
SPLIT_WORDS = {
    "train": "train",
    "t10k": "test",
    "test": "test",
    "val": "validation",
}
# The highest ratio that the deflate algorithm can compress by.
GZIP_RATIO = 1032
CHUNK = 1 << 20
GZIP_ERRORS = (OSError, EOFError, zlib.error)


def is_idx_folder(source) -> bool:
    """Whether a source is a folder with idx files, by their names or first bytes."""
    return (
        isinstance(source, pathlib.Path)
        and source.is_dir()
        and any(_candidates(source))
    )


def read_idx(folder: str | os.PathLike) -> RawData:
    """Reads a data set from a folder of idx files.

    Args:
        folder: Folder with a file of images and a file of labels for each split.
            The split is found in the names of the files: train, t10k or test, val.
            Files without such a word hold the training images and labels.

    Example:

    >>> read_idx("~/data/mnist")  # Needs the files.  # doctest: +SKIP
    """
    folder = pathlib.Path(folder)
    pairs = _match_files(folder, _read_files(folder))
    return data_from_pairs(
        {
            split: tuple(array for _, array in pairs[split])
            for split in ("train", "validation", "test")
            if split in pairs
        },
        name=folder.resolve().name,
        where=str(folder),
    )


def _read_files(folder):
    """Reads path and array of each file, by split and kind."""
    files = {}
    for path in _candidates(folder):
        array = _read_file(path)
        kind = "labels" if array.ndim == 1 else "images"
        key = _split_of(path), kind
        if key in files:
            raise DataError(
                f"{path}: a second file of {key[0]} {kind} beside "
                f"{files[key][0].name}; keep one set in the folder"
            )
        files[key] = path, array
    if not files:
        raise DataError(f"{folder}: no idx files, such as train-images-idx3-ubyte.gz")
    return files


def _match_files(folder, files):
    """Finds the images and the labels of each split, each as path and array."""
    pairs = {}
    for split, kind in files:
        partner = "labels" if kind == "images" else "images"
        if (split, partner) not in files:
            path = files[split, kind][0]
            raise DataError(
                f"{path}: the {split} {partner} that belong to it are missing"
            )
        pairs[split] = files[split, "images"], files[split, "labels"]
    if "train" not in pairs:
        raise DataError(f"{folder}: no training files, found {', '.join(pairs)}")
    for (image_path, images), (label_path, labels) in pairs.values():
        if len(images) != len(labels):
            raise DataError(
                f"{label_path}: {len(labels)} labels but {len(images)} images in "
                f"{image_path.name}"
            )
    return pairs


def _candidates(folder):
    paths = [p for p in folder.iterdir() if p.is_file() and p.name[0] != "."]
    names = {path.name for path in paths}
    for path in sorted(paths):
        if path.suffix == ".gz" and path.stem in names:
            continue
        if NAMED_IDX.search(path.name) or _has_magic(path):
            yield path


def _has_magic(path):
    try:
        with _open(path) as file:
            magic = _parse_magic(file.read(4))
    except GZIP_ERRORS:
        return False
    return magic is not None and magic[1] in AXES


def _parse_magic(start):
    """Type and number of axes of the array; None if these are not idx bytes."""
    if len(start) == 4 and start[:2] == b"\0\0" and start[2] in DTYPES:
        return DTYPES[start[2]], start[3]
    return None


def _open(path):
    return gzip.open(path) if path.suffix == ".gz" else open(path, "rb")


def _split_of(path):
    name = path.name.lower()
    return next((s for word, s in SPLIT_WORDS.items() if word in name), "train")


def _read_file(path):
    try:
        with _open(path) as file:
            magic = _parse_magic(file.read(4))
            if magic is None:
                raise DataError(f"{path}: not an idx file; its magic number is wrong")
            dtype, axes = magic
            if axes not in AXES:
                raise DataError(
                    f"{path}: {axes} axes; 1 (labels) or 3, 4 (images) expected"
                )
            header = file.read(4 * axes)
            if len(header) < 4 * axes:
                raise DataError(f"{path}: truncated in its header")
            shape = struct.unpack(f">{axes}I", header)
            size = math.prod(shape) * dtype.itemsize
            return _read_array(path, file, dtype, shape, size)
    except GZIP_ERRORS as error:
        raise DataError(f"{path}: broken or truncated: {error}") from error


def _read_array(path, file, dtype, shape, size):
    # A header can claim any size: no more is allocated than the file can fill.
    stored = path.stat().st_size
    limit = GZIP_RATIO * stored if path.suffix == ".gz" else stored
    if size > limit:
        raise DataError(f"{path}: truncated: its header says shape {shape}")
    data = bytearray()
    while len(data) <= size:
        chunk = file.read(min(CHUNK, size + 1 - len(data)))
        if not chunk:
            break
        data += chunk
    if len(data) != size:
        fault = "truncated" if len(data) < size else "longer than it should be"
        raise DataError(f"{path}: {fault}: its header says shape {shape}")
    return np.frombuffer(data, dtype).reshape(shape)
