"""Image files that cannot be read: they are named, left out and counted."""

import pathlib
import sys

import numpy as np

from cct_keras.data.raw import RawData
from cct_keras.errors import DataError

NAMED = 10


def leave_out_broken(raw: RawData, broken: dict[pathlib.Path, str]) -> RawData:
    """Leaves broken files out of a data set, and names the first of them on stderr.

    Args:
        raw: The data set.
        broken: The reason by path, for files that cannot be read.

    Returns:
        The data set without these files, with a note about them. It is an error if
        a split has no other images.
    """
    splits = {}
    for name, split in raw.splits.items():
        if not len(split):
            splits[name] = split
            continue
        if split.has_files and broken:
            split = split.select(
                np.array([path not in broken for path in split.images])
            )
        if not len(split):
            raise DataError(f"{raw.name}: there is no readable image in {name}")
        splits[name] = split
    if not broken:
        return raw
    named = list(broken)[:NAMED]
    for path in named:
        print(f"skipped {path}: {broken[path]}", file=sys.stderr)
    listed = ", ".join(str(path) for path in named)
    more = f" and {len(broken) - NAMED} more" if len(broken) > NAMED else ""
    note = f"{len(broken)} broken files were skipped: {listed}{more}"
    return raw.with_splits(splits, [note])
