"""Reads PyTorch checkpoints with NumPy, without torch and without running them.

A checkpoint is a pickle beside raw storages. The pickle is read with an
allow-list of names, and none of them stands for the real thing: what it builds
is a description of each tensor, checked against its storage before any array is
made. What training scripts keep beside the weights, such as their options and
metrics, becomes a stub that holds nothing.
"""

import io
import math
import pickle
import struct
import zipfile
from collections.abc import Callable
from typing import NamedTuple

import ml_dtypes
import numpy as np

from cct_keras.converter.allowance import DIRECTORY_BYTE
from cct_keras.converter.allowance import OPCODE
from cct_keras.converter.allowance import STRING_BYTE
from cct_keras.converter.allowance import TENSOR
from cct_keras.converter.allowance import Allowance
from cct_keras.errors import CheckpointError
from cct_keras.errors import shorten

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
MAX_RANK = 8
# No side, step or storage is larger, and no key of a mapping. Numbers below the first
# all have hashes of their own.
LARGEST_NUMBER, LARGEST_KEY = 2**48, 2**32
# No function of torch takes more arguments, no checkpoint has more tensors.
MAX_ARGUMENTS = 16
MAX_PAIRS = 200_000
# What is read of a pickle at once and counted, and the longest name of a function.
SHORT_STRING, LONGEST_NAME = 64, 1000
# Compressed members are unpacked in pieces.
PIECE = 2**20
MAX_BYTE_ARRAY = 2**24


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


def read_zip(file, archive: zipfile.ZipFile, pickle_name: str, allowance: Allowance):
    """The object of a torch zip file, its tensors as arrays.

    Args:
        file: The open file behind `archive`.
        archive: The zip file.
        pickle_name: Name of its `data.pkl`.
        allowance: What reading it may take.
    """
    prefix = pickle_name[: -len("data.pkl")]
    names = set(archive.namelist())
    if prefix + "byteorder" in names:
        order = read_entry(file, archive, prefix + "byteorder", allowance)
        if order.strip() != b"little":
            raise CheckpointError(f"byte order {order[:20]!r} is not supported")

    def read_storage(storage, size):
        name = f"{prefix}data/{storage.key}"
        return read_entry(file, archive, name, allowance)

    data = read_entry(file, archive, pickle_name, allowance)
    content = _load_pickle(io.BytesIO(data), len(data), allowance)
    return _with_arrays(content, read_storage, allowance)


def open_zip(file, allowance: Allowance) -> zipfile.ZipFile:
    """A zip file, whose directory is no longer than it may be."""
    # Its members become objects before any of them can be counted.
    end = zipfile._EndRecData(file)
    if end is not None:
        size = end[zipfile._ECD_SIZE]
        allowance.take(DIRECTORY_BYTE * size, "the directory of the archive")
    try:
        return zipfile.ZipFile(file)
    except ValueError as error:
        # Of a place before the start of the file.
        raise CheckpointError(f"a broken archive: {error}") from error


def read_entry(
    file, archive: zipfile.ZipFile, name: str, allowance: Allowance
) -> bytes:
    """The bytes of a member; of a stored one without its checksum.

    torch can be told not to compute checksums, and then writes wrong ones.
    """
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise CheckpointError(f"the archive has no {name}") from None
    if info.flag_bits & 1:
        raise CheckpointError(f"{name} is encrypted")
    if not 0 <= info.header_offset < LARGEST_NUMBER:
        raise CheckpointError(f"{name} is outside of the archive")
    allowance.take(info.file_size, name)
    if info.compress_type == zipfile.ZIP_DEFLATED:
        return _unpacked(archive, info)
    if info.compress_type != zipfile.ZIP_STORED:
        raise CheckpointError(f"{name} is compressed in an unusual way")
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


def _unpacked(archive, info):
    """Never more than declared: `ZipFile.read` unpacks first and cuts then."""
    unpacked = io.BytesIO()
    with archive.open(info) as member:
        while piece := member.read(min(PIECE, info.file_size - unpacked.tell())):
            unpacked.write(piece)
    return unpacked.getvalue()


