"""`cct-keras benchmark`."""

import json
import types

import pytest

from cct_keras.benchmarking import benchmark as benchmarking
from cct_keras.benchmarking import exported
from cct_keras.benchmarking.measuring import Timing
from cct_keras.cli import benchmark as command
from cct_keras.cli import main as cli
from cct_keras.runtime import Metadata


@pytest.fixture
def measure(monkeypatch):
    """Measures nothing: a step takes 1/4 s, and 3 MiB if it trains."""
    calls = []

    def measure(contestants, tasks, **settings):
        calls.append((*contestants, settings))
        (contestant,) = contestants
        timings = {name: Timing(0.25, 0.25, 2.0, 3 * 2**20) for name in tasks}
        return {contestant.name: timings}

    monkeypatch.setattr(benchmarking, "measure", measure)
    return calls


def test_a_table(measure, capsys):
    variants = ["cvt_2_4_32", "deit_tiny_distilled_patch16_224"]
    assert cli.main(["benchmark", *variants, "--batch-size", "1"]) == 0
    machine, _, header, *rows = capsys.readouterr().out.splitlines()
    assert "69 GFLOP/s" in machine
    assert [row.split()[0] for row in rows] == variants
    assert "214,539" in rows[0]
    for row in rows:
        assert len(row) == len(header)
        for fact in (" 4.0 (", "3 MiB", "250.0 ms", "2.0 s"):
            assert fact in row


def test_settings(measure, capsys):
    flags = "--image-size 16 --no-jit --remat --precision mixed_bfloat16 --rounds 2"
    flags += " --seconds 0.5 --json"
    assert cli.main(["benchmark", "cvt_2_4_32", *flags.split()]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["batch_size"] == 64
    assert row["training"]["first"] == 2.0
    ((contestant, settings),) = measure
    assert contestant.arguments == {
        "variant": "cvt_2_4_32",
        "batch_size": 64,
        "image_size": (16, 16),
        "jit": False,
        "remat": True,
        "precision": "mixed_bfloat16",
    }
    assert (settings["rounds"], settings["seconds"]) == (2, 0.5)


def test_exported_files_and_variants(measure, monkeypatch, capsys):
    """Each kind in a table of its own, in the order of the command line."""
    metadata = Metadata(("a", "b"), (32, 32), 3, (0.5,) * 3, (0.5,) * 3, batch=8)
    engine = types.SimpleNamespace(metadata=metadata)
    monkeypatch.setattr(exported, "measure", benchmarking.measure)
    monkeypatch.setattr(exported, "open_engine", lambda path: engine)
    monkeypatch.setattr(exported, "_size", lambda path: 1_500_000)
    monkeypatch.setattr(command, "open_quietly", lambda path: engine)
    assert cli.main(["benchmark", "a.onnx", "b.tflite", "cvt_2_4_32"]) == 0
    _, header, *files = capsys.readouterr().out.splitlines()[:4]
    assert [row.split()[0] for row in files] == ["a.onnx", "b.tflite"]
    for row in files:
        assert len(row) == len(header)
        for fact in ("1.50 MB", " 8 ", " 32.0 ", "250.00 ms", "9 MiB"):
            assert fact in row
    names = ["cvt_2_4_32", "a.onnx"]
    assert cli.main(["benchmark", *names, "--batch-size", "2", "--json"]) == 0
    variant, file = json.loads(capsys.readouterr().out)
    assert variant["variant"] == "cvt_2_4_32"
    assert (file["file"], file["batch_size"], file["bytes"]) == ("a.onnx", 2, 1_500_000)


@pytest.mark.parametrize("option", ["--jit", "--no-jit", "--remat", "--precision x"])
def test_options_that_no_exported_file_has(option, capsys):
    assert cli.main(["benchmark", "a.onnx", *option.split()]) == 2
    error = capsys.readouterr().err
    assert "an exported model is measured as it was exported" in error
    assert len(error.splitlines()) == 1


def test_an_exported_file_that_is_missing(capsys):
    assert cli.main(["benchmark", "none.onnx"]) == 2
    assert capsys.readouterr().err == (
        "cct-keras: error: no such model file: none.onnx\n"
    )


@pytest.mark.integration
@pytest.mark.backend
def test_a_real_measurement(capsys):
    flags = "--batch-size 4 --rounds 1 --seconds 0.01 --image-size 16"
    flags += " --precision mixed_bfloat16"
    assert cli.main(["benchmark", "cvt_2_4_32", *flags.split()]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "GFLOP/s" in lines[0]
    assert lines[-1].split()[0] == "cvt_2_4_32"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--batch-size", "0"], "--batch-size must be a positive integer"),
        (["--rounds", "0"], "--rounds must be a positive integer"),
        (["--seconds", "0"], "--seconds must be more than 0. Received: --seconds 0.0"),
        (["--precision", "half"], "--precision must be one of float32, mixed"),
        (["--image-size", "30"], "divisible by the patch size 4"),
        (["cvt_2_4_33"], "Did you mean: cvt_2_4_32"),
    ],
)
def test_refusals(flags, message, measure, capsys):
    assert cli.main(["benchmark", "cvt_2_4_32", *flags]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out
    assert not measure
