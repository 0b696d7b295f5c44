"""Checkpoints are read exactly, and hostile ones refused, without torch."""

import io
import json
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import reference

from cct_keras.converter import read
from cct_keras.converter.formats import open_checkpoint
from cct_keras.errors import CheckpointError

FOLDER = pathlib.Path(__file__).parent.parent / "golden" / "checkpoints"
STATE = reference.random_state(**reference.TINY)
TOLERANCES = {"half": 1e-3, "bfloat16": 1e-2}


def read_checkpoint(source, entry=None):
    return read.read_checkpoint(source, entry)[0]


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda p: p.name)
def test_every_format_gives_the_same_arrays(path):
    state = open_checkpoint(path).tensors
    assert list(state) == list(STATE)
    tolerance = TOLERANCES.get(path.stem, 0)
    for name, array in STATE.items():
        np.testing.assert_allclose(state[name], array, rtol=tolerance, atol=1e-7)


def test_torch_is_not_imported():
    code = (
        "import sys, cct_keras.converter.read as c\n"
        f"c.read_checkpoint({str(FOLDER / 'zip.pth')!r})\n"
        f"c.read_checkpoint({str(FOLDER / 'legacy.pth')!r})\n"
        "assert 'torch' not in sys.modules\n"
    )
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_entry_is_chosen_and_averaged_weights_come_first():
    averaged = {name: array + 1 for name, array in STATE.items()}
    both = {"state_dict": STATE, "state_dict_ema": averaged, "epoch": 1}
    name = "classifier.norm.bias"
    assert np.array_equal(read_checkpoint(both)[name], averaged[name])
    chosen = read_checkpoint(both, entry="state_dict")
    assert np.array_equal(chosen[name], STATE[name])
    with pytest.raises(CheckpointError, match=r"'x'.*state_dict"):
        read_checkpoint(both, entry="x")


# === Files that are not what they seem ===


def torch_zip(path, data, storages=None, **members):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        for key, value in (storages or {}).items():
            archive.writestr(f"archive/data/{key}", value)
        for name, value in members.items():
            archive.writestr(f"archive/{name}", value)
    return path


class Evil:
    def __reduce__(self):
        return os.system, ("touch OWNED",)


def opcode_pickle(*parts):
    return b"\x80\x02" + b"".join(parts) + b"."


def global_(module, name):
    return f"c{module}\n{name}\n".encode()


HOSTILE_PICKLES = {
    "os.system": pickle.dumps({"a": Evil()}),
    "eval": opcode_pickle(global_("builtins", "eval"), b"X\x01\x00\x00\x001\x85R"),
    "getattr": opcode_pickle(global_("builtins", "getattr"), b")R"),
    "torch.load": opcode_pickle(global_("torch", "load"), b")R"),
    "torch.storage._load_from_bytes": opcode_pickle(
        global_("torch.storage", "_load_from_bytes"), b")R"
    ),
    "numpy.load": opcode_pickle(global_("numpy", "load"), b")R"),
    "dotted": opcode_pickle(global_("collections", "OrderedDict.__init__"), b")R"),
}


