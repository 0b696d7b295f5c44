"""The entry point: which command runs, and what an error looks like."""

import argparse
import pathlib
import re
import subprocess
import sys

import pytest

import cct_keras
from cct_keras.cli import main as cli

COMMAND = pathlib.Path(sys.executable).with_name("cct-keras")
ADDRESS = "10.0.0.1:1234"


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    listed = [line.split()[0] for line in lines if line.startswith("    ")]
    assert [name for name in listed if name in cli.COMMANDS] == [*cli.COMMANDS]


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_option_has_a_help_text(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main([command, "--help"])
    assert f"usage: cct-keras {command}" in capsys.readouterr().out
    _, parsers = cli._parser([command])
    for action in parsers[command]._actions:
        assert action.help
        if action.option_strings and action.dest != "help" and action.nargs != 0:
            assert re.search("default: |small: |needed|required", action.help)


def test_version(capsys):
    for flag in ("--version", "-V"):
        with pytest.raises(SystemExit, match="0"):
            cli.main([flag])
        assert capsys.readouterr().out.strip() == cct_keras.__version__


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: COMMAND"),
        (["trian"], "unknown command 'trian'. Did you mean: train?"),
        (["\x1b[31m"], "unknown command '?x1b"),
        (["list", "--recipe"], None),
        (["list", "--pretrained", "--recipes"], "not allowed with"),
        (["summary", "cct_7_3x1_32", "--num-clases", "3"], "mean: --num-classes?"),
        (["train", "digits", "--weigth-decay=1"], "Did you mean: --weight-decay"),
        (["train", "digits", "--epochs", "many"], "invalid int value: 'many'"),
        (["benchmark", "--image-size", "8", "8", "8"], "a side or a height and a"),
    ],
)
def test_what_cannot_be_parsed_is_one_line(arguments, message, capsys):
    if message is None:
        # A unique beginning of an option is enough.
        assert cli.main(arguments) == 0
        return
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert message.replace("?x1b", "\\x1b") in captured.err
    assert "\x1b" not in captured.err


def test_an_error_is_one_line_that_cannot_control_the_terminal(capsys, monkeypatch):
    def refuse(*arguments, **options):
        raise ValueError("first line\nsecond \x1b[31mline")

    monkeypatch.setattr(cct_keras, "list_models", refuse)
    assert cli.main(["list"]) == 2
    assert capsys.readouterr().err == (
        "cct-keras: error: first line second ?[31mline\n"
    )


def test_an_error_without_words(capsys, monkeypatch):
    def refuse(*arguments, **options):
        raise MemoryError

    monkeypatch.setattr(cct_keras, "list_models", refuse)
    assert cli.main(["list"]) == 2
    assert capsys.readouterr().err == "cct-keras: error: MemoryError\n"


def test_an_interrupt(monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(cct_keras, "list_models", interrupt)
    assert cli.main(["list"]) == 130


def test_a_reader_that_has_read_enough():
    """As in `cct-keras list | head -1`."""
    program = subprocess.Popen(
        [COMMAND, "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    program.stdout.close()
    with program.stderr:
        assert program.stderr.read() == b""
    assert program.wait() == 0


# === Python words into options ===


@pytest.fixture
def flags():
    parser = argparse.ArgumentParser()
    return {
        "restart": parser.add_argument("--restart", action="store_true"),
        "jit": parser.add_argument("--jit", action=argparse.BooleanOptionalAction),
        "fresh_head": parser.add_argument("--fresh-head", metavar="yes|no"),
        "head": parser.add_argument("--head"),
        "batch_size": parser.add_argument("--batch-size", type=int),
        "lr": parser.add_argument("--lr"),
        "grid": parser.add_argument("--grid", nargs=2),
        "out": parser.add_argument("--out", metavar="FOLDER"),
        "coordinator": parser.add_argument("--coordinator"),
    }


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        # Names.
        ("`batch_size` must be positive", "--batch-size must be positive"),
        ("`fresh_head` and `head`", "--fresh-head and --head"),
        ("give batch_size=, or grid=.", "give --batch-size, or --grid."),
        # Switches, and options that take a word for a switch.
        ("restart=True trains anew", "--restart trains anew"),
        ("`restart=True` trains anew", "--restart trains anew"),
        ("Received: restart=False", "Received: no --restart"),
        ("jit=True or jit=False", "--jit or --no-jit"),
        ("fresh_head=True, fresh_head=False", "--fresh-head yes, --fresh-head no"),
        # Numbers, at the end of a sentence too.
        ("a lower rate (lr=5.0e-04)", "a lower rate (--lr 5.0e-04)"),
        ("use lr=0.1. Then lr=-1: no", "use --lr 0.1. Then --lr -1: no"),
        ("Received: batch_size=0", "Received: --batch-size 0"),
        # Words, with quotes only where a shell needs them.
        ("out='runs/a'; out=\"runs/b\"", "--out runs/a; --out runs/b"),
        ("out='my runs'", "--out 'my runs'"),
        ("out=PosixPath('runs/a')", "--out runs/a"),
        ("choose out=...", "choose --out FOLDER"),
        ("choose head=...", "choose --head HEAD"),
        (f"coordinator={ADDRESS}", f"--coordinator {ADDRESS}"),
        # More than one value.
        ("grid=(8, 12) or grid=[8, 12]", "--grid 8 12 or --grid 8 12"),
        ("pass grid=(rows, columns)", "pass --grid rows columns"),
        ("head=None", "no --head"),
    ],
)
def test_python_words_become_options(flags, message, expected):
    assert cli.speak_command_line(message, flags) == expected


@pytest.mark.parametrize(
    "message",
    [
        "the head of the model, restart, and out",
        "`model` must be a file. Received: model=3",
        "`head_size`, model.head=3, xlr=2, lr==2",
        "runs/lr=0.1/model.keras cannot be read",
        "https://example.org/?lr=1&head=2",
        "`out.keras` and `restart()`",
    ],
)
def test_other_words_stay(flags, message):
    assert cli.speak_command_line(message, flags) == message
    assert cli.speak_command_line(message, {}) == message


def test_the_options_are_those_of_the_running_command(capsys):
    summary = ["summary", "cct_7_3x1_32", "--num-classes", "-1"]
    assert cli.main(summary) == 2
    error = capsys.readouterr().err
    assert "--num-classes must be" in error
    assert "num_classes" not in error
