"""A checkpoint in any of its wrappings into `{name: array}`."""

import io
import pathlib
import zipfile
from collections.abc import Mapping

import numpy as np

from cct_keras.converter.safetensors_file import read_safetensors
from cct_keras.converter.torch_file import read_entry
from cct_keras.converter.torch_file import read_legacy
from cct_keras.converter.torch_file import read_zip
from cct_keras.download import download
from cct_keras.download import forget_on_error
from cct_keras.download import is_url
from cct_keras.errors import CheckpointError

# A training script's names for the weights, the averaged ones first: they are
# what timm evaluates and publishes.
ENTRIES = ("state_dict_ema", "state_dict", "model", "model_state_dict")
# Members of an archive may declare this many bytes, or so many times its size.
UNPACKED_LIMIT, UNPACKED_RATIO = 2**26, 20


def read_checkpoint(
    source, entry: str | None = None
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Reads the weights of a checkpoint; no torch is needed, no code is run.

    Args:
        source: Path or http(s) URL of a `.pth`, `.pt`, `.bin`, `.pth.zip` or
            `.safetensors` file, or a mapping of arrays or torch tensors.
        entry: Which entry holds the weights, for files with more than one.
            Defaults to the first there is of `state_dict_ema`, `state_dict`,
            `model` and `model_state_dict`, else the file itself.

    Returns:
        `{name: array}`, and the texts that the file holds beside them.
    """
    if isinstance(source, Mapping):
        return _weights(source, entry, "the mapping"), {}
    if is_url(source):
        path = download(source)
        with forget_on_error(path):
            content, metadata = _read_path(path)
    else:
        content, metadata = _read_path(pathlib.Path(source))
    return _weights(content, entry, str(source)), metadata


def _read_path(path):
    if path.is_dir():
        raise CheckpointError(f"{path} is a directory, not a checkpoint file")
    try:
        with path.open("rb") as file:
            return _read_file(file, path.stat().st_size)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from error
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except Exception as error:
        # Whatever a damaged file makes the readers stumble over.
        raise CheckpointError(f"{path}: a broken file: {error!r}") from error


def _read_file(file, size, inside_zip=False):
    """The content of a file and its metadata, by whichever reader knows its start."""
    start = file.read(16)
    file.seek(0)
    for recognizes, reader in READERS:
        if recognizes(start):
            return reader(file, size, inside_zip)
    if not start:
        raise CheckpointError("the file is empty")
    raise CheckpointError("neither a PyTorch checkpoint nor a safetensors file")


def _read_pickle(file, size, inside_zip):
    return read_legacy(file), {}


def _read_safetensors(file, size, inside_zip):
    return read_safetensors(file, size)


def _refuse_hdf5(file, size, inside_zip):
    raise CheckpointError(
        "a Keras weights file needs no conversion, but its name has to end in "
        ".weights.h5 or .keras"
    )


def _read_archive(file, size, inside_zip):
    try:
        with zipfile.ZipFile(file) as archive:
            members = [
                info
                for info in archive.infolist()
                if not info.is_dir() and not info.filename.startswith("__MACOSX/")
            ]
            limit = max(UNPACKED_LIMIT, UNPACKED_RATIO * size)
            if sum(info.file_size for info in members) > limit:
                raise CheckpointError("the archive declares far more than it holds")
            names = [info.filename for info in members]
            pickles = [n for n in names if n == "data.pkl" or n.endswith("/data.pkl")]
            if len(pickles) == 1:
                return read_zip(file, archive, pickles[0]), {}
            if len(names) == 1 and not inside_zip:
                inner = read_entry(file, archive, names[0])
                return _read_file(io.BytesIO(inner), len(inner), inside_zip=True)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, OSError) as error:
        raise CheckpointError(f"a broken or truncated archive: {error}") from error
    raise CheckpointError(
        f"an archive with {len(names)} files, neither a PyTorch checkpoint nor a zip "
        "with one inside"
    )


# How the first bytes of a file tell what it is, and who reads it.
READERS = [
    (lambda start: start[:4] == b"PK\x03\x04", _read_archive),
    (lambda start: start[8:9] == b"{", _read_safetensors),
    (lambda start: start[:8] == b"\x89HDF\r\n\x1a\n", _refuse_hdf5),
    (lambda start: start[:1] == b"\x80", _read_pickle),
]


def _weights(content, entry, origin):
    if entry is not None:
        if not isinstance(content.get(entry), Mapping):
            entries = [k for k, v in content.items() if isinstance(v, Mapping)]
            raise CheckpointError(
                f"{origin} has no entry {entry!r}; it has: {entries or 'none'}"
            )
        content = content[entry]
    else:
        for key in ENTRIES:
            if isinstance(content.get(key), Mapping):
                content = content[key]
                break
    state, others = {}, []
    for name, value in content.items():
        array = _to_array(value)
        if array is None or not isinstance(name, str):
            others.append(str(name))
        else:
            state[name] = array
    if others:
        raise CheckpointError(
            f"{origin} mixes weights with something else: {', '.join(others[:8])}"
        )
    if not state:
        raise CheckpointError(f"{origin} holds no weights")
    return state


def _to_array(value):
    """An array of real numbers, or `None`."""
    try:
        if hasattr(value, "detach"):
            value = value.detach().cpu()
            if str(value.dtype) == "torch.bfloat16":
                value = value.float()
            value = value.numpy()
        if not hasattr(value, "__array__"):
            return None
        array = np.asarray(value)
    except (TypeError, RuntimeError, NotImplementedError):
        return None
    if array.dtype.name == "bfloat16":
        array = array.astype("float32")
    return array if array.dtype.kind in "fiub" else None
