"""The kinds of checkpoints there are; a new one is a row of `FORMATS`."""

import contextlib
import os
import pathlib
import re
from collections.abc import Callable
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cct_keras.converter import google
from cct_keras.converter import hugging_face
from cct_keras.converter import open_clip
from cct_keras.converter import shi_labs
from cct_keras.converter import timm
from cct_keras.converter.hub_config import NOTHING
from cct_keras.converter.hub_config import Told
from cct_keras.converter.hub_model import HubModel
from cct_keras.converter.hub_model import checkpoint_in
from cct_keras.converter.hub_model import named_after
from cct_keras.converter.hub_model import open_hub_model
from cct_keras.converter.hub_model import read_neighbors
from cct_keras.converter.name_table import NameTable
from cct_keras.converter.read import MOST_WRAPPERS
from cct_keras.converter.read import read_checkpoint
from cct_keras.converter.read import say_unneeded
from cct_keras.download import is_url
from cct_keras.errors import CheckpointError
from cct_keras.hub import is_hub
from cct_keras.models.architecture import Architecture

# By the name that a family's row gives.
NAME_TABLES = {"shi_labs": shi_labs.TABLE, "timm": timm.TABLE}


class Format(NamedTuple):
    """One kind of checkpoint.

    Attributes:
        name: What it is called.
        recognizes: Whether a state dict is of this kind, by its names.
        table: The names of its tensors, after `rename`.
        rename: From its own names to those of the table.
        unneeded: Patterns of names, after `rename`, of what only its training needs:
            decoders, projections for a loss, poolers that no head reads; or a function
            that returns them for a state dict.
        arguments: From the state dict to constructor arguments that its origin or its
            own layout implies and no tensor of the table tells.
    """

    name: str
    recognizes: Callable[[Mapping], bool]
    table: NameTable
    rename: Callable[[dict], dict] = dict
    unneeded: tuple[str, ...] | Callable[[Mapping], tuple[str, ...]] = ()
    arguments: Callable[[Mapping], Mapping[str, object]] = lambda state: {}


# The first that recognizes a checkpoint reads it.
FORMATS = [
    Format(
        "Hugging Face transformers",
        hugging_face.is_hugging_face,
        timm.TABLE,
        hugging_face.timm_names,
        hugging_face.unneeded,
        hugging_face.arguments,
    ),
    Format(
        "open_clip",
        open_clip.is_open_clip,
        timm.TABLE,
        open_clip.timm_names,
        open_clip.UNNEEDED,
        open_clip.arguments,
    ),
    Format(
        "mirror of Compact-Transformers",
        shi_labs.is_mirror,
        shi_labs.TABLE,
        shi_labs.original_names,
    ),
    Format(
        "Google's ViT",
        google.is_google,
        timm.TABLE,
        google.timm_names,
        arguments=google.arguments,
    ),
    Format(
        "timm",
        timm.is_timm,
        timm.TABLE,
        timm.plain_names,
        timm.UNNEEDED,
        timm.arguments,
    ),
    Format("Compact-Transformers", lambda state: True, shi_labs.TABLE),
]


class Checkpoint(NamedTuple):
    """A checkpoint, read.

    Attributes:
        tensors: `{name: array}` by the names of `table`.
        table: The names.
        arguments: Constructor arguments that its kind implies.
        record: The architecture, if this package wrote it into the file.
        told: What stands beside the file, in a repository of the hub or a folder.
    """

    tensors: dict[str, np.ndarray]
    table: NameTable
    arguments: Mapping[str, object]
    record: Architecture | None
    told: Told = NOTHING

    @property
    def states_settings(self) -> bool:
        """Whether heads, epsilon and activation are known, which no shape tells."""
        return self.record is not None or self.told.settings_are_known

    @property
    def tells_activation(self) -> bool:
        """Whether the activation is known and not assumed."""
        return self.record is not None or "activation" in self.told.arguments


def open_checkpoint(source, entry: str | None = None) -> Checkpoint:
    """Reads a checkpoint and recognizes its kind.

    Args:
        source: Path, http(s) URL or hf:// address of a checkpoint file, a folder with
            one that `save_pretrained` wrote, or a mapping of arrays.
        entry: Which entry of the file holds the weights.
    """
    if is_hub(source):
        source = open_hub_model(source)
    if isinstance(source, HubModel):
        if source.is_keras:
            raise CheckpointError(
                f"{source.address}: {source.name} is a Keras file already; load it by "
                "create_model(weights=...)"
            )
        with named_after(source.address, source.path):
            return _open_checkpoint(source.path, entry, source.told)
    told = NOTHING
    if isinstance(source, (str, os.PathLike)) and not is_url(source):
        path = pathlib.Path(source)
        if path.is_dir():
            source = path = checkpoint_in(path) or path
        told = read_neighbors(path)
    return _open_checkpoint(source, entry, told)


def _open_checkpoint(source, entry, told):
    state, metadata = read_checkpoint(source, entry)
    kind, state = _recognize(state)
    record = None
    if "cct_keras" in metadata:
        # Of an unknown family, or broken: then the tensors alone decide.
        with contextlib.suppress(ValueError):
            record = Architecture.from_json(metadata["cct_keras"])
    if record is not None:
        # Of our own writing, by the names of the table.
        return Checkpoint(dict(state), kind.table, record.arguments, record, told)
    unneeded = kind.unneeded(state) if callable(kind.unneeded) else kind.unneeded
    tensors = _without(kind.rename(state), unneeded)
    arguments = {**kind.arguments(state), **told.arguments}
    return Checkpoint(tensors, kind.table, arguments, None, told)


def _recognize(state):
    """The kind of a checkpoint, and its tensors by the names that the model gave them.

    A training script may call its model what it likes, and all names begin with that.
    """
    for _ in range(MOST_WRAPPERS):
        kind = next(row for row in FORMATS if row.recognizes(state))
        first = {name.partition(".")[0] for name in state if "." in name}
        is_wrapped = len(first) == 1 and all("." in name for name in state)
        if kind is not FORMATS[-1] or not is_wrapped:
            break
        prefix = f"{first.pop()}."
        state = {name.removeprefix(prefix): array for name, array in state.items()}
    return kind, state


def _without(tensors, unneeded):
    """The tensors without those that only training needs, which are said."""
    pattern = re.compile("|".join(f"(?:{name})" for name in unneeded) or "(?!)")
    left_out = [name for name in tensors if pattern.fullmatch(name)]
    if left_out:
        say_unneeded(left_out)
    return {name: x for name, x in tensors.items() if not pattern.fullmatch(name)}
