"""int8: how accurate, how small, and when it is refused."""

import json

import numpy as np
import pytest

import cct_keras
from cct_keras.errors import ExportError
from cct_keras.exporting.parity import check
from cct_keras.exporting.parity import paired_accuracy

pytestmark = pytest.mark.filterwarnings("ignore")  # The converters' own.
DIGITS = "cct_2_3x2_32.digits"


@pytest.mark.parametrize(
    "suffix",
    [
        pytest.param(".onnx", marks=pytest.mark.integration),
        pytest.param(".tflite", marks=pytest.mark.integration),
        pytest.param(".xml", marks=pytest.mark.integration),
    ],
)
def test_int8_of_digits(suffix, tmp_path):
    exported = cct_keras.export(
        DIGITS, tmp_path / f"q{suffix}", precision="int8", data="digits"
    )
    # 1.13 MB in float32.
    assert exported.parity["bytes"] < 0.42 * 1.13e6
    assert exported.parity["origin"] == "validation images of digits"
    assert exported.metadata.precision == "int8"
    assert any("144 images only" in note for note in exported.notes)
    before = cct_keras.evaluate(DIGITS, "digits")["top1"]
    classifier = cct_keras.runtime.Classifier(exported.path)
    data = cct_keras.load_data("digits", image_size=16)
    answers = classifier(np.stack([data.test.images[i] for i in range(360)]))
    after = (answers.argmax(1) == data.test.labels).mean()
    assert after >= before - 0.006  # Two of 360 images.
    record = json.loads((tmp_path / "parity.json").read_text())[f"q{suffix}"]
    low, high = record["accuracy"]["loss_ci95"]
    assert low <= record["accuracy"]["loss"] <= high


@pytest.mark.integration
@pytest.mark.parametrize("batch", [None, 5])
def test_int8_with_other_input(batch, tmp_path):
    """Calibration images go in as the file takes them."""
    exported = cct_keras.export(
        DIGITS,
        tmp_path / "q.onnx",
        precision="int8",
        data="digits",
        batch=batch,
        input_dtype="uint8",
        layout="nchw",
    )
    assert exported.parity["same_top1"] >= 142


@pytest.mark.integration
@pytest.mark.parametrize("count", [7, 40])
def test_int8_of_few_images(count, tmp_path):
    """Calibration images that fill no whole batch."""
    images = cct_keras.load_data("digits", image_size=16).train.images
    pixels = np.stack([images[index] for index in range(count)])
    labels = np.arange(count) % 2
    data = ((pixels, labels), (pixels, labels), (pixels, labels))
    exported = cct_keras.export(
        DIGITS, tmp_path / "q.onnx", precision="int8", data=data
    )
    assert exported.parity["same_top1"] >= count - 1


@pytest.mark.integration
def test_weights_keep_a_bit_for_processors_that_overflow(tmp_path):
    import onnx
    from onnx import numpy_helper

    cct_keras.export(DIGITS, tmp_path / "q.onnx", precision="int8", data="digits")
    model = onnx.load(tmp_path / "q.onnx")
    arrays = [numpy_helper.to_array(item) for item in model.graph.initializer]
    weights = [array for array in arrays if array.dtype == np.int8 and array.ndim > 1]
    # Two convolutions, four products in each of two blocks, the pool and the head.
    assert len(weights) == 12
    assert max(np.abs(array.astype(int)).max() for array in weights) <= 64
    kinds = {node.op_type for node in model.graph.node}
    assert {"LayerNormalization", "Softmax", "Erf"} <= kinds


def test_paired_accuracy_by_hand():
    """Of 1,000 images 30 are lost and 10 won: 2 points, after Agresti and Min."""
    before = np.array([True] * 900 + [False] * 100)
    after = before.copy()
    after[:30], after[900:910] = False, True
    record = paired_accuracy(before, after)
    assert record["before"] == 0.9
    assert record["after"] == pytest.approx(0.88)
    assert record["loss"] == 0.02
    center = 20 / 1002
    spread = 1.959964 * np.sqrt((30.5 + 10.5) - 20**2 / 1002) / 1002
    assert record["loss_ci95"] == pytest.approx([center - spread, center + spread])


def record(count, lost, won):
    before = np.zeros(count, bool)
    before[: count // 2] = True
    after = before.copy()
    after[:lost] = False
    after[count - won :] = True
    return {
        "largest_difference": 0.5,
        "tolerance": None,
        "images": count,
        "accuracy": paired_accuracy(before, after),
    }


def test_int8_is_refused_for_a_loss_that_is_no_chance():
    assert check(record(1000, lost=15, won=0), "m.onnx") == []
    assert check(record(500, lost=90, won=79), "m.onnx") == []  # 2.2 points, chance
    with pytest.raises(ExportError, match="costs 3.00 points"):
        check(record(1000, lost=30, won=0), "m.onnx")
    (warning,) = check(record(499, lost=200, won=0), "m.onnx")
    assert "499 images only" in warning
