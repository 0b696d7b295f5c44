"""The float32 graph of a model in a file: the one step that needs TensorFlow.

On another backend it runs in a child process, as `python -m cct_keras.exporting.trace`.
"""

import dataclasses
import errno
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import keras
import numpy as np

from cct_keras.atomic_file import TEMPORARY
from cct_keras.errors import ExportError
from cct_keras.exporting.graph import serving_function
from cct_keras.exporting.settings import ExportSettings
from cct_keras.exporting.subject import Subject
from cct_keras.exporting.subject import build_body
from cct_keras.layers.preprocessing import Preprocessing
from cct_keras.models.architecture import Architecture

# Files by which a process hands the work to its child.
WEIGHTS, DESCRIPTION = "weights.npz", "description.json"


def write_graph(
    subject: Subject,
    settings: ExportSettings,
    path: pathlib.Path,
) -> bool:
    """Writes the graph of a model, without metadata.

    Args:
        subject: The model.
        settings: The choices of the export.
        path: A file for ONNX and LiteRT, a folder for a SavedModel.

    Returns:
        Whether it was done in a child process on TensorFlow.
    """
    preprocessing = {
        name: subject.preprocessing[name]
        for name in ("image_size", "mean", "std", "crop", "interpolation")
    }
    if keras.config.backend() == "tensorflow":
        _write(subject.architecture, subject.arrays, preprocessing, settings, path)
        return False
    with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=path.parent) as folder:
        folder = pathlib.Path(folder)
        np.savez(folder / WEIGHTS, **subject.arrays)
        description = {
            "architecture": subject.architecture.to_json(),
            "preprocessing": preprocessing,
            "settings": dataclasses.asdict(settings),
            "path": str(path.absolute()),
        }
        (folder / DESCRIPTION).write_text(json.dumps(description))
        _run_child(folder)
    return True


def _run_child(folder):
    child = subprocess.run(
        [sys.executable, "-m", "cct_keras.exporting.trace", str(folder)],
        env={
            **os.environ,
            "KERAS_BACKEND": "tensorflow",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if child.returncode:
        lines = child.stderr.strip().splitlines()
        reason = lines[-1] if lines else f"it ended with {child.returncode}"
        raise ExportError(f"the process on TensorFlow failed: {reason}")


def main(folder: str) -> None:
    """What the child process does."""
    folder = pathlib.Path(folder)
    description = json.loads((folder / DESCRIPTION).read_text())
    with np.load(folder / WEIGHTS) as arrays:
        arrays = dict(arrays)
    _write(
        Architecture.from_json(description["architecture"]),
        arrays,
        description["preprocessing"],
        ExportSettings(**description["settings"]),
        pathlib.Path(description["path"]),
    )


def _write(architecture, arrays, preprocessing, settings, path):
    body = build_body(architecture, arrays)
    layer = Preprocessing(**preprocessing)
    function = serving_function(body, layer, settings)
    write = {"saved_model": write_saved_model, "litert": _write_litert}.get(
        settings.format, _write_onnx
    )
    write(function, body, settings, path)


def _write_onnx(function, body, settings, path):
    from cct_keras.exporting.onnx_file import write_onnx

    write_onnx(function, settings, path)


def _write_litert(function, body, settings, path):
    from cct_keras.exporting.litert_file import write_litert

    with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=path.parent) as folder:
        write_saved_model(function, body, settings, folder)
        write_litert(pathlib.Path(folder), settings, path)


def write_saved_model(
    function, body: keras.Model, settings: ExportSettings, path: str | os.PathLike
) -> None:
    """Writes a `tf.function` and the weights it uses as a SavedModel."""
    import tensorflow as tf

    def serve(images):
        return dict(zip(output_names(settings), function(images), strict=True))

    module = tf.Module()
    module.weights = [variable.value for variable in body.variables]
    module.serve = tf.function(
        serve, input_signature=function.input_signature, autograph=False
    )
    try:
        tf.saved_model.save(
            module, str(path), signatures=module.serve.get_concrete_function()
        )
    except tf.errors.OpError as error:
        # TensorFlow writes by itself, and a full disk is no `OSError` to it.
        reason = re.sub(r" \[Op:\w+\]$", "", error.message).split("; ")[-1]
        raise OSError(errno.EIO, reason) from error


def output_names(settings: ExportSettings) -> list[str]:
    """The names of the outputs, in their order."""
    first = "logits" if settings.logits else "probabilities"
    return [first, "maps"] if settings.maps else [first]


if __name__ == "__main__":
    main(sys.argv[1])
