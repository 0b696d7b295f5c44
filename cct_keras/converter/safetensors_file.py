"""The safetensors format: a JSON header and raw arrays."""

import json
import math
import struct
from typing import NamedTuple

import numpy as np

from cct_keras.converter.allowance import JSON_BYTE
from cct_keras.converter.allowance import Allowance
from cct_keras.converter.torch_file import DTYPES
from cct_keras.converter.torch_file import widen_bfloat16
from cct_keras.errors import CheckpointError

# This format's names of the types.
NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
MAX_RANK = 8
LARGEST_NUMBER = 2**48


class _Row(NamedTuple):
    """A tensor as the header describes it."""

    name: str
    dtype: str
    shape: tuple
    begin: int
    end: int


def read_safetensors(
    file, file_size: int, allowance: Allowance
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays of a safetensors file, and its metadata.

    Args:
        file: The open file.
        file_size: Its bytes.
        allowance: What reading it may take.
    """
    start = file.read(8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else file_size
    if length > file_size - 8:
        raise CheckpointError("truncated: the safetensors header is incomplete")
    allowance.take(JSON_BYTE * length, "the safetensors header")
    try:
        header = json.loads(file.read(length), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"the safetensors header is broken: {error}") from error
    if not isinstance(header, dict):
        raise CheckpointError("the safetensors header is no mapping")
    metadata = header.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict):
        raise CheckpointError("the metadata of the safetensors header is no mapping")
    rows, position = [_row(name, row) for name, row in header.items()], 0
    # Tensors without elements share their offset with the next.
    for row in sorted(rows, key=lambda row: (row.begin, row.end)):
        if row.begin != position:
            raise CheckpointError(f"{row.name}: the tensors leave gaps or overlap")
        position = row.end
    base = 8 + length
    arrays = {
        row.name: _read_tensor(file, row, base, file_size, allowance) for row in rows
    }
    return arrays, metadata


def _unique(pairs):
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a name stands twice")
    return dict(pairs)


def _row(name, row):
    """A row of the header, checked by itself."""
    if not isinstance(row, dict):
        raise CheckpointError(f"{name}: the safetensors header has no such row")
    dtype, shape = row.get("dtype"), row.get("shape")
    if not isinstance(dtype, str) or dtype not in NAMES:
        shown = dtype if isinstance(dtype, str) else "that is no text"
        raise CheckpointError(f"{name}: tensors of type {shown} are not supported")
    if not _are_plain_numbers(shape) or len(shape) > MAX_RANK:
        raise CheckpointError(f"{name} has an impossible shape")
    offsets = row.get("data_offsets")
    if not _are_plain_numbers(offsets) or len(offsets) != 2:
        raise CheckpointError(f"{name} has impossible offsets")
    begin, end = offsets
    if end - begin != math.prod(shape) * np.dtype(DTYPES[NAMES[dtype]]).itemsize:
        raise CheckpointError(f"{name}: shape {tuple(shape)} does not fit its data")
    return _Row(name, dtype, tuple(shape), begin, end)


def _are_plain_numbers(values):
    return isinstance(values, list) and all(
        type(value) is int and 0 <= value < LARGEST_NUMBER for value in values
    )


def _read_tensor(file, row, base, file_size, allowance):
    if base + row.end > file_size:
        raise CheckpointError(f"truncated: {row.name} is incomplete")
    size, widens = row.end - row.begin, row.dtype == "BF16"
    allowance.take(3 * size if widens else size, row.name)
    if math.prod(filter(None, row.shape)) >= LARGEST_NUMBER:
        raise CheckpointError(f"{row.name} has an impossible shape")
    file.seek(base + row.begin)
    stored = np.dtype(DTYPES[NAMES[row.dtype]])
    array = np.frombuffer(file.read(size), stored).reshape(row.shape)
    return widen_bfloat16(array) if widens else array


def write_safetensors(
    file, state: dict[str, np.ndarray], metadata: dict[str, str] | None = None
) -> None:
    """Writes float32 arrays, and texts beside them, to an open file."""
    header, offset = {"__metadata__": {"format": "pt", **(metadata or {})}}, 0
    for name, array in state.items():
        end = offset + 4 * array.size
        header[name] = {
            "dtype": "F32",
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for array in state.values():
        file.write(np.ascontiguousarray(array, "<f4").tobytes())
