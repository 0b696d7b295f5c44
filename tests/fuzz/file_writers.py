"""State dicts as files of each kind, written by hand: no torch, nothing of the package.

What they write may be as wrong as the caller likes: a shape that does not fit, a type
that does not exist, a name that is no text.
"""

import io
import json
import struct
import warnings
import zipfile

import numpy as np

STORAGES = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
    "complex64": "ComplexFloatStorage",
}
SAFETENSORS_TYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
    "complex64": "C64",
}


# === Opcodes ===


def text(value: str) -> bytes:
    """A string."""
    data = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def number(value: int) -> bytes:
    """An integer of any size up to 255 bytes."""
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def global_(module: str, name: str) -> bytes:
    """A class or function by its name."""
    return f"c{module}\n{name}\n".encode("utf-8", "surrogatepass")


def numbers(values) -> bytes:
    """A tuple of integers."""
    return b"(" + b"".join(number(int(value)) for value in values) + b"t"


def storage(key: str, kind: str, numel: int) -> bytes:
    """The reference to a storage."""
    parts = text("storage"), global_("torch", kind), text(key), text("cpu")
    return b"(" + b"".join(parts) + number(numel) + b"tQ"


def tensor(key: str, kind: str, numel: int, shape, strides, offset=0) -> bytes:
    """A tensor, as `torch.save` writes it."""
    return b"".join(
        (
            global_("torch._utils", "_rebuild_tensor_v2"),
            b"(",
            storage(key, kind, numel),
            number(offset),
            numbers(shape),
            numbers(strides),
            b"\x89",
            global_("collections", "OrderedDict"),
            b")RtR",
        )
    )


def mapping(items: dict[str, bytes]) -> bytes:
    """A dictionary of strings to whatever the opcodes make."""
    return b"}(" + b"".join(text(name) + value for name, value in items.items()) + b"u"


def pickled(body: bytes) -> bytes:
    """A pickle of these opcodes."""
    return b"\x80\x02" + body + b"."


def tensors(state: dict) -> dict[str, bytes]:
    """The opcodes of every array, whose storages are numbered."""
    found = {}
    for key, (name, array) in enumerate(state.items()):
        kind = STORAGES.get(array.dtype.name, "FloatStorage")
        strides = [
            int(np.prod(array.shape[axis + 1 :], dtype=object))
            for axis in range(array.ndim)
        ]
        found[name] = tensor(str(key), kind, array.size, array.shape, strides)
    return found


# === Files ===


def zip_of(members, method=zipfile.ZIP_STORED) -> bytes:
    """A zip file of `(name, content)` pairs."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", method) as archive:
        # A name may stand twice.
        warnings.simplefilter("ignore")
        for name, content in members:
            # A date, so that the same case is the same bytes.
            name = name.encode("utf-8", "replace").decode()
            info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            archive.writestr(info, content, method)
    return buffer.getvalue()


def torch_zip(body: bytes, storages: dict[str, bytes]) -> bytes:
    """A file as torch writes it since 1.6: the opcodes and storages by their keys."""
    data = [(f"archive/data/{key}", content) for key, content in storages.items()]
    members = [
        ("archive/data.pkl", pickled(body)),
        ("archive/byteorder", b"little"),
        *data,
        ("archive/version", b"3\n"),
    ]
    return zip_of(members)


def as_torch_zip(state: dict, entry: str | None = None) -> bytes:
    """A state dict as torch writes it, maybe as an entry of a training file."""
    body = mapping(tensors(state))
    if entry is not None:
        body = mapping({"epoch": number(3), entry: body})
    arrays = enumerate(state.values())
    return torch_zip(body, {str(key): array.tobytes() for key, array in arrays})


def legacy(body: bytes, storages: list[tuple[str, int, bytes]]) -> bytes:
    """A file as torch wrote it before 1.6; storages by key, elements and content."""
    magic = 0x1950A86A20F9469CFC6C
    system = b"}" + text("little_endian") + b"\x88s"
    keys = b"](" + b"".join(text(key) for key, _, _ in storages) + b"e"
    parts = number(magic), number(1001), system, body, keys
    start = b"".join(pickled(part) for part in parts)
    return start + b"".join(struct.pack("<q", n) + data for _, n, data in storages)


def as_legacy(state: dict) -> bytes:
    """A state dict as torch wrote it before 1.6."""
    arrays = enumerate(state.values())
    storages = [(str(key), array.size, array.tobytes()) for key, array in arrays]
    return legacy(mapping(tensors(state)), storages)


def safetensors(header, data: bytes = b"") -> bytes:
    """A file with this header, JSON text or what becomes such."""
    if not isinstance(header, bytes):
        header = json.dumps(header).encode()
    return struct.pack("<Q", len(header)) + header + data


def safetensors_header(state: dict, metadata: dict | None = None) -> dict:
    """The header of a state dict."""
    header, offset = {}, 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, array in state.items():
        kind = SAFETENSORS_TYPES.get(array.dtype.name, "F32")
        end = offset + array.nbytes
        header[name] = {
            "dtype": kind,
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    return header


def as_safetensors(state: dict, metadata: dict | None = None) -> bytes:
    """A state dict as a safetensors file."""
    data = b"".join(array.tobytes() for array in state.values())
    return safetensors(safetensors_header(state, metadata), data)


def npy(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    """An array with this header."""
    line = header.encode("utf-8", "surrogatepass") + b"\n"
    size = struct.pack("<H" if version == b"\x01\x00" else "<I", len(line))
    return b"\x93NUMPY" + version + size + line + data


def npy_header(descr="'<f4'", fortran="False", shape="(2,)") -> str:
    """The header of an array, each part as its text."""
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}"


def as_npy(array: np.ndarray) -> bytes:
    """An array as a member of an npz file."""
    header = npy_header(repr(array.dtype.str), shape=repr(array.shape))
    return npy(header, array.tobytes())


def as_npz(state: dict, method=zipfile.ZIP_STORED) -> bytes:
    """A state dict as an npz file."""
    members = [(f"{name}.npy", as_npy(array)) for name, array in state.items()]
    return zip_of(members, method)
