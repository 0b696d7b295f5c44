"""Which reader reads which source: a row a reader."""

import os
import pathlib
from collections.abc import Callable
from typing import NamedTuple

from cct_keras.data.raw import RawData
from cct_keras.data.readers.arrays import is_arrays
from cct_keras.data.readers.arrays import read_arrays
from cct_keras.data.readers.digits import is_digits
from cct_keras.data.readers.digits import read_digits
from cct_keras.data.readers.folder import is_folder
from cct_keras.data.readers.folder import read_folder
from cct_keras.data.readers.idx import is_idx_folder
from cct_keras.data.readers.idx import read_idx
from cct_keras.data.readers.npz import is_npz_file
from cct_keras.data.readers.npz import read_npz
from cct_keras.data.readers.tfds import is_tfds_name
from cct_keras.data.readers.tfds import read_tfds
from cct_keras.errors import DataError


class Reader(NamedTuple):
    """A reader of one kind of source.

    Attributes:
        name: What it reads.
        accepts: Function of a source that tells whether this reader reads it. A
            source is a `pathlib.Path` if there is such a file or folder, another
            string as it was given, or anything else.
        read: Function of a source that returns `RawData`.
        takes_data_dir: Whether `read` takes the folder of prepared data sets as
            `data_dir=`.
    """

    name: str
    accepts: Callable[[object], bool]
    read: Callable[..., RawData]
    takes_data_dir: bool = False


# The first reader that accepts a source reads it.
READERS = (
    Reader("arrays", is_arrays, read_arrays),
    Reader("folder of idx files", is_idx_folder, read_idx),
    Reader("folder of image files", is_folder, read_folder),
    Reader(".npz file", is_npz_file, read_npz),
    Reader("digits", is_digits, read_digits),
    Reader("tensorflow-datasets", is_tfds_name, read_tfds, takes_data_dir=True),
)


def read_source(source, *, data_dir: str | os.PathLike | None = None) -> RawData:
    """Reads a data set with the reader that accepts it.

    Args:
        source: See `cct_keras.load_data`.
        data_dir: Folder where tensorflow-datasets keeps its prepared data sets.

    Example:

    >>> read_source("digits").class_names[:3]
    ('0', '1', '2')
    """
    source = _path_or_name(source)
    reader = find_reader(source)
    if reader is not None:
        options = {"data_dir": data_dir} if reader.takes_data_dir else {}
        return reader.read(source, **options)
    if isinstance(source, pathlib.Path):
        raise DataError(
            f"{source}: a data set is a folder, an .npz file or a name; "
            "this is another file"
        )
    raise DataError(f"no such file or folder: {source}")


def find_reader(source) -> Reader | None:
    """Finds the reader that reads a source; `None` if there is none.

    Example:

    >>> find_reader("cifar10").name
    'tensorflow-datasets'
    """
    source = _path_or_name(source)
    return next((reader for reader in READERS if reader.accepts(source)), None)


def _path_or_name(source):
    if not isinstance(source, (str, os.PathLike)):
        return source
    path = pathlib.Path(source).expanduser()
    return path if path.exists() else str(source)
