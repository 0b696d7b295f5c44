"""What needs no Keras imports none, and so answers at once.

`benchmarks/startup.py` measures the times; here is only what is imported.
"""

import pathlib
import subprocess
import sys
import types

import pytest

import cct_keras

COMMAND = pathlib.Path(sys.executable).with_name("cct-keras")
SLOW = {
    "PIL",
    "h5py",
    "jax",
    "keras",
    "matplotlib",
    "numpy",
    "scipy",
    "sklearn",
    "tensorflow",
    "torch",
    "yaml",
}
MARK = "import time:"


def run(*words):
    """Runs the installed command, and collects what it imports."""
    result = subprocess.run(
        [sys.executable, "-X", "importtime", COMMAND, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = result.stderr.splitlines()
    return types.SimpleNamespace(
        code=result.returncode,
        out=result.stdout,
        error=[line for line in lines if not line.startswith(MARK)],
        imported={
            line.split("|")[-1].strip().split(".")[0]
            for line in lines
            if line.startswith(MARK)
        },
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--help", "benchmark"),
        ("--version", cct_keras.__version__),
        ("train --help", "--weight-decay"),
        ("convert --help", "--num-heads"),
        ("list", "22,367,273"),
        ("list --pretrained", "cifar10_jpeg"),
        ("list --recipes", "cifar10_300"),
        ("summary cct_14_7x2_384", "22,513,193"),
    ],
)
def test_answers(words, expected):
    result = run(*words.split())
    assert result.code == 0
    assert result.error == []
    assert expected in result.out
    assert "cct_keras" in result.imported
    assert not result.imported & SLOW


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", "required: COMMAND"),
        ("trian", "Did you mean: train?"),
        ("train digits --weigth-decay 1", "Did you mean: --weight-decay"),
        ("train digits --variant cct_7_3x1_33", "Did you mean: cct_7_3x1_32"),
        ("train digits --recipe smal", "Did you mean: small?"),
        ("train digits --lr fast", "--lr must be float. Received: --lr fast"),
        ("probe digits --weights x --variant cct_7_3x1_33", "mean: cct_7_3x1_32"),
        ("summary cct_7_3x1_33", "Did you mean: cct_7_3x1_32"),
        ("benchmark cct_2_3x2_32 cct_7_3x1_33", "Did you mean: cct_7_3x1_32"),
        ("predict cct_2_3x2_33.mnist a.png", "Did you mean: cct_2_3x2_32"),
        ("evaluate cct_2_3x2_32.mnits digits", "it has: cifar10_legacy"),
        ("convert a.pth no/folder/b.keras", "the folder no/folder does not exist"),
    ],
)
def test_refusals(words, expected):
    result = run(*words.split())
    assert result.code == 2
    assert result.out == ""
    assert len(result.error) == 1
    assert expected in result.error[0]
    assert not result.imported & SLOW