def read_legacy(file, size: int, allowance: Allowance):
    """The object of a file in the format before torch 1.6."""
    if _load_pickle(file, size, allowance) != LEGACY_MAGIC:
        raise CheckpointError("a pickle, but not a PyTorch checkpoint")
    version, system, content, keys = (
        _load_pickle(file, size, allowance) for _ in range(4)
    )
    if version != 1001 or not isinstance(system, dict):
        raise CheckpointError("its legacy protocol is not supported")
    if system.get("little_endian") is not True:
        raise CheckpointError("big-endian files are not supported")
    start = file.tell()
    sizes = {
        record.storage.key: record.storage.numel * _itemsize(record.storage.dtype)
        for record in _records(content)
    }
    offsets = {}
    for key in keys if isinstance(keys, list) else ():
        # Hashing a deep or shared tuple can crash or hang, as can showing it.
        if not isinstance(key, str) or key not in sizes:
            shown = repr(key[:40]) if isinstance(key, str) else "without a name"
            raise CheckpointError(f"storage {shown} has no tensor that tells its size")
        offsets[key] = start + 8
        start += 8 + sizes[key]

    def read_storage(storage, length):
        if storage.key not in offsets:
            raise CheckpointError(f"the file has no storage {storage.key!r}")
        if offsets[storage.key] + length > size:
            raise CheckpointError(f"truncated: storage {storage.key} is incomplete")
        allowance.take(length, f"storage {storage.key}")
        file.seek(offsets[storage.key])
        return file.read(length)

    return _with_arrays(content, read_storage, allowance)


# === The pickle ===


class _Marker(NamedTuple):
    """Stands for a type of torch that carries nothing but its name."""

    name: str


class _Inert(NamedTuple):
    """Stands for a class or function whose results are never looked at."""

    name: str


class _Stub:
    """Stands for an object beside the weights; it holds nothing."""

    __slots__ = ()


STUB = _Stub()
# The same for the storage of a tensor that is not read.
UNREAD_STORAGE = _Stub()


class _Rebuild(NamedTuple):
    """Stands for a function that a checkpoint may call."""

    function: Callable

    def __call__(self, *arguments):
        return self.function(*arguments)


def _rebuild_tensor(
    storage, offset, size, stride, requires_grad=False, hooks=None, *rest
):
    """All versions; the third has a dtype of its own, then maybe metadata."""
    if storage is UNREAD_STORAGE:
        return STUB
    if not isinstance(storage, Storage):
        raise CheckpointError("a tensor has no storage")
    dtype, rest = storage.dtype, list(rest)
    if rest and isinstance(rest[0], _Marker):
        dtype = rest.pop(0).name
    if any(rest):
        raise CheckpointError("a tensor is a conjugate or negative view")
    if len(size) != len(stride) or len(size) > MAX_RANK:
        raise CheckpointError("a tensor has an impossible shape")
    if not all(_is_plain_number(number) for number in (offset, *size, *stride)):
        raise CheckpointError("a tensor has an impossible shape")
    if dtype not in DTYPES:
        return STUB
    return TensorRecord(storage, offset, tuple(size), tuple(stride), dtype)


def _rebuild_parameter(data, *rest):
    return data


def _is_plain_number(value):
    return isinstance(value, int) and 0 <= value < LARGEST_NUMBER


def _rebuild_from_type(function, kind, arguments, state):
    if (
        not isinstance(function, _Rebuild)
        or function.function not in (_rebuild_tensor, _rebuild_parameter)
        or len(arguments) > MAX_ARGUMENTS
    ):
        raise CheckpointError("a tensor is rebuilt by something else than torch")
    return function(*arguments)


def _rebuild_size(sides):
    if len(sides) > MAX_RANK:
        raise CheckpointError("a tensor has an impossible shape")
    return tuple(sides)


def _rebuild_dict(pairs=()):
    if not isinstance(pairs, (list, tuple)):
        raise CheckpointError("a mapping is made of what is no list")
    result = {}
    for key, value in pairs:
        if _is_key(key):
            result[key] = value
    return result


def _is_key(value):
    """Whether it names anything; hashing all else can crash, hang or collide."""
    return isinstance(value, str) or (
        isinstance(value, int) and -LARGEST_KEY < value < LARGEST_KEY
    )


