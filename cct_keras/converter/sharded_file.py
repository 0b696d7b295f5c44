"""Checkpoints in several files: an index names the file of each tensor."""

import pathlib
import re

from cct_keras.errors import CheckpointError
from cct_keras.hub import read_document

INDEX_SUFFIX = ".index.json"
MOST_SHARDS = 1000


def read_index(path: pathlib.Path) -> dict[str, str]:
    """The files of the tensors.

    Args:
        path: A file such as `model.safetensors.index.json`.

    Returns:
        `{name of the tensor: name of the file beside the index}`
    """
    places = read_document(path, path.name).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise CheckpointError(f"{path} names no files in `weight_map`")
    for file in places.values():
        if not isinstance(file, str) or not re.fullmatch(r"[\w-][\w.-]*", file):
            raise CheckpointError(
                f"{path} names something else than a file beside it: {file!r}"
            )
        if file.endswith(".json"):
            raise CheckpointError(f"{path} names another index: {file}")
    if len(set(places.values())) > MOST_SHARDS:
        raise CheckpointError(
            f"{path} names {len(set(places.values()))} files, more than {MOST_SHARDS}"
        )
    return places
