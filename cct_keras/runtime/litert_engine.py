"""LiteRT (.tflite) files, computed by ai-edge-litert."""

import io
import os
import zipfile

import numpy as np

from cct_keras.errors import DataError
from cct_keras.runtime.engine import Engine
from cct_keras.runtime.engine import usable_threads
from cct_keras.runtime.files import check_seal
from cct_keras.runtime.files import read_model_file
from cct_keras.runtime.files import seal
from cct_keras.runtime.messages import first_line
from cct_keras.runtime.metadata import LARGEST_METADATA
from cct_keras.runtime.metadata import Metadata
from cct_keras.runtime.metadata import not_ours
from cct_keras.runtime.packages import import_package

# A file of LiteRT may have a zip archive behind the model: its "associated files".
LABELS_FILE = "labels.txt"
METADATA_FILE = "cct_keras.json"
LITERT_SEAL = b"cct_keras sha256 "
# Every model has it at its fifth byte.
TFLITE_IDENTIFIER = b"TFL3"


class LiteRTEngine(Engine):
    """A LiteRT file, opened in ai-edge-litert.

    Args:
        path: The file, as `add_litert_metadata` completes it.
        threads: How many threads to use; by default the cores of this process, at
            most 8.
    """

    def __init__(self, path: str | os.PathLike, *, threads: int | None = None):
        model, metadata = _read_litert(path)
        litert = import_package("ai_edge_litert.interpreter", "ai-edge-litert")
        super().__init__(path, metadata)
        try:
            self._interpreter = litert.Interpreter(
                model_content=model, num_threads=threads or usable_threads()
            )
            inputs = self._interpreter.get_input_details()
            outputs = self._interpreter.get_output_details()
            # Here it writes to stderr that it is ready; later nobody would expect it.
            self._interpreter.allocate_tensors()
        except Exception as error:
            raise DataError(
                f"{path} is not a whole LiteRT file: {first_line(error)}"
            ) from error
        if len(inputs) != 1:
            raise DataError(f"{path} is broken: it has {len(inputs)} inputs")
        self._input = inputs[0]["index"]
        self._outputs = [output["index"] for output in outputs]
        self._length = None
        self.check_graph(
            _tensor_shape(inputs[0]),
            np.dtype(inputs[0]["dtype"]).name,
            [_tensor_shape(output) for output in outputs],
        )

    def compute(self, images: np.ndarray) -> list[np.ndarray]:
        """All outputs of the graph for a batch in exactly the form it takes."""
        if len(images) != self._length:
            self._length = None
            if self.metadata.batch is None:
                self._interpreter.resize_tensor_input(self._input, images.shape)
            self._interpreter.allocate_tensors()
            self._length = len(images)
        self._interpreter.set_tensor(self._input, images)
        self._interpreter.invoke()
        return [self._interpreter.get_tensor(index) for index in self._outputs]


def add_litert_metadata(model: bytes, metadata: Metadata) -> bytes:
    """Puts the metadata behind a LiteRT model, where its readers do not mind them.

    Args:
        model: The model as a converter made it.
        metadata: What the file is to know of itself.

    Returns:
        The bytes of the file: the model and a zip archive with the labels and the
        metadata, whose comment is a hash.
    """
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        texts = {
            LABELS_FILE: "".join(f"{name}\n" for name in metadata.class_names),
            METADATA_FILE: metadata.to_json(),
        }
        for name, text in texts.items():
            # A fixed date, so that the same model makes the same file.
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            file.writestr(info, text, zipfile.ZIP_DEFLATED)
        # The archive knows how long its comment is, which is the end of the file.
        file.comment = seal(b"", LITERT_SEAL)
    content = model + archive.getvalue()
    return seal(content[: -len(seal(b"", LITERT_SEAL))], LITERT_SEAL)


def _read_litert(path):
    """The model in a file, and its metadata."""
    content = read_model_file(path)
    if content[4:8] != TFLITE_IDENTIFIER:
        raise DataError(f"{path} is not a LiteRT file")
    check_seal(path, content, LITERT_SEAL)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            text = _read_member(archive, METADATA_FILE)
            start = min(info.header_offset for info in archive.infolist())
    # A broken archive raises errors of many kinds.
    except Exception as error:
        raise DataError(not_ours(str(path))) from error
    return content[:start], Metadata.from_json(text, str(path))


def _read_member(archive, name):
    with archive.open(name) as file:
        text = file.read(LARGEST_METADATA + 1)
    if len(text) > LARGEST_METADATA:
        raise DataError(f"{name} is too large")
    return text


def _tensor_shape(details):
    """The shape of an input or output, `None` where it is open."""
    shape, open_shape = details["shape"], details["shape_signature"]
    sides = open_shape if len(open_shape) == len(shape) else shape
    return tuple(int(side) if side > 0 else None for side in sides)
