"""`linear_probe`, compared with scikit-learn's own pipeline."""

import keras
import numpy as np
import pytest
from runs import eager
from runs import noise_images
from small import stripes

import cct_keras
from cct_keras.cli import main as cli
from cct_keras.errors import RecipeError
from cct_keras.recipes.rows import find_recipe
from cct_keras.training.build import build_model


@pytest.fixture(scope="module", autouse=True)
def eagerly():
    with eager():
        yield


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    path = tmp_path_factory.mktemp("start") / "model.keras"
    keras.utils.set_random_seed(1)
    data = cct_keras.load_data(stripes(60))
    build_model(data, find_recipe("small", variant="tiny_2")).save(path)
    return path


def test_the_probe_is_a_logistic_regression(start):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y = noise_images(90)
    x[y == 1, :8] //= 2  # Something to see.
    data = cct_keras.load_data((x, y), image_size=16, channels=1)
    run = cct_keras.linear_probe(data, weights=start, penalties=(0.1, 1.0))
    assert run.metrics["penalty"] in (0.1, 1.0)
    assert run.metrics["variant"] == "tiny_2"
    assert run.history == []
    body = keras.Model(run.model.input, run.model.get_layer("pool").output)

    def features(split):
        images = np.concatenate([x for x, _ in data.pipeline(split)])
        return keras.ops.convert_to_numpy(body(images))

    labels = np.concatenate([data.train.labels, data.validation.labels])
    truth = make_pipeline(
        StandardScaler(), LogisticRegression(C=run.metrics["penalty"], max_iter=5000)
    ).fit(np.concatenate([features("train"), features("validation")]), labels)
    expected = truth.predict_proba(features("test"))
    images = np.concatenate([x for x, _ in data.pipeline("test")])
    found = keras.ops.convert_to_numpy(run.model(images))
    np.testing.assert_allclose(found, expected, atol=2e-3)
    assert run.metrics["test"]["top1"] == pytest.approx(
        (expected.argmax(1) == data.test.labels).mean()
    )


def test_the_probe_of_two_classes_and_its_command(start, tmp_path, capsys):
    x, y = stripes(100, 4)
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=x[:40], y_test=y[:40])
    command = ["probe", str(tmp_path / "data.npz"), "--weights", str(start)]
    assert cli.main([*command, "--out", str(tmp_path / "probe.keras")]) == 0
    output = capsys.readouterr().out
    assert "test accuracy 100.00%" in output
    assert "head" not in output
    metrics = cct_keras.evaluate(tmp_path / "probe.keras", tmp_path / "data.npz")
    assert metrics["top1"] == 1.0


def test_a_probe_without_weights():
    with pytest.raises(RecipeError, match="needs `weights`.*Received: weights=None"):
        cct_keras.linear_probe(stripes(60), weights=None)
