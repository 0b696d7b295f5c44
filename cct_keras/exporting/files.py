"""The files of one export, written in a folder of their own."""

import dataclasses
import pathlib

import numpy as np

from cct_keras.exporting import int8_onnx
from cct_keras.exporting.onnx_file import add_metadata
from cct_keras.exporting.onnx_file import to_float16
from cct_keras.exporting.openvino_file import write_openvino
from cct_keras.exporting.settings import ExportSettings
from cct_keras.exporting.subject import Subject
from cct_keras.exporting.trace import write_graph
from cct_keras.exporting.web import RUNTIME_FOLDER
from cct_keras.exporting.web import write_site
from cct_keras.runtime.litert_engine import add_litert_metadata
from cct_keras.runtime.metadata import Metadata
from cct_keras.runtime.saved_model_engine import add_saved_model_metadata

# Before it becomes a file of OpenVINO or a part of a page.
ONNX_NAME = "model.onnx"


@dataclasses.dataclass(frozen=True)
class WrittenFiles:
    """What was written.

    Attributes:
        paths: The files and folders that make up the export.
        runnable: Which of them, or of what they were made from, a runtime opens.
        by_child: Whether a child process on TensorFlow made the graph.
        runtime: A folder in the export that is no part of the model, if there is one.
    """

    paths: tuple[pathlib.Path, ...]
    runnable: pathlib.Path
    by_child: bool
    runtime: pathlib.Path | None = None

    @property
    def size(self) -> int:
        """Bytes of all files but those of a runtime."""
        files = (
            file
            for path in self.paths
            for file in (path.rglob("*") if path.is_dir() else [path])
            if file.parent != self.runtime
        )
        return sum(file.stat().st_size for file in files if file.is_file())


def write_files(
    folder: pathlib.Path,
    name: str,
    subject: Subject,
    settings: ExportSettings,
    metadata: Metadata,
    *,
    calibration: np.ndarray | None = None,
    ort: pathlib.Path | None = None,
) -> WrittenFiles:
    """Writes the files of an export into a folder.

    Args:
        folder: An empty folder.
        name: Name of the file, or of the folder that the format is.
        subject: The model.
        settings: The choices of the export.
        metadata: What the files tell of the model.
        calibration: Images `(count, height, width, channels)` that int8 is calibrated
            on, in float32 with values from 0 to 255.
        ort: A local copy of onnxruntime-web, for a page.
    """
    if calibration is not None:
        calibration = _as_input(calibration, settings)
    write = {
        "onnx": _write_onnx,
        "litert": _write_litert,
        "openvino": _write_openvino,
        "saved_model": _write_saved_model,
        "web": _write_web,
    }[settings.format]
    return write(folder / name, subject, settings, metadata, calibration, ort)


def _write_onnx(path, subject, settings, metadata, calibration, ort):
    by_child = write_graph(subject, settings, path)
    if settings.precision == "float16":
        to_float16(path, path)
    elif settings.precision == "int8":
        int8_onnx.quantize(path, path, calibration)
    add_metadata(path, metadata)
    return WrittenFiles((path,), path, by_child)


def _write_litert(path, subject, settings, metadata, calibration, ort):
    by_child = write_graph(subject, settings, path)
    path.write_bytes(add_litert_metadata(path.read_bytes(), metadata))
    return WrittenFiles((path,), path, by_child)


def _write_openvino(path, subject, settings, metadata, calibration, ort):
    # OpenVINO makes float16 of float32 itself.
    single = dataclasses.replace(settings, precision="float32")
    source = path.parent / ONNX_NAME
    first = settings if settings.precision == "int8" else single
    made = _write_onnx(source, subject, first, metadata, calibration, ort)
    write_openvino(source, path, metadata)
    source.unlink()
    paths = (path, path.with_suffix(".bin"))
    return WrittenFiles(paths, path, made.by_child)


def _write_saved_model(path, subject, settings, metadata, calibration, ort):
    by_child = write_graph(subject, settings, path)
    add_saved_model_metadata(path, metadata)
    return WrittenFiles((path,), path, by_child)


def _write_web(path, subject, settings, metadata, calibration, ort):
    source = path.parent / f"{path.name}-{ONNX_NAME}"
    made = _write_onnx(source, subject, settings, metadata, calibration, ort)
    write_site(path, source, metadata.to_dict(), ort=ort)
    source.unlink()
    return WrittenFiles((path,), path / ONNX_NAME, made.by_child, path / RUNTIME_FOLDER)


def _as_input(images, settings):
    """Images in the type and the layout that the graph takes."""
    images = images.astype(settings.input_dtype)
    return images.transpose(0, 3, 1, 2) if settings.layout == "nchw" else images
