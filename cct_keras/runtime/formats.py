"""The kinds of exported files, and which runtime opens each."""

import os
from collections.abc import Callable
from typing import NamedTuple

from cct_keras.errors import DataError
from cct_keras.model_files import EXPORTED_SUFFIXES
from cct_keras.model_files import exported_format
from cct_keras.runtime.engine import Engine
from cct_keras.runtime.litert_engine import LiteRTEngine
from cct_keras.runtime.onnx_engine import OnnxEngine
from cct_keras.runtime.openvino_engine import OpenVINOEngine
from cct_keras.runtime.saved_model_engine import SavedModelEngine


class Runtime(NamedTuple):
    """What opens a kind of exported file.

    Attributes:
        package: What `pip install` calls it.
        engine: Opens a file.
    """

    package: str
    engine: Callable[..., Engine]


# By what `export` calls the kind of file.
RUNTIMES = {
    "onnx": Runtime("onnxruntime", OnnxEngine),
    "litert": Runtime("ai-edge-litert", LiteRTEngine),
    "openvino": Runtime("openvino", OpenVINOEngine),
    "saved_model": Runtime("tensorflow", SavedModelEngine),
}


def open_engine(path: str | os.PathLike, *, threads: int | None = None) -> Engine:
    """Opens an exported file in its runtime.

    Args:
        path: A file that `cct_keras.export` wrote.
        threads: How many threads to use; by default the cores of this process, at
            most 8.

    Returns:
        An `Engine`.

    Raises:
        DataError: The file does not exist, is damaged, or was written by others.
        MissingPackageError: Its runtime is not installed.

    Example:

    >>> engine = open_engine("model.onnx")  # Needs the file.  # doctest: +SKIP
    >>> engine.metadata.image_size  # doctest: +SKIP
    (32, 32)
    """
    if threads is not None and threads < 1:
        raise DataError(f"`threads` must be 1 or more. Received: threads={threads}")
    kind = exported_format(path)
    if kind is None:
        raise DataError(
            f"{path} is not an exported model: expected a file that ends in "
            f"{', '.join(EXPORTED_SUFFIXES)}, or the folder of a SavedModel"
        )
    return RUNTIMES[kind].engine(path, threads=threads)
