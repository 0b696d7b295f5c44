"""`cct-keras benchmark`."""

import json

import pytest

from cct_keras.benchmarking import benchmark as benchmarking
from cct_keras.benchmarking.measuring import Timing
from cct_keras.cli import main as cli


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
