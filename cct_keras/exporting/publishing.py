"""Where an export goes: checked before any work, taken in one step at the end."""

import contextlib
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

from cct_keras.atomic_file import TEMPORARY
from cct_keras.atomic_file import atomic_file
from cct_keras.errors import ExportError
from cct_keras.exporting.settings import ExportSettings
from cct_keras.runtime.single_file import single_file

# Holds the comparison of each exported file with its model, by the name of the file.
PARITY = "parity.json"
SCRIPT = "predict.py"
# In the first lines of every script that the package writes.
SCRIPT_MARK = "cct_keras"


def check_target(path: pathlib.Path, settings: ExportSettings, script: bool) -> None:
    """Refuses a place that cannot be written, or that holds something else.

    Args:
        path: Where the export goes.
        settings: The choices of the export.
        script: Whether `predict.py` goes beside it.
    """
    parent = path.absolute().parent
    if not parent.is_dir():
        raise ExportError(f"the folder {path.parent} does not exist")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise ExportError(f"the folder {path.parent} cannot be written")
    if settings.row.suffix is not None:
        if path.is_dir():
            raise ExportError(f"{path} is a folder, and a file is to be written")
        read_parity(path.parent / PARITY)
    elif path.exists():
        _check_folder(path)
    target = (path.parent if settings.row.suffix else path) / SCRIPT
    if script and target.exists() and SCRIPT_MARK not in _beginning(target):
        raise ExportError(f"{target} was not written by this package; move it away")


def _check_folder(path):
    if not path.is_dir():
        raise ExportError(f"{path} is a file, and a folder is to be written")
    if any(path.iterdir()) and not (path / PARITY).is_file():
        raise ExportError(
            f"the folder {path} is not empty, and was not written by an export"
        )
    read_parity(path / PARITY)


def read_parity(file: pathlib.Path) -> dict:
    """The comparisons of earlier exports; refuses a file that is something else."""
    if not file.exists():
        return {}
    try:
        content = json.loads(file.read_text())
        if all("largest_difference" in record for record in content.values()):
            return content
    except (OSError, ValueError, AttributeError, TypeError):
        pass
    raise ExportError(f"{file} was not written by this package; move it away")


@contextlib.contextmanager
def staging_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder beside `path` in which an export is made; it vanishes in any case."""
    try:
        folder = tempfile.mkdtemp(prefix=TEMPORARY, dir=path.absolute().parent)
    except OSError as error:
        raise ExportError(f"{path} cannot be written: {error.strerror}") from error
    try:
        yield pathlib.Path(folder)
    except OSError as error:
        reason = error.strerror or error
        raise ExportError(f"{path} cannot be written: {reason}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(
    made: tuple[pathlib.Path, ...], path: pathlib.Path, record: dict, script: bool
) -> list[pathlib.Path]:
    """Moves a checked export to its place, with its comparison beside or in it.

    Args:
        made: The files, or the one folder, of the export.
        path: Where it goes.
        record: The comparison with its model.
        script: Whether to write `predict.py`.

    Returns:
        The paths of everything that was written.
    """
    if made[0].is_dir():
        _write_beside(made[0], {path.name: record}, script)
        _replace_folder(made[0], path)
        return [path]
    for file in made:
        _share(file)
    # A file of weights first: an old graph never meets it for long.
    for file in reversed(made):
        os.replace(file, path.with_name(file.name))
    records = {**read_parity(path.parent / PARITY), path.name: record}
    beside = _write_beside(path.parent, records, script)
    return [*(path.with_name(file.name) for file in made), *beside]


def _write_beside(folder, records, script):
    written = [folder / PARITY]
    with atomic_file(written[0]) as temporary:
        temporary.write_text(json.dumps(records, indent=2) + "\n")
    if script:
        written.append(folder / SCRIPT)
        with atomic_file(written[1]) as temporary:
            temporary.write_text(single_file())
    return written


def _replace_folder(made, path):
    """Puts a folder in the place of an earlier export."""
    _share(made)
    if path.exists():
        old = made.with_name(f"{made.name}-before")
        os.replace(path, old)
    os.replace(made, path)


def _share(path):
    """Gives what was made in a private folder the rights of any other file."""
    mask = os.umask(0)
    os.umask(mask)
    for item in [path, *(path.rglob("*") if path.is_dir() else [])]:
        item.chmod((0o777 if item.is_dir() else 0o666) & ~mask)


def _beginning(file):
    with file.open(errors="replace") as text:
        return text.read(2000)
