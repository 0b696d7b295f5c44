"""Keras' own export of a model, run by the target's runtime."""

import keras
import numpy as np
import pytest
from small import FAMILIES
from small import images
from small import predict
from small import small_model

pytestmark = [
    pytest.mark.skipif(
        keras.config.backend() != "tensorflow", reason="exports from TensorFlow"
    ),
    # The exporters' own.
    pytest.mark.filterwarnings("ignore"),
]


FAMILY_NAMES = [
    pytest.param(name, marks=[] if name == "CCT" else pytest.mark.integration)
    for name in FAMILIES
]


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_onnx(family, tmp_path):
    import onnxruntime

    model = small_model(family)
    predict(model, images(1, 16, 16, 3))  # Keras exports to ONNX what was called.
    path = str(tmp_path / "model.onnx")
    model.export(path, format="onnx", verbose=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for batch in (1, 3):
        x = images(batch, 16, 16, 3)
        (output,) = session.run(None, {session.get_inputs()[0].name: x})
        np.testing.assert_allclose(output, predict(model, x), atol=1e-4)


@pytest.mark.integration
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_litert(family, tmp_path):
    from ai_edge_litert.interpreter import Interpreter

    model = small_model(family)
    path = str(tmp_path / "model.tflite")
    model.export(path, format="litert", verbose=False)
    interpreter = Interpreter(path)
    for batch in (1, 3):
        x = images(batch, 16, 16, 3)
        source = interpreter.get_input_details()[0]["index"]
        interpreter.resize_tensor_input(source, x.shape)
        interpreter.allocate_tensors()
        interpreter.set_tensor(source, x)
        interpreter.invoke()
        output = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        np.testing.assert_allclose(output, predict(model, x), atol=1e-4)
