"""A checkpoint in any of its wrappings into `{name: array}`."""

import io
import logging
import pathlib
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping

import numpy as np

from cct_keras.converter.allowance import Allowance
from cct_keras.converter.npz_file import read_npz
from cct_keras.converter.safetensors_file import read_safetensors
from cct_keras.converter.sharded_file import read_index
from cct_keras.converter.torch_file import open_zip
from cct_keras.converter.torch_file import read_entry
from cct_keras.converter.torch_file import read_legacy
from cct_keras.converter.torch_file import read_zip
from cct_keras.download import download
from cct_keras.download import forget_on_error
from cct_keras.download import is_url
from cct_keras.errors import CheckpointError
from cct_keras.errors import shorten

logger = logging.getLogger("cct_keras")
# A training script's names for the weights, the averaged ones first: they are
# what timm evaluates and publishes. DINO's teacher is an average, too.
ENTRIES = (
    "state_dict_ema",
    "model_ema",
    "ema_model",
    "net_ema",
    "ema_net",
    "ema_state_dict",
    "ema",
    "params_ema",
    "teacher",
    "state_dict",
    "model",
    "model_state_dict",
    "net",
    "network",
    "module",
    "weights",
    "params",
    "student",
    "online_model",
)
# What wraps a model puts its own name before those of the tensors.
WRAPPERS = ("module.", "_orig_mod.", "model.", "net.", "student.", "teacher.")
MOST_WRAPPERS = 5
# What puts its own name in the middle, too: around a block that is compiled, sharded or
# computed twice.
INNER_WRAPPERS = re.compile(
    r"(?<![^.])(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
)
# What a module of a training script keeps beside its model: the weights of the classes
# in its loss, and running sums.
BESIDE = re.compile(
    r"(?:\w*(?:criterion|criteria|loss|metric)\w*|(?:train|val|valid|test)_\w+)\..+"
)
# Tensors that a wrapper adds: how many weights `AveragedModel` has averaged, or
# `ema_pytorch`, and whether it has begun.
WRAPPERS_OWN = ("n_averaged", "initted", "step")
# No model has more; every one of them is looked for by its name.
MOST_TENSORS = 10_000
# Of names in a message, and how many of them.
LONGEST_NAME, MOST_NAMED = 80, 8


def read_checkpoint(
    source, entry: str | None = None
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Reads the weights of a checkpoint; no torch is needed, no code is run.

    Args:
        source: Path or http(s) URL of a `.pth`, `.pt`, `.bin`, `.ckpt`, `.pth.zip`,
            `.npz` or `.safetensors` file, which its content tells and not its name; the
            path of the index of a checkpoint in several files, which stand beside it;
            or a mapping of arrays or torch tensors.
        entry: Which entry holds the weights, for files with more than one.
            Defaults to averaged weights if there are any, then to `state_dict`,
            `model` and the like, else to the file itself.

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
        raise CheckpointError(
            f"{path} is a directory, and holds no checkpoint by a name that is known; "
            "give the path of a file"
        )
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            return _read_file(file, size, Allowance(size))
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from error
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except Exception as error:
        # Whatever a damaged file makes the readers stumble over.
        text = f"{type(error).__name__}: {shorten(str(error), 200)}"
        raise CheckpointError(f"{path}: a broken file: {text}") from error


def _read_file(file, size, allowance, inside_zip=False):
    """The content of a file and its metadata, by whichever reader knows its start."""
    start = file.read(16)
    file.seek(0)
    for recognizes, reader in READERS:
        if recognizes(start):
            return reader(file, size, allowance, inside_zip)
    if not start:
        raise CheckpointError("the file is empty")
    raise CheckpointError("neither a PyTorch checkpoint nor a safetensors file")


def _read_pickle(file, size, allowance, inside_zip):
    return read_legacy(file, size, allowance), {}


def _read_safetensors(file, size, allowance, inside_zip):
    return read_safetensors(file, size, allowance)


def _read_shards(file, size, allowance, inside_zip):
    if inside_zip or not hasattr(file, "name"):
        raise CheckpointError("a JSON file inside an archive is no checkpoint")
    path = pathlib.Path(file.name)
    places = read_index(path)
    content, metadata = {}, {}
    for shard in dict.fromkeys(places.values()):
        found, told = _read_path(path.with_name(shard))
        expected = {name for name, file in places.items() if file == shard}
        if found.keys() != expected:
            differing = sorted(map(str, found.keys() ^ expected))
            raise CheckpointError(
                f"{shard} holds other tensors than the index says: "
                + ", ".join(differing[:4])
            )
        content |= found
        metadata |= told
    return content, metadata


def _refuse_hdf5(file, size, allowance, inside_zip):
    raise CheckpointError(
        "a Keras weights file needs no conversion, but its name has to end in "
        ".weights.h5 or .keras"
    )


def _read_archive(file, size, allowance, inside_zip):
    try:
        with open_zip(file, allowance) as archive:
            names = [
                info.filename
                for info in archive.infolist()
                if not info.is_dir() and not info.filename.startswith("__MACOSX/")
            ]
            if any(name.endswith("/constants.pkl") for name in names):
                raise CheckpointError(
                    "refused: a TorchScript archive, which holds a program; nothing "
                    "was run; save its weights alone, with torch: `model = "
                    "torch.jit.load(PATH)`, `torch.save(model.state_dict(), "
                    "'weights.pth')`"
                )
            pickles = [n for n in names if n == "data.pkl" or n.endswith("/data.pkl")]
            if len(pickles) == 1:
                return read_zip(file, archive, pickles[0], allowance), {}
            if names and all(name.endswith(".npy") for name in names):
                return read_npz(file, archive, names, allowance), {}
            if len(names) == 1 and not inside_zip:
                inner = read_entry(file, archive, names[0], allowance)
                stream = io.BytesIO(inner)
                return _read_file(stream, len(inner), allowance, inside_zip=True)
    except BROKEN_ARCHIVE as error:
        raise CheckpointError(f"a broken or truncated archive: {error}") from error
    raise CheckpointError(
        f"an archive with {len(names)} files, neither a PyTorch checkpoint nor a zip "
        "with one inside"
    )


# What `zipfile` raises.
BROKEN_ARCHIVE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OSError,
    # Fields of a directory that were cut, names that are no text.
    IndexError,
    UnicodeDecodeError,
)
# How the first bytes of a file tell what it is, and who reads it.
READERS = [
    (lambda start: start[:4] == b"PK\x03\x04", _read_archive),
    (lambda start: start[8:9] == b"{", _read_safetensors),
    (lambda start: start[:1] == b"{", _read_shards),
    (lambda start: start[:8] == b"\x89HDF\r\n\x1a\n", _refuse_hdf5),
    (lambda start: start[:1] == b"\x80", _read_pickle),
]


