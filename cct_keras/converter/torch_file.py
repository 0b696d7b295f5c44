"""Reads PyTorch checkpoints with NumPy, without torch and without running them.

A checkpoint is a pickle beside raw storages. The pickle is read with an
allow-list of names, and none of them stands for the real thing: what it builds
is a description of each tensor, checked against its storage before any array is
made.
"""

import collections
import io
import math
import pickle
import struct
import zipfile
from typing import NamedTuple

import numpy as np

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
# bfloat16 is read as the 16 bits it is and widened.
DTYPES = {
    "float64": "<f8",
    "float32": "<f4",
    "float16": "<f2",
    "bfloat16": "<u2",
    "int64": "<i8",
    "int32": "<i4",
    "int16": "<i2",
    "int8": "<i1",
    "uint8": "<u1",
    "bool": "?",
}
STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "UntypedStorage": "uint8",
}
# Expanded tensors may be larger than their storage, up to this many bytes.
EXPANDED_LIMIT = 2**20


class CheckpointError(ValueError):
    """A file that cannot be read as a checkpoint, and why."""


class Storage(NamedTuple):
    """A storage that the pickle names: its key, dtype, elements and offset."""

    key: str
    dtype: str
    numel: int
    offset: int = 0


class TensorRecord(NamedTuple):
    """A tensor as the pickle describes it."""

    storage: Storage
    offset: int
    shape: tuple
    strides: tuple
    dtype: str


def read_zip(file, archive: zipfile.ZipFile, pickle_name: str):
    """The object of a torch zip file, its tensors as arrays.

    Args:
        file: The open file behind `archive`.
        archive: The zip file.
        pickle_name: Name of its `data.pkl`.
    """
    prefix = pickle_name[: -len("data.pkl")]
    names = set(archive.namelist())
    if prefix + "byteorder" in names:
        order = read_entry(file, archive, prefix + "byteorder")
        if order.strip() != b"little":
            raise CheckpointError(f"byte order {order!r} is not supported")

    def read_storage(storage, size):
        data = read_entry(file, archive, f"{prefix}data/{storage.key}")
        if len(data) < size:
            raise CheckpointError(f"storage {storage.key} is shorter than declared")
        return data

    content = _load_pickle(io.BytesIO(read_entry(file, archive, pickle_name)))
    return _with_arrays(content, read_storage)


def read_entry(file, archive: zipfile.ZipFile, name: str) -> bytes:
    """The bytes of a member; of a stored one without its checksum.

    torch can be told not to compute checksums, and then writes wrong ones.
    """
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise CheckpointError(f"the archive has no {name}") from None
    if info.flag_bits & 1:
        raise CheckpointError(f"{name} is encrypted")
    if info.compress_type != zipfile.ZIP_STORED:
        return archive.read(info)
    file.seek(info.header_offset)
    header = file.read(30)
    if len(header) < 30 or header[:4] != b"PK\x03\x04":
        raise CheckpointError(f"the header of {name} is broken")
    name_length, extra_length = struct.unpack("<HH", header[26:30])
    file.seek(name_length + extra_length, io.SEEK_CUR)
    data = file.read(info.file_size)
    if len(data) < info.file_size:
        raise CheckpointError(f"truncated: {name} ends after {len(data)} bytes")
    return data


def read_legacy(file):
    """The object of a file in the format before torch 1.6."""
    if _load_pickle(file) != LEGACY_MAGIC:
        raise CheckpointError("a pickle, but not a PyTorch checkpoint")
    version, system = _load_pickle(file), _load_pickle(file)
    if version != 1001 or not isinstance(system, dict):
        raise CheckpointError(f"legacy protocol {version!r} is not supported")
    if system.get("little_endian") is not True:
        raise CheckpointError("big-endian files are not supported")
    content, keys = _load_pickle(file), _load_pickle(file)
    start = file.tell()
    sizes = {
        record.storage.key: record.storage.numel * _itemsize(record.storage.dtype)
        for record in _records(content)
    }
    offsets = {}
    for key in keys if isinstance(keys, list) else ():
        if key not in sizes:
            raise CheckpointError(f"storage {key!r} has no tensor that tells its size")
        offsets[key] = start + 8
        start += 8 + sizes[key]

    def read_storage(storage, size):
        if storage.key not in offsets:
            raise CheckpointError(f"the file has no storage {storage.key!r}")
        file.seek(offsets[storage.key])
        data = file.read(size)
        if len(data) < size:
            raise CheckpointError(f"truncated: storage {storage.key} is incomplete")
        return data

    return _with_arrays(content, read_storage)


def widen_bfloat16(bits: np.ndarray) -> np.ndarray:
    """float32 of the 16 bits of a bfloat16."""
    return (bits.astype("<u4") << 16).view("<f4")


# === The pickle ===


class _Rebuild:
    """Stands for one of torch's rebuild functions; has no attribute to set."""

    __slots__ = ("_function",)

    def __init__(self, function):
        object.__setattr__(self, "_function", function)

    def __setattr__(self, name, value):
        raise CheckpointError("the pickle sets an attribute of a function")

    def __call__(self, *arguments):
        return self._function(*arguments)


