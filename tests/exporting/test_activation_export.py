"""Files for accelerators that have no erf."""

import keras
import numpy as np
import pytest

import cct_keras
from cct_keras.checks import ACTIVATIONS

pytestmark = [
    pytest.mark.skipif(
        keras.config.backend() != "tensorflow", reason="exports from TensorFlow"
    ),
    # The exporters' own.
    pytest.mark.filterwarnings("ignore"),
]

SIZE = (16, 16, 3)


def model_of(activation):
    """Raw pixels in; weights large enough for the activations to differ."""
    model = cct_keras.create_model(
        "cct_2_3x2_32",
        num_classes=5,
        input_shape=SIZE,
        activation=activation,
        include_preprocessing=True,
    )
    generator = np.random.default_rng(3)
    for weight in model.trainable_weights:
        weight.assign_add(0.2 * generator.standard_normal(weight.shape))
    return model


def pixels():
    return np.random.default_rng(0).integers(0, 256, (3, *SIZE)).astype("float32")


@pytest.mark.integration
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_onnx_has_erf_only_for_the_exact_gelu(activation, tmp_path):
    import onnx
    import onnxruntime

    model, path = model_of(activation), tmp_path / "x.onnx"
    exported = cct_keras.export(model, path)
    assert exported.parity["largest_difference"] < 1e-4
    operations = {node.op_type for node in onnx.load(path).graph.node}
    assert bool(operations & {"Erf", "Erfc", "Gelu"}) == (activation == "gelu")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {session.get_inputs()[0].name: pixels()})
    expected = keras.ops.convert_to_numpy(model(pixels(), training=False))
    np.testing.assert_allclose(output, expected, atol=1e-5)


@pytest.mark.integration
@pytest.mark.parametrize("activation", ["gelu_tanh", "relu"])
def test_litert(activation, tmp_path):
    from ai_edge_litert.interpreter import Interpreter

    model, path = model_of(activation), tmp_path / "x.tflite"
    exported = cct_keras.export(model, path)
    assert exported.parity["largest_difference"] < 1e-4
    interpreter = Interpreter(str(path))
    interpreter.allocate_tensors()
    operations = {op["op_name"] for op in interpreter._get_ops_details()}
    assert not {name for name in operations if "GELU" in name or "rf" in name}
