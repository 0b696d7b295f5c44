"""Which files are exported models, by their names."""

import os
import pathlib

SAVED_MODEL_FILE = "saved_model.pb"
# What `export` calls the kind of a file, by its suffix.
EXPORTED_SUFFIXES = {".onnx": "onnx", ".tflite": "litert", ".xml": "openvino"}


def exported_format(path) -> str | None:
    """The kind of an exported file, by its name; `None` for anything else.

    Args:
        path: A file that need not exist, the folder of a SavedModel, or any other
            object, which then is no exported file.

    Example:

    >>> exported_format("model.onnx")
    'onnx'
    >>> exported_format("model.keras") is None
    True
    """
    if not isinstance(path, (str, os.PathLike)):
        return None
    path = pathlib.Path(path)
    if (path / SAVED_MODEL_FILE).is_file():
        return "saved_model"
    return EXPORTED_SUFFIXES.get(path.suffix.lower())


def find_exported(folder: str | os.PathLike) -> list[pathlib.Path]:
    """The exported models in a folder, or the folder itself if it is a SavedModel.

    Args:
        folder: The folder.

    Returns:
        The files in sorted order. An .xml file counts only with its .bin beside it.
    """
    folder = pathlib.Path(folder)
    if exported_format(folder) == "saved_model":
        return [folder]
    return [
        path
        for path in sorted(folder.iterdir())
        if exported_format(path) is not None
        and (path.suffix.lower() != ".xml" or path.with_suffix(".bin").is_file())
    ]
