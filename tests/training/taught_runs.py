"""Runs with a teacher that is trained for them, small and comparable."""

import keras
import pytest
from runs import assert_same_weights
from runs import without_times

import cct_keras

PLAIN = {
    "variant": "tiny_1",
    "batch_size": 32,
    "crop": "none",
    "lr": 1e-2,
    # It learns something in two steps.
    "optimizer": "adamw",
}
TAUGHT = {**PLAIN, "teacher": "convnet", "teacher_epochs": 2, "epochs": 2}
TIMES = ("seconds", "images_per_second")


def train(data, out=None, **fields):
    return cct_keras.train(data, out=out, **{**TAUGHT, "verbose": False, **fields})


def assert_same_run(run, other):
    taught = [
        {k: v for k, v in x.metrics["teacher"].items() if k not in TIMES}
        for x in (run, other)
    ]
    if keras.config.backend() == "tensorflow":
        assert without_times(run.history) == without_times(other.history)
        assert run.metrics["test"] == other.metrics["test"]
        assert taught[0] == taught[1]
        assert_same_weights(run.model, other.model)
        return
    assert taught[0]["test"]["top1"] == taught[1]["test"]["top1"]
    for a, b in zip(run.history, other.history, strict=True):
        assert a["val_loss"] == pytest.approx(b["val_loss"], rel=1e-3)