class _Marker(NamedTuple):
    """Stands for a type of torch that carries nothing but its name."""

    name: str


def _rebuild_tensor(storage, offset, size, stride, *rest):
    dtype = rest[2].name if len(rest) > 2 and isinstance(rest[2], _Marker) else None
    if not isinstance(storage, Storage):
        raise CheckpointError("a tensor has no storage")
    numbers = (offset, *size, *stride)
    if len(size) != len(stride) or any(
        not isinstance(number, int) or number < 0 for number in numbers
    ):
        raise CheckpointError("a tensor has an impossible shape")
    dtype = storage.dtype if dtype is None else dtype
    if dtype not in DTYPES:
        raise CheckpointError(f"tensors of type {dtype} are not supported")
    return TensorRecord(storage, offset, tuple(size), tuple(stride), dtype)


def _rebuild_parameter(data, *rest):
    return data


def _rebuild_from_type(function, kind, arguments, state):
    if not isinstance(function, _Rebuild):
        raise CheckpointError("a tensor is rebuilt by something else than torch")
    return function(*arguments)


REBUILDS = {
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _rebuild_parameter,
    ("torch._tensor", "_rebuild_from_type_v2"): _rebuild_from_type,
}
MARKERS = {
    ("torch", "Tensor"),
    ("torch.nn.parameter", "Parameter"),
    *(("torch", name) for name in DTYPES),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch", "Size"):
            return _Rebuild(tuple)
        if (module, name) in REBUILDS:
            return _Rebuild(REBUILDS[module, name])
        if (module, name) in MARKERS:
            return _Marker(name)
        if module in ("torch", "torch.storage") and name in STORAGES:
            return _Marker(name)
        raise CheckpointError(
            f"refused: the pickle names {module}.{name}, which no plain checkpoint "
            "needs; nothing was run"
        )

    def persistent_load(self, pid):
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
            raise CheckpointError("the pickle has an unknown kind of reference")
        _, kind, key, _, numel = pid[:5]
        view = pid[5] if len(pid) > 5 else None
        offset = view[1] if isinstance(view, tuple) and len(view) == 3 else 0
        if not (
            isinstance(kind, _Marker)
            and kind.name in STORAGES
            and isinstance(key, str)
            and all(isinstance(n, int) and n >= 0 for n in (numel, offset))
        ):
            raise CheckpointError("the pickle has a broken storage reference")
        return Storage(key, STORAGES[kind.name], numel, offset)


def _load_pickle(file):
    try:
        return _Unpickler(file).load()
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(f"its pickle is broken or truncated: {error}") from error


# === Records into arrays ===


def _records(content, depth=0):
    """All tensors, however deep in dicts, lists and tuples."""
    if isinstance(content, TensorRecord):
        yield content
    elif depth < 16 and isinstance(content, dict):
        for value in dict(content).values():
            yield from _records(value, depth + 1)
    elif depth < 16 and isinstance(content, (list, tuple)):
        for value in content:
            yield from _records(value, depth + 1)


def _with_arrays(content, read_storage):
    """Top-level mappings of tensors, one level of nesting included, as arrays."""
    if not isinstance(content, dict):
        raise CheckpointError("it holds no mapping of tensors")
    cache = {}

    def resolve(value, deeper):
        if isinstance(value, TensorRecord):
            return _array(value, read_storage, cache)
        if deeper and isinstance(value, dict):
            return {key: resolve(item, False) for key, item in dict(value).items()}
        return value

    return {key: resolve(value, True) for key, value in dict(content).items()}


def _itemsize(dtype):
    return np.dtype(DTYPES[dtype]).itemsize


def _array(record, read_storage, cache):
    storage, dtype = record.storage, np.dtype(DTYPES[record.dtype])
    size = storage.numel * _itemsize(storage.dtype)
    last = record.offset + sum(
        (side - 1) * stride
        for side, stride in zip(record.shape, record.strides, strict=True)
    )
    start = storage.offset * _itemsize(storage.dtype)
    elements = math.prod(record.shape)
    if elements == 0:
        return np.zeros(record.shape, dtype)
    if start + (last + 1) * dtype.itemsize > size:
        raise CheckpointError(f"a tensor of shape {record.shape} leaves its storage")
    if elements * dtype.itemsize > max(size, EXPANDED_LIMIT):
        raise CheckpointError(f"a tensor of shape {record.shape} outgrows its storage")
    if storage.key not in cache:
        cache[storage.key] = read_storage(storage, size)
    flat = np.frombuffer(
        cache[storage.key],
        dtype,
        offset=start + record.offset * dtype.itemsize,
        count=last - record.offset + 1,
    )
    strides = tuple(stride * dtype.itemsize for stride in record.strides)
    array = np.lib.stride_tricks.as_strided(
        flat, record.shape, strides, writeable=False
    )
    return widen_bfloat16(array) if record.dtype == "bfloat16" else array
