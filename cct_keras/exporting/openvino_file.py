"""OpenVINO files: an `.xml` and a `.bin` beside it, made from an ONNX file."""

import pathlib

from cct_keras.runtime.metadata import Metadata
from cct_keras.runtime.openvino_engine import RT_INFO
from cct_keras.runtime.openvino_engine import seal_openvino


def write_openvino(
    onnx_file: pathlib.Path, path: pathlib.Path, metadata: Metadata
) -> list[pathlib.Path]:
    """Converts an ONNX file; its precision decides that of the weights.

    Args:
        onnx_file: The ONNX file, of float32 for a file of float16 too.
        path: The `.xml` file.
        metadata: What is stored in it.

    Returns:
        Both files.
    """
    import openvino

    model = openvino.convert_model(onnx_file)
    model.set_rt_info(metadata.to_json(), RT_INFO)
    half = metadata.precision == "float16"
    openvino.save_model(model, path, compress_to_fp16=half)
    weights = path.with_suffix(".bin")
    path.write_bytes(seal_openvino(path.read_bytes(), weights.read_bytes()))
    return [path, weights]
