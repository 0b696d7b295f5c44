"""`evaluate` and what is measured with it."""

import functools

import numpy as np
import pytest
from colors import COLORS
from colors import color_classifier
from colors import expected_probabilities
from colors import make_folder

import cct_keras
from cct_keras.errors import DataError
from cct_keras.inference.evaluate import find_mistakes
from cct_keras.inference.evaluate import measure
from cct_keras.inference.forward import run_on_batch


def test_evaluate(folder, model_file):
    metrics = cct_keras.evaluate(model_file, folder)
    assert metrics["top1"] == 1.0
    assert metrics["count"] == 11
    assert [row["name"] for row in metrics["per_class"]] == list(COLORS)
    counts = [
        cct_keras.evaluate(model_file, folder, split=split)["count"]
        for split in ("train", "validation", "test")
    ]
    assert counts == [55, 6, 11]


def test_evaluate_uses_the_images_that_training_held_out(folder, tmp_path):
    data = cct_keras.load_data(folder, image_size=16, seed=5)
    model = color_classifier(data)
    images = np.concatenate([x for x, _ in data.pipeline("test")])
    truth = expected_probabilities(images)[np.arange(11), data.test.labels]
    found = cct_keras.evaluate(model, folder)
    assert found["count"] == len(data.test) == 11
    assert found["loss"] == pytest.approx(-np.log(truth).mean(), rel=1e-4)
    other = cct_keras.evaluate(model, make_folder(tmp_path / "other", (22, 30)))
    assert other["count"] == 72
    assert other["notes"] == ["no test split: all 72 images are measured"]


def test_loaded_data_are_measured_as_they_are(data, model_file):
    assert cct_keras.evaluate(model_file, data, batch_size=4)["count"] == 11


def test_evaluate_a_set_with_fewer_classes(folder, model_file, tmp_path):
    """Labels follow the model's names, not their order in the new set."""
    for name in ("green", "red"):
        (tmp_path / "set").mkdir(exist_ok=True)
        (tmp_path / "set" / name).symlink_to(folder / name)
    assert cct_keras.evaluate(model_file, tmp_path / "set")["top1"] == 1.0
    (tmp_path / "set" / "yellow").symlink_to(folder / "blue")
    with pytest.raises(DataError, match="does not know these classes of set: yellow"):
        cct_keras.evaluate(model_file, tmp_path / "set")


@pytest.mark.backend
def test_measure_returns_the_probabilities(data):
    probabilities, metrics = measure(
        functools.partial(run_on_batch, color_classifier()), data, "validation"
    )
    images = np.concatenate([x for x, _ in data.pipeline("validation")])
    expected = expected_probabilities(images)
    np.testing.assert_allclose(probabilities, expected, atol=1e-4)
    assert metrics["count"] == 6


def test_the_mistakes_come_with_their_pictures(data):
    """A classifier for which every image is the brighter of blue and green."""
    labels = data.test.labels
    probabilities = np.full((len(labels), 3), 0.05)
    probabilities[:, 0] = np.linspace(0.5, 0.9, len(labels))
    probabilities[:, 1] = 0.95 - probabilities[:, 0]
    found = find_mistakes(data, "test", probabilities, count=3)
    wrong = np.flatnonzero(labels != 0)[::-1][:3]
    confidences = [mistake.confidence for mistake in found]
    assert confidences == pytest.approx(list(probabilities[wrong, 0]))
    assert [m.truth for m in found] == [data.class_names[labels[i]] for i in wrong]
    assert [m.prediction for m in found] == ["blue"] * 3
    for mistake, index in zip(found, wrong, strict=True):
        np.testing.assert_array_equal(mistake.image, data.test.images[index])
        assert mistake.name == data.test.name_of(index)
    right = np.eye(3)[labels]
    assert find_mistakes(data, "test", right) == []