REBUILDS = {
    ("collections", "OrderedDict"): _rebuild_dict,
    ("torch", "Size"): _rebuild_size,
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _rebuild_parameter,
    ("torch._tensor", "_rebuild_from_type_v2"): _rebuild_from_type,
}
# Types of tensors that are no weights of ours; they may stand beside these.
UNREAD = (
    "ComplexFloatStorage",
    "ComplexDoubleStorage",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
    "uint16",
    "uint32",
    "uint64",
)
MARKERS = {
    ("torch", "Tensor"),
    ("torch.nn.parameter", "Parameter"),
    *(("torch", name) for name in DTYPES),
}
# What training scripts store beside the weights: options, metrics, paths, versions.
# Nothing of it is ever made, called or looked at.
INERT = {
    "argparse": ("Namespace",),
    "UserDict": ("UserDict", "IterableUserDict"),
    "types": ("SimpleNamespace",),
    "collections": ("defaultdict", "Counter", "deque", "UserDict"),
    "builtins": (
        "set",
        "frozenset",
        "slice",
        "range",
        "complex",
        "bytearray",
        "bytes",
        "int",
        "long",
        "float",
        "str",
        "unicode",
        "xrange",
        "bool",
        "list",
        "tuple",
        "dict",
        "object",
    ),
    "pathlib": (
        "Path",
        "PurePath",
        "PosixPath",
        "PurePosixPath",
        "WindowsPath",
        "PureWindowsPath",
    ),
    "datetime": ("datetime", "date", "time", "timedelta", "timezone"),
    "decimal": ("Decimal",),
    "uuid": ("UUID",),
    "typing": ("Any",),
    "_codecs": ("encode",),
    "copyreg": ("_reconstructor",),
    "numpy": (
        "dtype",
        "ndarray",
        "bool",
        "bool_",
        "float16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "complex64",
        "complex128",
        "str_",
        "bytes_",
    ),
    "numpy._core.multiarray": ("scalar", "_reconstruct"),
    "numpy._core.numeric": ("_frombuffer",),
    "torch": ("device",),
    "torch._C": ("Generator",),
    "torch.torch_version": ("TorchVersion",),
    "lightning_fabric.utilities.data": ("AttributeDict",),
    "omegaconf.dictconfig": ("DictConfig",),
    "omegaconf.listconfig": ("ListConfig",),
    "omegaconf.base": ("ContainerMetadata", "Metadata"),
    "omegaconf.nodes": (
        "AnyNode",
        "BooleanNode",
        "FloatNode",
        "IntegerNode",
        "PathNode",
        "StringNode",
    ),
    "yacs.config": ("CfgNode",),
    "easydict": ("EasyDict",),
}
# Modules that were called otherwise in another version.
SAME_MODULE = {
    "__builtin__": "builtins",
    "copy_reg": "copyreg",
    "pathlib._local": "pathlib",
    "numpy.core.multiarray": "numpy._core.multiarray",
    "numpy.core.numeric": "numpy._core.numeric",
    "lightning.fabric.utilities.data": "lightning_fabric.utilities.data",
    "pytorch_lightning.utilities.parsing": "lightning_fabric.utilities.data",
}
# What to do about a file that needs more than this.
RESAVE = (
    "if you trust where it came from, save its weights alone, with torch: "
    "`x = torch.load(PATH, weights_only=False)`, `torch.save(x.state_dict() if "
    "hasattr(x, 'state_dict') else x.get('state_dict') or x['model'], 'weights.pth')`"
)
# fmt: off
OPCODES = (
    "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP",
    "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT",
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINSTRING", "SHORT_BINSTRING",
    "BINBYTES", "SHORT_BINBYTES",
    "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS",
    "BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET",
    "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "BINPERSID",
    "NEWOBJ", "NEWOBJ_EX", "EMPTY_SET", "ADDITEMS", "FROZENSET",
)
# fmt: on


class _Input:
    """What the opcodes are read from; nothing is read that is not there."""

    def __init__(self, file, size, allowance):
        self.file, self.size, self.allowance = file, size, allowance

    def read(self, count):
        if count > SHORT_STRING:
            if count > self.size - self.file.tell():
                raise CheckpointError("its pickle is truncated")
            self.allowance.take(STRING_BYTE * count, "its pickle")
        return self.file.read(count)

    def readline(self):
        return self.file.readline(LONGEST_NAME)


class _Counted(dict):
    """The opcodes; whoever looks one up pays for what it makes."""

    def __init__(self, opcodes, allowance):
        super().__init__(opcodes)
        self.allowance = allowance

    def __getitem__(self, opcode):
        self.allowance.take(OPCODE, "its pickle")
        return super().__getitem__(opcode)


