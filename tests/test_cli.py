"""The command line: as a shell runs it, and its answers one by one."""

import pathlib
import subprocess
import sys

import pytest

import cct_keras
from cct_keras import cli

COMMAND = pathlib.Path(sys.executable).with_name("cct-keras")


def run(*arguments):
    return subprocess.run(
        [COMMAND, *arguments], capture_output=True, text=True, check=False
    )


def test_list_in_a_shell():
    result = run("list")
    assert result.returncode == 0
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == cct_keras.list_models()
    assert "22,367,273" in result.stdout


def test_error_in_a_shell():
    result = run("summary", "cct_7_3x1")
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert "Did you mean: cct_7_3x1_32" in result.stderr


def test_list_of_weights(capsys):
    assert cli.main(["list", "cct_14*", "--pretrained"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    row = ["cct_14_7x2_224", "imagenet", "1000", "80.67", "%", "published"]
    assert lines[1].split() == row


def test_summary(capsys):
    assert cli.main(["summary", "cct_14_7x2_384"]) == 0
    output = capsys.readouterr().out
    for fact in ("22,513,193", "15.01 G", "3.57 G", "576", "MiB"):
        assert fact in output
    cli.main(["summary", "cct_7_3x1_32", "--image-size", "48", "64"])
    assert "768" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "resnet*"], "resnet*"),
        (["summary", "cvt_7_4_32", "--image-size", "30", "32"], "divisible"),
        (["summary", "cct_7_3x1_32", "--image-size", "0", "32"], "positive"),
        (["summary", "cct_7_3x1_32", "--num-classes", "-1"], "num_classes"),
    ],
)
def test_errors_are_one_line(arguments, message, capsys):
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert message in captured.err


def test_usage_and_version(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main([])
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out.strip() == cct_keras.__version__