def _weights(content, entry, origin):
    content = _divided(content)
    # Many names may stand for one mapping.
    values = {id(value): value for value in content.values()}
    found = {number for number, value in values.items() if _holds_weights(value)}
    entries = [name for name, value in content.items() if id(value) in found]
    if entry is not None:
        if entry not in entries:
            raise CheckpointError(
                f"{origin} has no entry {entry!r} with weights; it has: "
                f"{_listed(entries) or 'none'}"
            )
        content = content[entry]
    elif entries or not _holds_weights(content):
        known = [key for key in ENTRIES if key in entries]
        # Whatever a script calls it, if there is but one.
        chosen = (known or (entries if len(entries) == 1 else [])) or [None]
        if chosen[0] is None and entries:
            raise CheckpointError(
                f"{origin} has several entries with weights: "
                f"{_listed(entries)}; name one, entry=..."
            )
        if chosen[0] is not None:
            content = content[chosen[0]]
        if len(entries) > 1:
            others = _listed([name for name in entries if name != chosen[0]])
            logger.info(
                "the weights in %s are taken; entry=... takes others: %s",
                shorten(repr(chosen[0]), LONGEST_NAME),
                others,
            )
    if len(content) > MOST_TENSORS:
        raise CheckpointError(
            f"{origin} holds {len(content)} tensors or other values, and no model has "
            f"more than {MOST_TENSORS}"
        )
    state, others = {}, []
    for name, value in content.items():
        array = _to_array(value)
        if array is None or not isinstance(name, str):
            others.append(name)
        else:
            state[name] = array
    if others and state:
        raise CheckpointError(
            f"{origin} mixes weights with something else: {_listed(others)}"
        )
    if not state:
        raise CheckpointError(
            f"{origin} holds no weights"
            + (f"; it holds: {_listed(others)}" if others else "")
        )
    return _unwrapped(state)


def _listed(names):
    """The first of them, each in few words."""
    return ", ".join(shorten(str(name), LONGEST_NAME) for name in names[:MOST_NAMED])


def _divided(content):
    """A model and its average below one module of a training script, as two entries."""
    parts = _parts(content)
    if parts:
        return parts
    result = {}
    for name, value in content.items():
        result |= _parts(value) or {name: value}
    return result


def _parts(value):
    """Mappings by the first parts of the names, if those are several known entries."""
    if not _holds_weights(value) or not all(isinstance(name, str) for name in value):
        return {}
    parts, beside = {}, []
    for name, tensor in value.items():
        first, _, rest = name.partition(".")
        if BESIDE.fullmatch(name) or name in WRAPPERS_OWN:
            beside.append(name)
        else:
            parts.setdefault(first, {})[rest] = tensor
    if len(parts) < 2 or not parts.keys() <= set(ENTRIES):
        return {}
    if beside:
        say_unneeded(beside)
    return parts


def _holds_weights(value):
    """Whether it is a mapping of names to tensors, most of it at least."""
    if not isinstance(value, Mapping) or not value:
        return False
    tensors = sum(_is_tensor(item) for item in value.values())
    return 2 * tensors > len(value)


def _is_tensor(value):
    return hasattr(value, "shape") and getattr(value, "ndim", 0) > 0


def _unwrapped(state):
    """The tensors by the names that the model itself gave them."""
    beside = [name for name in state if BESIDE.fullmatch(name)]
    if beside and len(beside) < len(state):
        say_unneeded(beside)
        state = {name: x for name, x in state.items() if name not in beside}
    inner = {INNER_WRAPPERS.sub("", name): array for name, array in state.items()}
    if len(inner) == len(state):
        state = inner
    for _ in range(MOST_WRAPPERS):
        counts = [name for name in WRAPPERS_OWN if name in state]
        if counts and len(counts) < len(state):
            say_unneeded(counts)
            state = {k: v for k, v in state.items() if k not in counts}
        prefix = next(
            (x for x in WRAPPERS if all(name.startswith(x) for name in state)), ""
        )
        state = {name.removeprefix(prefix): array for name, array in state.items()}
    return state


def say_unneeded(names: list[str]) -> None:
    """Says which tensors of a file are left out, by the first of their names."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    named = ", ".join(shorten(name, LONGEST_NAME) for name in names[:3])
    logger.info("not needed: %s%s", named, more)


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
