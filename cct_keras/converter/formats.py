"""The kinds of checkpoints there are; a new one is a row of `FORMATS`."""

import contextlib
from collections.abc import Callable
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cct_keras.converter import hugging_face
from cct_keras.converter import shi_labs
from cct_keras.converter import timm
from cct_keras.converter.name_table import NameTable
from cct_keras.converter.read import read_checkpoint
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
        arguments: Constructor arguments that its origin implies and no tensor tells.
    """

    name: str
    recognizes: Callable[[Mapping], bool]
    table: NameTable
    rename: Callable[[dict], dict] = dict
    arguments: Mapping[str, object] = {}


# The first that recognizes a checkpoint reads it.
FORMATS = [
    Format(
        "Hugging Face transformers",
        hugging_face.is_hugging_face,
        timm.TABLE,
        hugging_face.timm_names,
        {"epsilon": hugging_face.EPSILON},
    ),
    Format(
        "mirror of Compact-Transformers",
        shi_labs.is_mirror,
        shi_labs.TABLE,
        shi_labs.original_names,
    ),
    Format("timm", lambda state: "patch_embed.proj.weight" in state, timm.TABLE),
    Format("Compact-Transformers", lambda state: True, shi_labs.TABLE),
]


class Checkpoint(NamedTuple):
    """A checkpoint, read.

    Attributes:
        tensors: `{name: array}` by the names of `table`.
        table: The names.
        arguments: Constructor arguments that its kind implies.
        record: The architecture, if this package wrote it into the file.
    """

    tensors: dict[str, np.ndarray]
    table: NameTable
    arguments: Mapping[str, object]
    record: Architecture | None


def open_checkpoint(source, entry: str | None = None) -> Checkpoint:
    """Reads a checkpoint and recognizes its kind.

    Args:
        source: Path or http(s) URL of a checkpoint file, or a mapping of arrays.
        entry: Which entry of the file holds the weights.
    """
    state, metadata = read_checkpoint(source, entry)
    if all(name.startswith("module.") for name in state):
        state = {name.removeprefix("module."): x for name, x in state.items()}
    kind = next(row for row in FORMATS if row.recognizes(state))
    record = None
    if "cct_keras" in metadata:
        # Of an unknown family, or broken: then the tensors alone decide.
        with contextlib.suppress(ValueError):
            record = Architecture.from_json(metadata["cct_keras"])
    return Checkpoint(kind.rename(state), kind.table, kind.arguments, record)
