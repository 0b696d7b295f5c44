"""ONNX files: from a TensorFlow graph, with names, metadata and half precision."""

import logging
import pathlib

from cct_keras.errors import ExportError
from cct_keras.exporting.onnx_rewrites import rewrite
from cct_keras.exporting.settings import ExportSettings
from cct_keras.runtime.metadata import Metadata
from cct_keras.runtime.onnx_engine import seal_onnx

# Operations that stay in float32 in a file of float16: sums over many values.
FLOAT32_OPERATIONS = ("GlobalAveragePool", "LayerNormalization", "ReduceMean")


def write_onnx(function, settings: ExportSettings, path: pathlib.Path) -> None:
    """Writes a `tf.function` as ONNX, in float32 and without metadata.

    Args:
        function: What `serving_function` returned.
        settings: The choices of the export.
        path: The file.
    """
    import onnx
    import tf2onnx

    # It reports unsupported operations only here, and writes a dead file; the checker
    # below refuses them.
    logging.getLogger("tf2onnx").setLevel(logging.CRITICAL)
    model, _ = tf2onnx.convert.from_function(
        function, input_signature=function.input_signature, opset=settings.opset
    )
    rewrite(model, settings.opset)
    names = ["logits" if settings.logits else "probabilities"]
    _name_outputs(model.graph, names + ["maps"] * settings.maps)
    if settings.batch is None:
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    check_operations(model)
    onnx.save(model, path)


def check_operations(model) -> None:
    """Refuses operations that are not part of the ONNX standard."""
    import onnx

    try:
        onnx.checker.check_model(model, full_check=True)
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
    ) as error:
        reason = str(error).strip().splitlines()[0]
        raise ExportError(f"the model has no valid ONNX form: {reason}") from error


def to_float16(source: pathlib.Path, target: pathlib.Path) -> None:
    """Stores the weights of a file, and computes most of it, in float16."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    model = convert_float_to_float16(
        onnx.load(source),
        keep_io_types=True,
        op_block_list=list(FLOAT32_OPERATIONS),
    )
    onnx.save(model, target)


def add_metadata(path: pathlib.Path, metadata: Metadata) -> None:
    """Writes metadata into a file, one entry a field, each as JSON, and a hash."""
    import onnx

    model = onnx.load(path)
    model.producer_name, model.producer_version = metadata.package, metadata.version
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, metadata.to_json_fields())
    path.write_bytes(seal_onnx(model.SerializeToString()))


def _name_outputs(graph, names):
    """Gives the outputs of a graph the names that users see."""
    renamed = {
        output.name: name for output, name in zip(graph.output, names, strict=True)
    }
    for output in graph.output:
        output.name = renamed[output.name]
    for node in graph.node:
        for ends in (node.input, node.output):
            for index, end in enumerate(ends):
                ends[index] = renamed.get(end, end)
