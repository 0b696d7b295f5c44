"""Reads `.npz` files of arrays, without running the pickles that they may hold."""

import ast
import io
import math
import zipfile

import numpy as np

from cct_keras.converter.torch_file import read_entry
from cct_keras.errors import CheckpointError

MAX_RANK = 8
# The header of an array is a line of text.
LONGEST_HEADER = 10_000


def read_npz(file, archive: zipfile.ZipFile, names: list[str]) -> dict[str, np.ndarray]:
    """The arrays of an archive by their names.

    Args:
        file: The open file behind `archive`.
        archive: The zip file.
        names: Its members, all of which end in `.npy`.
    """
    return {
        name.removesuffix(".npy"): _read_array(read_entry(file, archive, name), name)
        for name in names
    }


def _read_array(data, name):
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        length = 2 if version == (1, 0) else 4
        size = int.from_bytes(stream.read(length), "little")
        if size > LONGEST_HEADER:
            raise CheckpointError(f"{name} has a header of {size} bytes")
        header = ast.literal_eval(stream.read(size).decode("latin1"))
        shape, dtype = header["shape"], np.dtype(header["descr"])
        columns_first = bool(header["fortran_order"])
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(f"{name} is no array of NumPy: {error}") from error
    if dtype.hasobject:
        raise CheckpointError(f"refused: {name} is a pickle; nothing was run")
    plain = isinstance(shape, tuple) and len(shape) <= MAX_RANK
    if not plain or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise CheckpointError(f"{name} has an impossible shape")
    count = math.prod(shape)
    if count * dtype.itemsize > len(data) - stream.tell():
        raise CheckpointError(f"truncated: {name} is shorter than it declares")
    flat = np.frombuffer(data, dtype, count, offset=stream.tell())
    return flat.reshape(shape, order="F" if columns_first else "C")
