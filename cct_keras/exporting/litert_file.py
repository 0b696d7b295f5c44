"""LiteRT files from a TensorFlow graph."""

import pathlib

from cct_keras.errors import ExportError
from cct_keras.exporting.settings import ExportSettings


def write_litert(
    saved_model: pathlib.Path, settings: ExportSettings, path: pathlib.Path
) -> None:
    """Writes a LiteRT file without metadata.

    In int8 the weights of convolutions and products are stored as int8, and their
    inputs are rounded while the model runs, each by its own range. This was nearer to
    the model than ranges from calibration images, and faster
    (`benchmarks/quantization.py`).

    Args:
        saved_model: The graph as a SavedModel; of a function alone the converter does
            not take the weights.
        settings: The choices of the export.
        path: The file.
    """
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_saved_model(str(saved_model))
    if settings.precision != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if settings.precision == "float16":
        converter.target_spec.supported_types = [tf.float16]
    try:
        content = converter.convert()
    except Exception as error:  # The converter raises errors of many kinds.
        lines = [line for line in str(error).splitlines() if line.strip()]
        reason = lines[0] if lines else type(error).__name__
        raise ExportError(f"the model has no LiteRT form: {reason}") from error
    path.write_bytes(content)
