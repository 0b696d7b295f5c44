"""Features that were computed once, in the cache of the package.

A file begins with a line of JSON, which says what it holds and the hash of the bytes
behind it. What is not exactly as it was written counts as missing.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import time

import numpy as np

from cct_keras.atomic_file import TEMPORARY
from cct_keras.atomic_file import atomic_file
from cct_keras.cache import cache_folder
from cct_keras.errors import RecipeError

# How many GiB the features of all data and weights may take together.
LIMIT_VARIABLE = "CCT_KERAS_FEATURES_GIB"
DEFAULT_GIB = 2.0
LONGEST_HEADER = 2**20
# What a killed process left behind this many seconds ago is removed.
LEFT_BEHIND = 24 * 3600


def features_folder() -> pathlib.Path:
    """Where the features are kept."""
    return cache_folder() / "features"


def cache_key(facts: dict) -> str:
    """A name for what is computed from these facts.

    Args:
        facts: Everything that the features depend on, as JSON values.

    Example:

    >>> cache_key({"image_size": 16}) == cache_key({"image_size": 32})
    False
    """
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def read_features(key: str, shape: tuple[int, int]) -> tuple[np.ndarray, dict] | None:
    """Finds features in the cache.

    Args:
        key: What `cache_key` returned.
        shape: How many images there are, and how long their features are.

    Returns:
        float32 features, a row for each image that could be read, and what was noted
        with them. `None` if there are none, or if the file is not as it was written.
    """
    path = features_folder() / key
    try:
        with path.open("rb") as file:
            header = json.loads(file.readline(LONGEST_HEADER))
            count, width = header["shape"]
            expected = 4 * count * width
            if header["key"] != key or width != shape[1] or not 0 < count <= shape[0]:
                return None
            if os.fstat(file.fileno()).st_size != file.tell() + expected:
                return None
            content = file.read(expected)
        noted = dict(header["noted"])
        if _hash(content, noted) != header["sha256"]:
            return None
        features = np.frombuffer(content, "<f4").reshape(count, width)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # The oldest go first when the cache is full.
    return features, noted


def write_features(key: str, features: np.ndarray, noted: dict) -> str | None:
    """Puts features into the cache, where the oldest make room for them.

    Args:
        key: What `cache_key` returned.
        features: A row for each image.
        noted: JSON values that belong to them.

    Returns:
        Why they could not be kept; `None` if they were.
    """
    limit = _limit()
    content = np.ascontiguousarray(features, "<f4").tobytes()
    if len(content) > limit:
        return f"they take {len(content) / 2**30:.1f} GiB ({LIMIT_VARIABLE})"
    header = {
        "key": key,
        "shape": features.shape,
        "sha256": _hash(content, noted),
        "noted": noted,
    }
    folder = features_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_file(folder / key) as temporary, temporary.open("wb") as file:
            file.write(json.dumps(header).encode() + b"\n")
            file.write(content)
    except OSError as error:
        return str(error)
    _make_room(folder, limit)
    return None


def _hash(content, noted):
    text = json.dumps(noted, sort_keys=True)
    return hashlib.sha256(text.encode() + content).hexdigest()


def cache_is_on() -> bool:
    """Whether the user lets features be kept."""
    return _limit() > 0


def _limit():
    text = os.environ.get(LIMIT_VARIABLE, "")
    try:
        limit = float(text or DEFAULT_GIB)
    except ValueError:
        limit = -1.0
    if not limit >= 0:
        raise RecipeError(
            f"{LIMIT_VARIABLE} must be a number of GiB of 0 or more. Received: {text!r}"
        )
    return limit * 2**30


def _make_room(folder, limit):
    """Removes the files that were not used for longest."""
    found = []
    for path in folder.iterdir():
        # Another process may have removed it by now, or be reading it.
        with contextlib.suppress(OSError):
            status = path.stat()
            if not path.name.startswith(TEMPORARY):
                found.append((status.st_mtime, status.st_size, path))
            elif time.time() - status.st_mtime > LEFT_BEHIND:
                path.unlink()
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= limit:
            return
        with contextlib.suppress(OSError):
            path.unlink()
            total -= size
