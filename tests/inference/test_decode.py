"""`decode_predictions`: probabilities as names."""

import keras
import numpy as np
import pytest

import cct_keras

ROWS = np.array([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]], "float32")
NAMES = ("cat", "dog", "frog")


def test_a_batch():
    first, second = cct_keras.decode_predictions(ROWS, NAMES, top=2)
    assert [entry["name"] for entry in first] == ["frog", "dog"]
    assert [entry["name"] for entry in second] == ["cat", "dog"]
    assert first[0]["probability"] == pytest.approx(0.7)
    assert type(first[0]["probability"]) is float


@pytest.mark.backend
def test_tensors_of_the_backend():
    tensor = keras.ops.convert_to_tensor(ROWS)
    found = cct_keras.decode_predictions(tensor, list(NAMES))
    assert found == cct_keras.decode_predictions(ROWS, NAMES)


def test_one_row_is_one_image():
    assert cct_keras.decode_predictions(ROWS[0], NAMES) == (
        cct_keras.decode_predictions(ROWS[:1], NAMES)
    )
    assert len(cct_keras.decode_predictions([0.2, 0.8], ["a", "b"])) == 1


def test_equal_probabilities_keep_the_order_of_the_classes():
    (found,) = cct_keras.decode_predictions(np.full(3, 1 / 3), NAMES)
    assert [entry["name"] for entry in found] == list(NAMES)


def test_all_classes_if_there_are_fewer():
    (found,) = cct_keras.decode_predictions(ROWS[0], NAMES, top=99)
    assert len(found) == 3


def test_a_tag_names_the_classes():
    (found,) = cct_keras.decode_predictions(np.eye(10)[3], "cifar10", top=1)
    assert found == [{"name": "cat", "probability": 1.0}]
    (found,) = cct_keras.decode_predictions(np.eye(1000)[0], "imagenet", top=1)
    assert found[0]["name"] == "n01440764"
    (found,) = cct_keras.decode_predictions(np.eye(10)[7], "cifar10_legacy", top=1)
    assert found[0]["name"] == "horse"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((ROWS, NAMES, 0), "`top` must be 1 or more. Received: top=0"),
        ((ROWS, NAMES[:2]), "`class_names` must name each of the 3 columns.*2 names"),
        ((ROWS, "cifar10"), "each of the 3 columns.*Received: 10 names"),
        ((ROWS, "cats"), r"a tag of known weights \(cifar10, .*class_names='cats'"),
        ((ROWS[None], NAMES), r"\(images, classes\) or .*shape \(1, 2, 3\)"),
        ((0.5, NAMES), r"`probabilities` must have the shape.*shape \(\)"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        cct_keras.decode_predictions(*arguments)
