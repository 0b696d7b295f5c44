"""`cct-keras train`: its options and what it passes on; tests/training trains."""

import pathlib
import re
import shlex
from unittest import mock

import pytest

import cct_keras
from cct_keras.cli import main as cli
from cct_keras.cli import train as command
from cct_keras.recipes.recipe import FIELDS
from cct_keras.recipes.rows import RECIPES
from cct_keras.recipes.rows import find_recipe


@pytest.fixture
def train(monkeypatch):
    """Accepts what `train` accepts, and does nothing."""
    function = mock.create_autospec(cct_keras.train)
    monkeypatch.setattr(cct_keras, "train", function)
    return function


def arguments_of(train, *words):
    assert cli.main(["train", *words]) == 0
    (call,) = train.mock_calls
    assert callable(call.kwargs.pop("log"))
    return call.args, call.kwargs


def test_defaults(train):
    positional, keywords = arguments_of(train, "digits")
    assert positional == ("digits",)
    assert keywords == {
        "recipe": RECIPES["small"],
        "minutes": None,
        "weights": None,
        "out": pathlib.Path("runs", "digits-cct_2_3x2_32-small"),
        "image_size": None,
        "data_dir": None,
        "seed": 0,
        "split_seed": 0,
        "jit": None,
        "devices": None,
        "coordinator": None,
        "num_hosts": None,
        "host_id": None,
        "restart": False,
        "dry_run": False,
        "verbose": True,
        "command": "cct-keras train digits",
    }


def test_settings(train):
    flags = "--out a --image-size 16 24 --data-dir b --seed 3 --no-jit --devices all"
    flags += " --split-seed 4 --restart --quiet --minutes 2.5"
    _, keywords = arguments_of(train, "my photos", *flags.split())
    del keywords["recipe"]
    assert shlex.split(keywords.pop("command"))[2] == "my photos"
    assert keywords == {
        "minutes": 2.5,
        "weights": None,
        "out": pathlib.Path("a"),
        "image_size": (16, 24),
        "data_dir": "b",
        "seed": 3,
        "split_seed": 4,
        "jit": False,
        "devices": "all",
        "coordinator": None,
        "num_hosts": None,
        "host_id": None,
        "restart": True,
        "dry_run": False,
        "verbose": False,
    }


def test_a_dry_run_speaks_even_if_quiet(train):
    _, keywords = arguments_of(train, "digits", "--dry-run", "--quiet")
    assert keywords["dry_run"]
    assert keywords["verbose"]


def test_recipe_fields(train):
    flags = "--recipe cifar10_300 --epochs 30 --variant cct_4_3x2_32 --lr 1e-3 "
    flags += "--crop-scale 0.5 0.9 --remat yes --ema none --freeze body --image-size 48"
    _, keywords = arguments_of(train, "photos/", *flags.split())
    assert keywords["recipe"] == find_recipe(
        "cifar10_300",
        epochs=30,
        variant="cct_4_3x2_32",
        lr=1e-3,
        crop_scale=(0.5, 0.9),
        remat=True,
        ema=None,
        freeze="body",
    )
    assert keywords["image_size"] == 48
    assert keywords["out"] == pathlib.Path("runs", "photos-cct_4_3x2_32-cifar10_300")


def test_a_recipe_file_and_weights(train, tmp_path):
    file = tmp_path / "mine.yml"
    file.write_text("lr: 1e-3\nepochs: 4\n")
    flags = ["--recipe", str(file), "--weights", "cifar10_jpeg"]
    _, keywords = arguments_of(train, "digits", *flags)
    assert keywords["out"].name == "digits-cct_2_3x2_32-mine"
    assert (keywords["recipe"].lr, keywords["recipe"].epochs) == (1e-3, 4)
    assert keywords["recipe"].weights == "cifar10_jpeg"


def test_weights_choose_the_recipe(train):
    _, keywords = arguments_of(train, "digits", "--weights", "mnist")
    assert keywords["out"].name == "digits-cct_2_3x2_32-finetune"
    assert keywords["recipe"].layer_decay == RECIPES["finetune"].layer_decay


