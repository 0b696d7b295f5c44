"""Image files in folders."""

import os
import pathlib
from collections.abc import Iterator

from cct_keras.errors import DataError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")


def list_images(folder: pathlib.Path) -> list[pathlib.Path]:
    """Lists all image files below a folder, in sorted order.

    Args:
        folder: The folder. Hidden files and folders are left out.

    Example:

    >>> list_images(pathlib.Path("photos"))  # Needs the files.  # doctest: +SKIP
    [PosixPath('photos/cat/1.jpg'), PosixPath('photos/dog/1.jpg')]
    """
    return [path for path in walk_files(folder) if is_image(path)]


def walk_files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """All files below a folder that are not hidden, in sorted order."""
    for place, folders, files in os.walk(folder, onerror=refuse_folder):
        folders[:] = sorted(name for name in folders if is_visible(name))
        for name in sorted(files):
            if is_visible(name):
                yield pathlib.Path(place, name)


def refuse_folder(error: OSError) -> None:
    """Raises a `DataError` for a folder that cannot be listed."""
    raise DataError(f"{error.filename}: {error.strerror}") from error


def is_visible(name: str) -> bool:
    """Whether a file or folder is neither hidden nor left behind by an archiver."""
    return name[0] != "." and name != "__MACOSX"


def is_image(path: pathlib.Path) -> bool:
    """Whether a file is an image, by its suffix.

    Example:

    >>> is_image(pathlib.Path("photo.JPG")), is_image(pathlib.Path("notes.txt"))
    (True, False)
    """
    return path.suffix.lower() in IMAGE_SUFFIXES
