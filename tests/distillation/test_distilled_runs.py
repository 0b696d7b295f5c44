"""`train` with a teacher: the student is a plain model, and resumes like any other."""

import dataclasses
import json

import keras
import numpy as np
import pytest
from runs import StopAfter
from runs import eager
from small import stripes
from teachers import convnet
from teachers import knows_stripes
from teachers import named
from teachers import small_deit
from teachers import to_numpy

import cct_keras
from cct_keras.cli import main as cli
from cct_keras.distillation.teacher import teacher_name

PLAIN = {"variant": "tiny_1", "batch_size": 32, "crop": "none", "lr": 1e-2}
# Random layers and soft labels.
STATEFUL = {**PLAIN, "stochastic_depth": 0.1, "mixup": 0.5, "erase_prob": 0.3}


@pytest.fixture(scope="module", autouse=True)
def eagerly():
    with eager():
        yield


def train(data, teacher, **fields):
    fields = {**PLAIN, "epochs": 2, "verbose": False, **fields}
    return cct_keras.train(data, teacher=teacher, **fields)


@pytest.mark.backend
def test_a_student_learns_what_only_the_teacher_knows(source):
    """The labels are random, and weigh nothing."""
    labels = np.random.default_rng(1).permutation(source.train.labels)
    split = dataclasses.replace(source.train, labels=labels)
    data = dataclasses.replace(source, train=split)
    fields = {"distill": "soft", "distill_weight": 1.0, "epochs": 12}
    run = train(data, knows_stripes, **fields)
    assert run.metrics["test"]["top1"] == 1.0


@pytest.fixture(scope="module")
def alone(source):
    """A student without a teacher."""
    keras.utils.set_random_seed(0)
    return cct_keras.train(source, **PLAIN, epochs=1, verbose=False).model


@pytest.mark.backend
@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_the_student_is_a_plain_model(kind, alone, source, tmp_path):
    teacher = convnet()
    before = [to_numpy(w) for w in teacher.weights]
    run = train(source, teacher, distill=kind, epochs=1, out=tmp_path / "run")
    for value, weight in zip(before, teacher.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), value)
    assert all(layer.trainable for layer in teacher.layers)
    stored = keras.models.load_model(tmp_path / "run/model.keras")
    for model in (run.model, stored):
        assert [w.path for w in model.weights] == [w.path for w in alone.weights]
        assert [x.name for x in model.layers] == [x.name for x in alone.layers]
    differs = [
        not np.array_equal(a, b)
        for a, b in zip(stored.get_weights(), alone.get_weights(), strict=True)
    ]
    assert any(differs)


def assert_same_run(run, other):
    for a, b in zip(run.history, other.history, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
        assert a["val_loss"] == pytest.approx(b["val_loss"], rel=1e-4)
    weights = run.model.get_weights(), other.model.get_weights()
    for a, b in zip(*weights, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


@pytest.fixture(scope="module")
def whole(source):
    keras.utils.set_random_seed(0)
    return train(source, convnet(), **STATEFUL, distill="soft")


@pytest.mark.integration
@pytest.mark.backend
@pytest.mark.parametrize("views", [0, 2])
def test_an_interrupted_run_ends_as_a_whole_one(views, whole, source, tmp_path):
    """Also from answers on disk, which are those of the live teacher."""
    fields = {**STATEFUL, "distill": "soft", "teacher_views": views}
    fields["out"] = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(source, convnet(), **fields, callbacks=[StopAfter(1)])
    assert_same_run(train(source, convnet(), **fields), whole)
    files = (tmp_path / "home").rglob("teachers/*/*.npy")
    assert [path.name for path in files] == (["logits.npy"] if views else [])


def test_another_teacher_is_another_run(source, tmp_path):
    out = tmp_path / "run"
    train(source, convnet(), epochs=1, out=out)
    other = convnet()
    other.layers[-1].bias.assign([1.0, 2.0])
    with pytest.raises(RuntimeError, match="other settings.*teacher"):
        train(source, other, epochs=1, out=out)


def test_the_command_takes_the_file_of_a_teacher(tmp_path, capsys):
    images, labels = stripes(80)
    np.savez(tmp_path / "stripes.npz", x_train=images, y_train=labels)
    model = named(("0", "1"), activation="softmax", shape=(None, None, 1))
    model.save(tmp_path / "teacher.keras")
    out = tmp_path / "run"
    flags = {
        "--teacher": tmp_path / "teacher.keras",
        "--distill": "soft",
        "--distill-tau": 2,
        **{f"--{name.replace('_', '-')}": value for name, value in PLAIN.items()},
        "--epochs": 1,
        "--out": out,
    }
    words = [str(word) for pair in flags.items() for word in pair]
    assert cli.main(["train", str(tmp_path / "stripes.npz"), *words]) == 0
    assert "soft distillation from" in capsys.readouterr().out
    settings = json.loads((out / "run.json").read_text())
    assert settings["teacher"] == str(tmp_path / "teacher.keras")
    assert settings["teacher_name"] == teacher_name(model)
    run = train(
        tmp_path / "stripes.npz", model, distill="soft", distill_tau=2, epochs=1
    )
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["validation"] == pytest.approx(run.metrics["validation"], rel=1e-5)


# === The distillation token ===


@pytest.fixture
def two_headed(monkeypatch):
    monkeypatch.setattr("cct_keras.training.build.create_model", small_deit)


@pytest.mark.integration
@pytest.mark.backend
def test_a_run_with_two_heads(two_headed, source, tmp_path):
    fields = {"epochs": 2, "ema": 0.5, "distill": "hard"}
    whole = train(source, convnet(), **fields, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(
            source, convnet(), **fields, out=tmp_path / "cut", callbacks=[StopAfter(1)]
        )
    resumed = train(source, convnet(), **fields, out=tmp_path / "cut")
    for a, b in zip(resumed.history, whole.history, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
    stored = keras.models.load_model(tmp_path / "whole/model.keras")
    assert stored.output_shape == (None, 2)
    assert "heads" not in {layer.name for layer in stored.layers}
    metrics = cct_keras.evaluate(stored, source, split="validation")
    best = whole.history[whole.metrics["validation"]["epoch"] - 1]
    assert metrics["top1"] == pytest.approx(best["val_accuracy"])
    assert metrics["loss"] == pytest.approx(best["val_loss"], rel=1e-4)
