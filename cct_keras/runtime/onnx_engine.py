"""ONNX files, computed by onnxruntime."""

import os

import numpy as np

from cct_keras.errors import DataError
from cct_keras.runtime.engine import Engine
from cct_keras.runtime.engine import usable_threads
from cct_keras.runtime.files import check_seal
from cct_keras.runtime.files import read_model_file
from cct_keras.runtime.files import seal
from cct_keras.runtime.messages import first_line
from cct_keras.runtime.metadata import Metadata
from cct_keras.runtime.packages import import_package

ONNX_TYPES = {"tensor(float)": "float32", "tensor(uint8)": "uint8"}
# The hash is one more entry of `metadata_props`, as protobuf writes it, and JSON as the
# others: such a list can be continued at the end of a file.
ONNX_SEAL = b'\x72\x4c\x0a\x06sha256\x12\x42"', b'"'
# By this key an ONNX file names other files that hold its weights.
EXTERNAL_DATA = b"\x0a\x08location\x12"


class OnnxEngine(Engine):
    """An ONNX file, opened in onnxruntime.

    Args:
        path: The file, as `seal_onnx` completes it. Its `metadata_props` hold each
            field of `Metadata` as JSON.
        threads: How many threads to use; by default the cores of this process, at
            most 8.
    """

    def __init__(self, path: str | os.PathLike, *, threads: int | None = None):
        _check_onnx(path)
        ort = import_package("onnxruntime", "onnxruntime")
        options = ort.SessionOptions()
        # Errors are raised; without this they would be written to stderr as well.
        options.log_severity_level = 4
        options.intra_op_num_threads = threads or usable_threads()
        options.inter_op_num_threads = 1
        try:
            # Of bytes the session would keep a copy. With its fallback it would print
            # about every broken file.
            self._session = ort.InferenceSession(
                os.fspath(path),
                options,
                providers=["CPUExecutionProvider"],
                enable_fallback=0,
            )
            fields = self._session.get_modelmeta().custom_metadata_map
        except Exception as error:
            raise DataError(
                f"{path} is not a whole ONNX file: {first_line(error)}"
            ) from error
        super().__init__(path, Metadata.from_json_fields(fields, str(path)))
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        if len(inputs) != 1:
            raise DataError(f"{path} is broken: it has {len(inputs)} inputs")
        self._input = inputs[0].name
        self.check_graph(
            _open_sides(inputs[0].shape),
            ONNX_TYPES.get(inputs[0].type, inputs[0].type),
            [_open_sides(output.shape) for output in outputs],
        )

    def compute(self, images: np.ndarray) -> list[np.ndarray]:
        """All outputs of the graph for a batch in exactly the form it takes."""
        return self._session.run(None, {self._input: images})


def seal_onnx(content: bytes) -> bytes:
    """Puts a hash at the end of an ONNX file, by which damage is known."""
    return seal(content, *ONNX_SEAL)


def _check_onnx(path):
    content = read_model_file(path)
    check_seal(path, content, *ONNX_SEAL)
    if EXTERNAL_DATA in content:
        raise DataError(f"{path} is broken: it names other files as its weights")


def _open_sides(shape):
    """The shape with `None` in the place of the names of open sides."""
    return tuple(side if isinstance(side, int) and side > 0 else None for side in shape)