# The pure-Python unpickler: the C one allocates its memo by the largest index a
# file names, and does not let the opcodes be chosen.
class _Unpickler(pickle._Unpickler):
    # Of mappings that are made of a list of pairs; torch fills them item by item.
    pairs = 0

    def __init__(self, file, size, allowance):
        super().__init__(_Input(file, size, allowance), encoding="utf-8")
        self.dispatch = _Counted(self.dispatch, allowance)

    def find_class(self, module, name):
        if (module, name) in REBUILDS:
            return _Rebuild(REBUILDS[module, name])
        is_storage = module in ("torch", "torch.storage") and name in STORAGES
        if is_storage or (module, name) in MARKERS:
            return _Marker(name)
        if module == "torch" and name in UNREAD:
            return _Marker(name)
        module = SAME_MODULE.get(module, module)
        if name in INERT.get(module, ()) or module == "numpy.dtypes":
            return _Inert(name)
        what = "which no plain checkpoint needs"
        if module.startswith(("torch.nn.modules.", "timm.", "transformers.models.")):
            what = "a part of a whole model, which only running its code would open"
        named = shorten(f"{module}.{name}", 80)
        raise CheckpointError(
            f"refused: the pickle names {named}, {what}; nothing was run; {RESAVE}"
        )

    def persistent_load(self, pid):
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
            raise CheckpointError("the pickle has an unknown kind of reference")
        _, kind, key, _, numel = pid[:5]
        view = pid[5] if len(pid) > 5 else None
        offset = view[1] if isinstance(view, tuple) and len(view) == 3 else 0
        if isinstance(kind, _Marker) and kind.name in UNREAD:
            return UNREAD_STORAGE
        if not (
            isinstance(kind, _Marker)
            and kind.name in STORAGES
            and isinstance(key, str)
            and all(_is_plain_number(number) for number in (numel, offset))
        ):
            raise CheckpointError("the pickle has a broken storage reference")
        return Storage(key, STORAGES[kind.name], numel, offset)

    def load_reduce(self):
        arguments = self.stack.pop()
        function = self.stack.pop()
        if isinstance(function, _Inert):
            self.append(STUB)
            return
        if not isinstance(function, _Rebuild) or not isinstance(arguments, tuple):
            raise CheckpointError("the pickle calls what is no function")
        self._check_effort(function, arguments)
        self.append(function(*arguments))

    def _check_effort(self, function, arguments):
        """Refuses to do the same large work again and again for a few bytes."""
        pairs = arguments[0] if arguments else ()
        if function.function is _rebuild_dict and isinstance(pairs, (list, tuple)):
            self.pairs += len(pairs)
        if len(arguments) > MAX_ARGUMENTS or self.pairs > MAX_PAIRS:
            raise CheckpointError("the pickle calls a function with far too much")

    def load_newobj(self):
        self.stack.pop()
        if not isinstance(self.stack.pop(), _Inert):
            raise CheckpointError("the pickle makes an object of what is no class")
        self.append(STUB)

    def load_newobj_ex(self):
        self.stack.pop()
        self.load_newobj()

    def load_bytearray8(self):
        # NumPy's arrays in protocol 5, beside the weights.
        size = int.from_bytes(self.read(8), "little")
        if size > MAX_BYTE_ARRAY:
            raise CheckpointError("the pickle has a byte array that is far too long")
        self.read(size)
        self.append(STUB)

    def load_empty_set(self):
        self.append(STUB)

    def load_frozenset(self):
        self.pop_mark()
        self.append(STUB)

    def load_additems(self):
        self.pop_mark()
        self._check_stub()

    def load_append(self):
        self._append_items([self.stack.pop()])

    def load_appends(self):
        self._append_items(self.pop_mark())

    def _append_items(self, items):
        if type(self.stack[-1]) is list:
            self.stack[-1].extend(items)
        else:
            self._check_stub()

    def _check_stub(self):
        if self.stack[-1] is not STUB:
            raise CheckpointError("the pickle adds items to what is no list")

    def load_build(self):
        # Attributes of what was built, such as a state dict's `_metadata`.
        self.stack.pop()

    def load_setitem(self):
        value = self.stack.pop()
        key = self.stack.pop()
        self._set_items([key, value])

    def load_setitems(self):
        self._set_items(self.pop_mark())

    def _set_items(self, items):
        mapping = self.stack[-1]
        if mapping is STUB:
            return
        if type(mapping) is not dict or len(items) % 2:
            raise CheckpointError("the pickle sets items of what is no mapping")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if _is_key(key):
                mapping[key] = value

    dispatch = {
        getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]]
        for name in OPCODES
    }
    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.NEWOBJ[0]] = load_newobj
    dispatch[pickle.NEWOBJ_EX[0]] = load_newobj_ex
    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8
    dispatch[pickle.EMPTY_SET[0]] = load_empty_set
    dispatch[pickle.FROZENSET[0]] = load_frozenset
    dispatch[pickle.ADDITEMS[0]] = load_additems
    dispatch[pickle.APPEND[0]] = load_append
    dispatch[pickle.APPENDS[0]] = load_appends


