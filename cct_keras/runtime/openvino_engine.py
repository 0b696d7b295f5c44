"""OpenVINO files (.xml with a .bin beside it)."""

import os
import pathlib

import numpy as np

from cct_keras.errors import DataError
from cct_keras.runtime.engine import Engine
from cct_keras.runtime.engine import usable_threads
from cct_keras.runtime.files import check_seal
from cct_keras.runtime.files import read_model_file
from cct_keras.runtime.files import seal
from cct_keras.runtime.messages import first_line
from cct_keras.runtime.metadata import Metadata
from cct_keras.runtime.metadata import not_ours
from cct_keras.runtime.packages import import_package

# Where in the `rt_info` of a model its metadata are.
RT_INFO = ["cct_keras", "metadata"]
OPENVINO_TYPES = {"f32": "float32", "u8": "uint8"}
# The hash of both files is a comment at the end of the .xml file.
OPENVINO_SEAL = b"<!-- cct_keras sha256 ", b" -->\n"


class OpenVINOEngine(Engine):
    """An OpenVINO model on the CPU.

    Args:
        path: The .xml file. Its `rt_info` holds the metadata as JSON.
        threads: How many threads to use; by default the cores of this process, at
            most 8.
    """

    def __init__(self, path: str | os.PathLike, *, threads: int | None = None):
        content = read_model_file(path)
        weights = pathlib.Path(path).with_suffix(".bin")
        if not weights.is_file():
            raise DataError(f"{path} needs the file {weights.name} beside it")
        check_seal(path, content, *OPENVINO_SEAL, read_model_file(weights))
        openvino = import_package("openvino", "openvino")
        core = openvino.Core()
        try:
            model = core.read_model(path)
            text = None
            if model.has_rt_info(RT_INFO):
                text = str(model.get_rt_info(RT_INFO).value)
        except Exception as error:
            raise DataError(
                f"{path} is not a whole OpenVINO file: {_openvino_reason(error)}"
            ) from error
        if text is None:
            raise DataError(not_ours(str(path)))
        super().__init__(path, Metadata.from_json(text, str(path)))
        if len(model.inputs) != 1:
            raise DataError(f"{path} is broken: it has {len(model.inputs)} inputs")
        kind = model.inputs[0].element_type.get_type_name()
        self.check_graph(
            _partial_shape(model.inputs[0]),
            OPENVINO_TYPES.get(kind, kind),
            [_partial_shape(output) for output in model.outputs],
        )
        settings = {
            "INFERENCE_NUM_THREADS": threads or usable_threads(),
            # Some processors would compute in bfloat16 unasked.
            "INFERENCE_PRECISION_HINT": "f32",
        }
        try:
            self._compiled = core.compile_model(model, "CPU", settings)
        except Exception as error:
            raise DataError(
                f"{path} cannot be computed: {_openvino_reason(error)}"
            ) from error
        self._request = self._compiled.create_infer_request()

    def compute(self, images: np.ndarray) -> list[np.ndarray]:
        """All outputs of the graph for a batch in exactly the form it takes."""
        results = self._request.infer([images])
        # The arrays of a request are overwritten by its next call.
        return [np.array(results[output]) for output in self._compiled.outputs]


def seal_openvino(content: bytes, weights: bytes) -> bytes:
    """Puts a hash of both files at the end of the .xml file."""
    return seal(content, *OPENVINO_SEAL, weights)


def _partial_shape(port):
    shape = port.get_partial_shape()
    if shape.rank.is_dynamic:
        return ()
    return tuple(None if side.is_dynamic else side.get_length() for side in shape)


def _openvino_reason(error):
    """The line of a message of OpenVINO that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    useful = [line for line in lines if not line.startswith(("Exception", "Check '"))]
    return (useful or lines or [first_line(error)])[0]