def test_preview(train, monkeypatch, capsys):
    from cct_keras.report import preview
    from cct_keras.training import load

    read = mock.create_autospec(load.load_training_data, return_value="images")
    monkeypatch.setattr(load, "load_training_data", read)
    write = mock.create_autospec(preview.write_preview, return_value="a.png")
    monkeypatch.setattr(preview, "write_preview", write)
    assert (
        cli.main(["train", "digits", "--preview", "--seed", "2", "--split-seed", "5"])
        == 0
    )
    assert capsys.readouterr().out == "a.png\n"
    small, folder = RECIPES["small"], pathlib.Path("runs", "digits-cct_2_3x2_32-small")
    read.assert_called_once_with(
        "digits", small, image_size=None, data_dir=None, seed=5
    )
    write.assert_called_once_with(folder / "preview.png", "images", small, seed=2)
    assert not train.called


def test_help_explains_every_field(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["train", "--help"])
    options = {}
    for text in re.split(r"\n  (?=-)", capsys.readouterr().out):
        options[text.split()[0]] = " ".join(text.split())
    values = {}
    for name in set(FIELDS) - {"about"}:
        text = options[f"--{name.replace('_', '-')}"]
        values[name] = re.search(r"\((?:default|small): ([^()]*)\)", text)[1]
    assert values["lr"] == "0.002"
    assert values["crop_scale"] == "0.8 1"
    assert values["remat"] == "no"
    assert values["ema"] == "none"
    assert values["augment"].replace(" ", "") == "auto-long"


def test_help_speaks_command_line(capsys, monkeypatch):
    texts = dict.fromkeys(FIELDS, "Some text.")
    texts["schedule"] = 'Either `"cosine"` or `"step"`, down to `min_lr` at 100 %.'
    texts["remat"] = "XLA computes the blocks again."
    monkeypatch.setattr(command, "field_help", lambda: texts)
    with pytest.raises(SystemExit, match="0"):
        cli.main(["train", "--help"])
    output = " ".join(capsys.readouterr().out.split())
    for line in (
        "--schedule NAME either cosine or step, down to --min-lr at 100 % (small: lin",
        "--remat yes|no XLA computes the blocks again (small: no)",
        "--lr X some text (small: 0.002)",
    ):
        assert line in output


def test_topics_name_fields():
    names = [name for names in command.TOPICS.values() for name in names]
    assert len(names) == len(set(names))
    assert set(names) <= set(FIELDS)


def test_a_new_field_needs_no_topic(monkeypatch, capsys):
    topics = {k: v for k, v in command.TOPICS.items() if k != "distillation"}
    monkeypatch.setattr(command, "TOPICS", topics)
    with pytest.raises(SystemExit, match="0"):
        cli.main(["train", "--help"])
    end = capsys.readouterr().out.split("recipe fields: other")[1]
    assert "--teacher-views" in end


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--recipe", "smal"], "unknown recipe 'smal'. Did you mean: small?"),
        (["--variant", "cct_2"], "unknown variant 'cct_2'"),
        (["--lr", "fast"], "--lr must be float. Received: --lr fast"),
        (["--remat", "perhaps"], "--remat must be bool. Received: --remat perhaps"),
        (
            ["--distill", "soft"],
            "--distill needs a --teacher. Received: --distill soft",
        ),
        (["--crop-scale", "0", "2"], "Received: --crop-scale 0.0 2.0"),
        (["--minutes", "0"], "--minutes must be above 0 and at most 525,600 (a year)"),
        (["--minutes", "-1"], "Received: --minutes -1.0"),
        (["--minutes", "nan"], "Received: --minutes nan"),
        (["--minutes", "1e18"], "Received: --minutes 1e+18"),
        (
            ["--minutes", "2", "--epochs", "3"],
            "give --minutes or --epochs, not both. Received: --minutes 2, --epochs 3",
        ),
    ],
)
def test_refusals(flags, message, train, capsys):
    assert cli.main(["train", "digits", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not train.called