@pytest.mark.parametrize("name", list(HOSTILE_PICKLES))
@pytest.mark.parametrize("container", ["zip", "bare"])
def test_a_pickle_that_names_something_else_is_refused(
    name, container, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "evil.pth"
    if container == "zip":
        torch_zip(path, HOSTILE_PICKLES[name])
    else:
        path.write_bytes(HOSTILE_PICKLES[name])
    with pytest.raises(CheckpointError, match="refused: the pickle names"):
        read_checkpoint(path)
    assert not (tmp_path / "OWNED").exists()


def test_allowed_functions_cannot_be_changed(tmp_path):
    """BUILD with a slot state sets attributes of whatever is on the stack."""
    data = opcode_pickle(
        global_("torch._utils", "_rebuild_tensor_v2"),
        b"N}X\x0c\x00\x00\x00__defaults__N\x73\x86b",
    )
    with pytest.raises(CheckpointError):
        read_checkpoint(torch_zip(tmp_path / "a.pth", data))
    assert read_checkpoint(FOLDER / "zip.pth")


MARK, TUPLE1, SETITEMS = b"(", b"\x85", b"u"
SHARED_TUPLES = b")q\x00" + b"".join(
    b"h%c" % i + b"h%c" % i + b"\x86q%c" % (i + 1) for i in range(60)
)


@pytest.mark.parametrize(
    "data",
    [
        # A key that C cannot hash: 300,000 tuples deep, or 2**60 wide.
        opcode_pickle(b"}", MARK, b")", TUPLE1 * 300_000, b"K\x01", SETITEMS),
        opcode_pickle(b"}", MARK, SHARED_TUPLES, b"K\x01", SETITEMS),
        # A memo with room for 2**31 entries.
        opcode_pickle(b"}r\xff\xff\xff\x7f"),
        # A list in itself, ten times.
        opcode_pickle(b"]q\x00", MARK, b"h\x00" * 10, b"e"),
        opcode_pickle(b"}q\x00X\x01\x00\x00\x00ah\x00s"),
    ],
)
@pytest.mark.parametrize("container", ["zip", "legacy"])
def test_small_pickles_that_grow(data, container, tmp_path):
    path = tmp_path / "a.pth"
    if container == "zip":
        torch_zip(path, data)
    else:
        start = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
        parts = [pickle.dumps(part, 2) for part in start]
        path.write_bytes(b"".join(parts) + data + pickle.dumps(["0"], 2))
    with pytest.raises(CheckpointError):
        read_checkpoint(path)


def test_a_negative_view_is_not_taken_for_its_base(tmp_path):
    data = np.arange(6, dtype="float32").tobytes()
    pickled = tensor_pickle((2, 3), (3, 1), 6, metadata={"neg": True})
    with pytest.raises(CheckpointError, match="negative view"):
        read_checkpoint(torch_zip(tmp_path / "a.pth", pickled, {"0": data}))


def tensor_pickle(shape, stride, numel, offset=0, metadata=None):
    """A state dict with one float tensor, by torch's protocol."""

    class Persistent:
        def __init__(self, key):
            self.key = key

    buffer = io.BytesIO()

    class Pickler(pickle._Pickler):
        def persistent_id(self, value):
            return ("storage", Float, "0", "cpu", numel) if value is storage else None

        def save_global(self, value, name=None):
            modules = {"FloatStorage": "torch", "_rebuild_tensor_v2": "torch._utils"}
            if getattr(value, "__name__", "") in modules:
                self.write(global_(modules[value.__name__], value.__name__))
            else:
                super().save_global(value, name)

        dispatch = dict(pickle._Pickler.dispatch)
        dispatch[type] = save_global
        dispatch[type(lambda: 0)] = save_global

    Float = type("FloatStorage", (), {})
    storage = Persistent("0")

    def _rebuild_tensor_v2():
        raise AssertionError

    class Tensor:
        def __reduce__(self):
            arguments = (storage, offset, shape, stride, False, {}, metadata)
            return _rebuild_tensor_v2, arguments

    Pickler(buffer, 2).dump({"weight": Tensor()})
    return buffer.getvalue()


def test_a_plain_tensor_of_the_helper_is_read(tmp_path):
    data = np.arange(6, dtype="float32")
    pickled = tensor_pickle((2, 3), (3, 1), 6)
    path = torch_zip(tmp_path / "a.pth", pickled, {"0": data.tobytes()})
    assert np.array_equal(read_checkpoint(path)["weight"], data.reshape(2, 3))


@pytest.mark.parametrize(
    ("shape", "stride", "numel", "offset"),
    [
        ((2, 4), (4, 1), 6, 0),
        ((2, 3), (3, 1), 6, 1),
        ((2, 3), (300, 1), 6, 0),
        ((2, 3), (3, 1), 10**12, 0),
        ((10**6, 10**6), (0, 0), 6, 0),
        ((-2, 3), (3, 1), 6, 0),
        ((2, 3), (-3, 1), 6, 0),
        ((2, 3), (1,), 6, 0),
        ((2, 3.5), (3, 1), 6, 0),
    ],
)
def test_tensors_that_leave_their_storage(shape, stride, numel, offset, tmp_path):
    data = np.arange(6, dtype="float32").tobytes()
    pickled = tensor_pickle(shape, stride, numel, offset)
    with pytest.raises(CheckpointError):
        read_checkpoint(torch_zip(tmp_path / "a.pth", pickled, {"0": data}))


@pytest.mark.parametrize("name", ["zip.pth", "legacy.pth", "one.pth.zip", "half.pth"])
def test_truncated_files(name, tmp_path):
    content = (FOLDER / name).read_bytes()
    path = tmp_path / name
    for share in (0.0, 0.01, 0.1, 0.5, 0.9, 0.999):
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(CheckpointError, match=str(path)):
            read_checkpoint(path)


@pytest.mark.parametrize("name", ["zip.pth", "legacy.pth", "one.pth.zip"])
def test_damaged_files_never_raise_anything_else(name, tmp_path):
    content = bytearray((FOLDER / name).read_bytes())
    rng = np.random.default_rng(0)
    path = tmp_path / name
    for _ in range(150):
        damaged = content.copy()
        for position in rng.integers(0, len(content), 8):
            damaged[position] = rng.integers(0, 256)
        path.write_bytes(damaged)
        try:
            read_checkpoint(path)
        except CheckpointError:
            pass


def test_zip_bomb(tmp_path):
    path = tmp_path / "bomb.pth.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.pth", bytes(2**28))
    assert path.stat().st_size < 2**20
    with pytest.raises(CheckpointError, match="declares far more"):
        read_checkpoint(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_zip_that_lies_about_its_size(method, tmp_path):
    path = tmp_path / "bomb.pth.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("model.pth", bytes(2**26))
        archive.filelist[0].file_size = 100
    with pytest.raises(CheckpointError):
        read_checkpoint(path)


def test_zip_in_zip_in_zip(tmp_path):
    inner = FOLDER / "one.pth.zip"
    path = tmp_path / "two.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(inner, "one.pth.zip")
    with pytest.raises(CheckpointError, match="archive"):
        read_checkpoint(path)


def safetensors(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.mark.parametrize(
    "header",
    [
        b"{not json",
        [],
        {"a": 1},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 80]}},
        {"a": {"dtype": "F32", "shape": [20], "data_offsets": [0, 80]}},
        {"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}},
        {"a": {"dtype": "F8", "shape": [2], "data_offsets": [0, 2]}},
        {"a": {"dtype": "F32", "shape": "x", "data_offsets": [0, 4]}},
        {
            "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            "b": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        },
        b'{"a": 1, "a": 2}',
        {},
    ],
)
def test_broken_safetensors(header, tmp_path):
    with pytest.raises(CheckpointError):
        read_checkpoint(safetensors(tmp_path / "a.safetensors", header, bytes(8)))
    path = tmp_path / "b.safetensors"
    path.write_bytes(struct.pack("<Q", 2**62) + b"{" + bytes(8))
    with pytest.raises(CheckpointError, match="truncated"):
        read_checkpoint(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"hello, this is no checkpoint", "neither"),
        (pickle.dumps({"a": 1}), "not a PyTorch checkpoint"),
        (b"\x89HDF\r\n\x1a\n" + bytes(30), "Keras weights file"),
        (b"PK\x03\x04" + bytes(100), "archive"),
        (b"\x1f\x8b" + bytes(100), "neither"),
    ],
)
def test_other_files(content, message, tmp_path):
    path = tmp_path / "a.pth"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(path)


def test_directory_and_missing_file(tmp_path):
    with pytest.raises(CheckpointError, match="directory"):
        read_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="No such file"):
        read_checkpoint(tmp_path / "missing.pth")