def _load_pickle(file, size, allowance):
    try:
        return _Unpickler(file, size, allowance).load()
    except CheckpointError:
        raise
    except KeyError as error:
        raise CheckpointError(f"its pickle is broken: opcode {error}") from error
    except Exception as error:
        raise CheckpointError(f"its pickle is broken or truncated: {error}") from error


# === Records into arrays ===


def _records(content):
    """All tensors, however deep in dicts, lists and tuples."""
    waiting, seen = [content], set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, TensorRecord):
            yield value
        elif isinstance(value, (dict, list, tuple)) and id(value) not in seen:
            seen.add(id(value))
            waiting.extend(value.values() if isinstance(value, dict) else value)


def _with_arrays(content, read_storage, allowance):
    """Top-level mappings of tensors, one level of nesting included, as arrays."""
    if not isinstance(content, dict):
        raise CheckpointError("it holds no mapping of tensors")
    storages, arrays, entries = {}, {}, {}

    def resolve(value, deeper):
        if isinstance(value, TensorRecord):
            if value not in arrays:
                arrays[value] = _array(value, read_storage, storages, allowance)
            return arrays[value]
        if deeper and isinstance(value, dict):
            # Many names may stand for one mapping.
            if id(value) not in entries:
                entries[id(value)] = {
                    key: resolve(item, False) for key, item in value.items()
                }
            return entries[id(value)]
        return value

    return {key: resolve(value, True) for key, value in content.items()}


def widen_bfloat16(bits: np.ndarray) -> np.ndarray:
    """float32 of bfloat16 numbers, which NumPy itself does not know."""
    return bits.view(ml_dtypes.bfloat16).astype("float32")


def _itemsize(dtype):
    return np.dtype(DTYPES[dtype]).itemsize


class _Bytes:
    """A storage that was read, and how many of its bytes are not yet in a tensor."""

    def __init__(self, data):
        self.data, self.unseen = data, len(data)


def _array(record, read_storage, storages, allowance):
    storage, dtype = record.storage, np.dtype(DTYPES[record.dtype])
    size = storage.numel * _itemsize(storage.dtype)
    last = record.offset + sum(
        (side - 1) * stride
        for side, stride in zip(record.shape, record.strides, strict=True)
    )
    start = storage.offset * _itemsize(storage.dtype)
    count = math.prod(record.shape)
    if count == 0:
        if math.prod(filter(None, record.shape)) >= LARGEST_NUMBER:
            raise CheckpointError("a tensor has an impossible shape")
        return np.zeros(record.shape, dtype)
    if start + (last + 1) * dtype.itemsize > size:
        raise CheckpointError(f"a tensor of shape {record.shape} leaves its storage")
    if storage.key not in storages:
        storages[storage.key] = _Bytes(read_storage(storage, size))
    stored = storages[storage.key]
    if len(stored.data) < size:
        raise CheckpointError(f"storage {storage.key} is shorter than declared")
    # Views of a storage that outgrow it become real where they are copied.
    seen = min(count * dtype.itemsize, stored.unseen)
    stored.unseen -= seen
    taken = count * (4 if record.dtype == "bfloat16" else dtype.itemsize) - seen
    allowance.take(TENSOR + taken, f"a tensor of shape {record.shape}")
    flat = np.frombuffer(
        stored.data,
        dtype,
        offset=start + record.offset * dtype.itemsize,
        count=last - record.offset + 1,
    )
    strides = tuple(stride * dtype.itemsize for stride in record.strides)
    array = np.lib.stride_tricks.as_strided(
        flat, record.shape, strides, writeable=False
    )
    return widen_bfloat16(array) if record.dtype == "bfloat16" else array
