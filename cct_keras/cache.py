"""The cache folder of the package, shared by all its processes."""

import contextlib
import hashlib
import os
import pathlib
from collections.abc import Iterator

try:
    import fcntl
except ImportError:  # Windows has no such locks.
    fcntl = None


def cache_folder() -> pathlib.Path:
    """`cct_keras` in the folder where Keras keeps its models."""
    home = os.environ.get("KERAS_HOME") or pathlib.Path.home() / ".keras"
    return pathlib.Path(home) / "models" / "cct_keras"


@contextlib.contextmanager
def only_one_process(folder: pathlib.Path) -> Iterator[None]:
    """Lets other processes wait: two that append to one file would spoil it."""
    if fcntl is None:
        yield
        return
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def file_hash(path: pathlib.Path) -> str:
    """SHA-256 of a file, as it is now."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
