"""`cct-keras evaluate`, with shipped weights."""

import json
from unittest import mock

import pytest

import cct_keras
from cct_keras.cli import main as cli

MODEL = "cct_2_3x2_32.digits"
METRICS = {
    "notes": ["images are resized"],
    "count": 1797,
    "top1": 0.9,
    "top1_ci95": (0.85, 0.95),
    "top5": None,
    "loss": 0.5,
    "ece": 0.01,
    "per_class": [
        {"name": "0", "count": 100, "accuracy": 0.5},
        {"name": "eleven", "count": 0, "accuracy": None},
    ],
}


def test_shipped_weights(capsys):
    """The accuracy that the catalog promises, on the command's own test images."""
    assert cli.main(["evaluate", MODEL, "digits", "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert metrics["count"] == 360
    assert 100 * metrics["top1"] == pytest.approx(99.72, abs=0.01)


def test_what_is_printed(capsys, monkeypatch):
    evaluate = mock.create_autospec(cct_keras.evaluate, return_value=METRICS)
    monkeypatch.setattr(cct_keras, "evaluate", evaluate)
    flags = ["--split", "train", "--data-dir", "a"]
    assert cli.main(["evaluate", "a.keras", "digits", *flags]) == 0
    evaluate.assert_called_once_with(
        "a.keras", "digits", split="train", data_dir="a", tta=None
    )
    assert capsys.readouterr().out.splitlines() == [
        "note: images are resized",
        "images  1,797",
        "top-1   90.00% (95 % interval 85.00% to 95.00%)",
        "loss    0.5000",
        "ECE     0.0100",
        "",
        "class   images  accuracy",
        "0          100    50.00%",
        "eleven       0         -",
    ]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("cct_2_3x2_33.digits", "Did you mean: cct_2_3x2_32"),
        ("cct_2_3x2_32.digit", "it has: cifar10_legacy"),
        ("none.keras", "none.keras"),
    ],
)
def test_refusals(model, message, capsys):
    assert cli.main(["evaluate", model, "digits"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
