"""ONNX files of int8, calibrated on images.

Convolutions and products with weights become int8; LayerNorm, softmax, GELU and the
products of attention stay in float32. `benchmarks/quantization.py` compares this with
other choices.
"""

import contextlib
import io
import logging
import pathlib

import numpy as np

CALIBRATIONS = {
    "min-max": ("MinMax", {}),
    # The largest one of ten thousand values is left out on both sides.
    "percentile": ("Percentile", {"CalibPercentile": 99.99}),
    "entropy": ("Entropy", {}),
}
BATCH_SIZE = 16


def quantize(
    source: pathlib.Path,
    target: pathlib.Path,
    images: np.ndarray,
    *,
    calibration: str = "percentile",
    per_channel: bool = True,
    operations: tuple[str, ...] = ("Conv", "MatMul"),
    attention_products: bool = False,
    full_range: bool = False,
) -> None:
    """Quantizes an ONNX file.

    Args:
        source: A file of float32, as `write_onnx` makes it.
        target: The file to write; it may be the same.
        images: Calibration images, as the graph takes them.
        calibration: How the range of each tensor is found: `"min-max"`,
            `"percentile"` or `"entropy"`.
        per_channel: Whether each output channel of a weight has a scale of its own.
        operations: Kinds of operations that are quantized.
        attention_products: Whether to quantize products without weights too.
        full_range: Whether weights use all 8 bits. Processors without instructions
            for int8 add two products in 16 bits, which overflows with 8 bits but not
            with 7.
    """
    import onnx
    from onnxruntime import quantization

    method, options = CALIBRATIONS[calibration]
    model = onnx.load(source)
    excluded = [] if attention_products else _products_without_weights(model)
    with _silence():
        quantization.quantize_static(
            source,
            target,
            _Reader(model, images),
            quant_format=quantization.QuantFormat.QDQ,
            op_types_to_quantize=list(operations),
            nodes_to_exclude=excluded,
            per_channel=per_channel,
            reduce_range=not full_range,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            calibrate_method=quantization.CalibrationMethod[method],
            extra_options=options,
        )


class _Reader:
    """Hands calibration images to onnxruntime, a batch at a time."""

    def __init__(self, model, images):
        (source,) = model.graph.input
        # 0 if the batch may have any length.
        fixed = source.type.tensor_type.shape.dim[0].dim_value
        step = fixed or min(BATCH_SIZE, len(images))
        # onnxruntime takes batches of one length only: the last one gets the first
        # images again where some are missing.
        count = -(-len(images) // step) * step
        images = np.resize(images, (count, *images.shape[1:]))
        self._batches = iter(
            [
                {source.name: images[start : start + step]}
                for start in range(0, len(images), step)
            ]
        )

    def get_next(self):
        return next(self._batches, None)

    def __iter__(self):
        return self._batches


def _products_without_weights(model):
    constants = {item.name for item in model.graph.initializer}
    return [
        node.name
        for node in model.graph.node
        if node.op_type == "MatMul" and not constants & set(node.input)
    ]


@contextlib.contextmanager
def _silence():
    """Keeps the prints and the advice of onnxruntime from the user."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)
