import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator

# What a killed process leaves behind begins with it.
TEMPORARY = ".cct_keras-"


@contextlib.contextmanager
def atomic_file(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A temporary file that becomes `path` when all went well, else vanishes."""
    suffix = "".join(path.suffixes[-2:])
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist")
    handle, name = tempfile.mkstemp(suffix=suffix, prefix=TEMPORARY, dir=path.parent)
    os.close(handle)
    temporary = pathlib.Path(name)
    try:
        yield temporary
        # mkstemp makes private files; this one is to be shared like any other.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
