"""`cct-keras probe`: its options and what it prints; tests/finetuning probes."""

import types
from unittest import mock

import pytest

import cct_keras
from cct_keras.cli import main as cli


@pytest.fixture
def linear_probe(monkeypatch):
    model = types.SimpleNamespace(save=lambda path: path.write_bytes(b"model"))
    test = {"top1": 0.9, "top1_ci95": (0.85, 0.95), "count": 360}
    knn = {"top1": 0.8, "top1_ci95": (0.75, 0.85), "count": 360, "k": 5}
    metrics = {"test": test, "knn": knn, "estimate": "test", "seconds": 2.5}
    function = mock.create_autospec(cct_keras.linear_probe)

    def say_something(*_, log, **__):
        log("note: gray: image_size=8")
        return types.SimpleNamespace(model=model, metrics=metrics)

    function.side_effect = say_something
    function.metrics = metrics
    monkeypatch.setattr(cct_keras, "linear_probe", function)
    return function


def test_defaults(linear_probe, capsys):
    assert cli.main(["probe", "digits", "--weights", "mnist"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "note: gray: --image-size 8",
        "accuracy on 360 test images",
        "logistic regression 90.00% (95 % interval 85.00% to 95.00%)",
        "k-NN, k = 5 80.00% (95 % interval 75.00% to 85.00%)",
        "2.5 s",
    ]
    linear_probe.assert_called_once_with(
        "digits",
        None,
        weights="mnist",
        features=None,
        image_size=None,
        data_dir=None,
        split_seed=0,
        cache=True,
        verbose=True,
        log=mock.ANY,
    )


def test_without_an_accuracy(linear_probe, capsys):
    linear_probe.metrics |= {"test": None, "knn": None, "estimate": None}
    assert cli.main(["probe", "digits", "--weights", "mnist"]) == 0
    assert "every class has a single image" in capsys.readouterr().out


def test_settings(linear_probe, tmp_path, capsys):
    out = tmp_path / "probe.keras"
    flags = (
        "--variant cct_2_3x2_32 --image-size 16 --data-dir a --split-seed 4 --no-cache"
    )
    flags += " --features avg"
    command = ["probe", "digits", "--weights", "mnist", *flags.split()]
    assert cli.main([*command, "--out", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"model: {out}"
    assert out.read_bytes() == b"model"
    linear_probe.assert_called_once_with(
        "digits",
        "cct_2_3x2_32",
        weights="mnist",
        features="avg",
        image_size=16,
        data_dir="a",
        split_seed=4,
        cache=False,
        verbose=True,
        log=mock.ANY,
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--out", "probe.h5"], "--out must end in .keras. Received: probe.h5"),
        (["--out", "no/probe.keras"], "the folder no does not exist"),
        (["--variant", "cct_2_3x2"], "Did you mean: cct_2_3x3_32, cct_2_3x2_32"),
    ],
)
def test_refusals(flags, message, linear_probe, capsys):
    assert cli.main(["probe", "digits", "--weights", "mnist", *flags]) == 2
    assert message in capsys.readouterr().err
    assert not linear_probe.called


def test_weights_are_required(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["probe", "digits"])
    assert "--weights" in capsys.readouterr().err
