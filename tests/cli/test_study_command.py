"""`cct-keras study` and `compare`: options and output; tests/studies trains."""

import pathlib
import shlex
from unittest import mock

import pytest

import cct_keras
from cct_keras.cli import main as cli
from cct_keras.studies.comparison import Comparison


@pytest.fixture
def study(monkeypatch):
    """Accepts what `study` accepts, and trains nothing."""
    function = mock.create_autospec(
        cct_keras.study, return_value=Comparison("A study", {})
    )
    monkeypatch.setattr(cct_keras, "study", function)
    return function


def arguments_of(study, *words):
    assert cli.main(["study", *words]) == 0
    (call,) = study.mock_calls
    assert callable(call.kwargs.pop("log"))
    return call.args, call.kwargs


def test_defaults(study):
    positional, keywords = arguments_of(study, "digits")
    assert positional == ("digits",)
    assert keywords == {
        "seeds": None,
        "folds": None,
        "tries": {},
        "seed": 0,
        "split_seed": 0,
        "out": pathlib.Path("runs", "digits-cct_2_3x2_32-small-study"),
        "image_size": None,
        "data_dir": None,
        "restart": False,
        "verbose": True,
        "command": "cct-keras study digits",
    }


def test_settings(study):
    flags = "--recipe quick --epochs 3 --variant cvt_2_4_32 --lr 1e-3 --no-jit "
    flags += "--folds 5 --seed 2 --split-seed 4 --out a --image-size 16 24 --restart "
    flags += "--try batch-size=32,64 --try lora_rank=none,2 --try devices=1,all"
    _, keywords = arguments_of(study, "my photos", *flags.split())
    assert shlex.split(keywords.pop("command"))[2] == "my photos"
    assert keywords == {
        "recipe": "quick",
        "epochs": 3,
        "variant": "cvt_2_4_32",
        "lr": "1e-3",
        "jit": False,
        "seeds": None,
        "folds": 5,
        "tries": {
            "batch_size": [32, 64],
            "lora_rank": [None, 2],
            "devices": [1, "all"],
        },
        "seed": 2,
        "split_seed": 4,
        "out": pathlib.Path("a"),
        "image_size": (16, 24),
        "data_dir": None,
        "restart": True,
        "verbose": True,
    }


def test_every_option_of_train_but_those_of_one_run():
    train, study = (
        set(cli._flags(cli._parser([name])[1][name])) for name in ("train", "study")
    )
    of_one_run = {"preview", "dry_run", "coordinator", "num_hosts", "host_id"}
    assert train - study == of_one_run
    assert study - train == {"seeds", "folds", "tries"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--try lrr=1,2", "unknown recipe field 'lrr' in --try. Did you mean: lr?"),
        ("--try lr", "--try must be FIELD=A,B without empty values"),
        ("--try lr=", "--try must be FIELD=A,B without empty values"),
        ("--try lr=1,,2", "--try must be FIELD=A,B without empty values"),
        ("--try lr=1 --try lr=2", "give all values of lr in one --try"),
        ("--try lr=fast", "--lr must be float. Received: --lr fast"),
        ("--try variant=cct_2", "unknown variant 'cct_2'"),
        ("--try recipe=small,smal", "unknown recipe 'smal'. Did you mean: small?"),
        ("--try freeze=0,3", "--freeze must be at most the 2 blocks"),
        ("--try lr=1,2 --lr 3", "lr cannot be set for all runs and tried"),
        ("--lr fast", "--lr must be float. Received: --lr fast"),
        ("--recipe smal", "unknown recipe 'smal'. Did you mean: small?"),
        ("--seeds 0", "--seeds must be an integer of 1 or more. Received: --seeds 0"),
        ("--folds 1", "--folds must be an integer of 2 or more. Received: --folds 1"),
        ("--seeds 2 --folds 2", "give --seeds or --folds, not both"),
        ("--folds 200", "--folds must be from 2 to the number of images of the smal"),
    ],
)
def test_refusals(flags, message, capsys, tmp_path):
    out = str(tmp_path / "out")
    assert cli.main(["study", "digits", "--quiet", "--out", out, *flags.split()]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not list(tmp_path.rglob("run.json"))


def test_compare(monkeypatch, capsys, tmp_path):
    found = Comparison("Comparison of 2 runs", {"a": [], "b": []}, notes=("a note",))
    function = mock.create_autospec(cct_keras.compare, return_value=found)
    monkeypatch.setattr(cct_keras, "compare", function)
    out = tmp_path / "page"
    assert cli.main(["compare", "runs/a", "runs/b", "--out", str(out)]) == 0
    function.assert_called_once_with(["runs/a", "runs/b"])
    text = capsys.readouterr().out
    assert "note: a note" in text
    assert text.endswith(f"page: {out / 'comparison.html'}\n")
    assert cli.main(["compare", "runs/a", "--json", "--out", str(out)]) == 0
    assert '"title": "Comparison of 2 runs"' in capsys.readouterr().out


def test_compare_refuses_in_one_line(capsys, tmp_path):
    assert cli.main(["compare", str(tmp_path / "gone")]) == 2
    assert "no such run" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    flags = ["--out", str(tmp_path / "file")]
    assert cli.main(["compare", str(tmp_path), *flags]) == 2
    assert "is a file, and a folder is to be written" in capsys.readouterr().err
