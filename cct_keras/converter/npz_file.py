"""Reads `.npz` files of arrays, without running the pickles that they may hold."""

import io
import math
import re
import zipfile

import numpy as np

from cct_keras.converter.allowance import Allowance
from cct_keras.converter.torch_file import read_entry
from cct_keras.errors import CheckpointError

MAX_RANK = 8
LARGEST_NUMBER = 2**48
# The header of an array is a line of text: a mapping of Python with three entries, of
# which only the plainest values are read. What follows its version tells its length.
LONGEST_HEADER = 10_000
LENGTHS = {(1, 0): 2, (2, 0): 4, (3, 0): 4}
DTYPE = re.compile(r"'descr':\s*'([<>|=]?[a-zA-Z]\d{0,9})'")
ORDER = re.compile(r"'fortran_order':\s*(True|False)")
# Python 2 wrote an L after long numbers.
SHAPE = re.compile(r"'shape':\s*\(((?:[0-9]{1,15}L?,\s*)*(?:[0-9]{1,15}L?)?)\)")


def read_npz(
    file, archive: zipfile.ZipFile, names: list[str], allowance: Allowance
) -> dict[str, np.ndarray]:
    """The arrays of an archive by their names.

    Args:
        file: The open file behind `archive`.
        archive: The zip file.
        names: Its members, all of which end in `.npy`.
        allowance: What reading it may take.
    """
    return {
        name.removesuffix(".npy"): _read_array(
            read_entry(file, archive, name, allowance), name
        )
        for name in names
    }


def _read_array(data, name):
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
    except ValueError as error:
        raise CheckpointError(f"{name} is no array of NumPy: {error}") from error
    if version not in LENGTHS:
        raise CheckpointError(f"{name} is no array of NumPy that this package reads")
    size = int.from_bytes(stream.read(LENGTHS[version]), "little")
    if size > LONGEST_HEADER:
        raise CheckpointError(f"{name} has a header of {size} bytes")
    header = stream.read(size).decode("latin1")
    descr, order, sides = (x.search(header) for x in (DTYPE, ORDER, SHAPE))
    if not descr or not order:
        raise CheckpointError(f"{name} is no array of plain numbers")
    try:
        dtype = np.dtype(descr[1])
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{name} is no array of NumPy: {error}") from error
    if dtype.hasobject:
        raise CheckpointError(f"refused: {name} is a pickle; nothing was run")
    if not dtype.itemsize:
        raise CheckpointError(f"{name} is no array of plain numbers")
    shape = sides and tuple(int(side) for side in re.findall(r"\d+", sides[1]))
    is_possible = sides and len(shape) <= MAX_RANK
    if not is_possible or math.prod(filter(None, shape)) >= LARGEST_NUMBER:
        raise CheckpointError(f"{name} has an impossible shape")
    count = math.prod(shape)
    if count * dtype.itemsize > len(data) - stream.tell():
        raise CheckpointError(f"truncated: {name} is shorter than it declares")
    flat = np.frombuffer(data, dtype, count, offset=stream.tell())
    return flat.reshape(shape, order="F" if order[1] == "True" else "C")
