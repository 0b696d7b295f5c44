"""The safetensors format: a JSON header and raw arrays."""

import json
import math
import struct

import numpy as np

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
HEADER_LIMIT = 100_000_000


def read_safetensors(
    file, file_size: int
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays of a safetensors file, and its metadata."""
    start = file.read(8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else file_size
    if length > min(HEADER_LIMIT, file_size - 8):
        raise CheckpointError("truncated: the safetensors header is incomplete")
    try:
        header = json.loads(file.read(length), object_pairs_hook=_unique)
        rows = {name: row for name, row in header.items() if name != "__metadata__"}
        metadata = dict(header.get("__metadata__") or {})
        tensors = {
            name: (row["dtype"], tuple(row["shape"]), *row["data_offsets"])
            for name, row in rows.items()
        }
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"the safetensors header is broken: {error}") from error
    position = 0
    for name, (_, _, begin, end) in sorted(tensors.items(), key=_begin):
        if begin != position:
            raise CheckpointError(f"{name}: the tensors leave gaps or overlap")
        position = end
    arrays = {
        name: _read_tensor(file, name, 8 + length, file_size, *row)
        for name, row in tensors.items()
    }
    return arrays, metadata


def _unique(pairs):
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a name stands twice")
    return dict(pairs)


def _begin(item):
    _, (_, shape, begin, end) = item
    if any(type(n) is not int or n < 0 for n in (*shape, begin, end)):
        raise CheckpointError("the safetensors header is broken")
    # Tensors without elements share their offset with the next.
    return begin, end


def _read_tensor(file, name, base, file_size, dtype, shape, begin, end):
    if dtype not in NAMES:
        raise CheckpointError(f"{name}: tensors of type {dtype} are not supported")
    stored = np.dtype(DTYPES[NAMES[dtype]])
    if end - begin != math.prod(shape) * stored.itemsize:
        raise CheckpointError(f"{name}: shape {shape} does not fit its data")
    if base + end > file_size:
        raise CheckpointError(f"truncated: {name} is incomplete")
    file.seek(base + begin)
    array = np.frombuffer(file.read(end - begin), stored).reshape(shape)
    return widen_bfloat16(array) if dtype == "BF16" else array


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
