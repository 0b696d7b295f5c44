"""`cct-keras train`: what it writes, shows and refuses."""

import json

import pytest
from PIL import Image
from runs import eager

from cct_keras.cli.main import main
from cct_keras.recipes.rows import find_recipe
from cct_keras.training.build import build_model
from cct_keras.training.load import load_training_data

FLAGS = ["--variant", "tiny_1", "--epochs", "1", "--batch-size", "16", "--lr", "2e-3"]


@pytest.fixture(scope="module", autouse=True)
def eagerly():
    with eager():
        yield


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_train_command(source, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["train", source, *FLAGS, "--image-size", "16", "20"]
    code, text, _ = run(capsys, *arguments)
    assert code == 0
    assert "epoch 1/1  loss" in text
    out = tmp_path / "runs" / "stripes-tiny_1-small"
    settings = json.loads((out / "run.json").read_text())
    assert (settings["lr"], settings["image_size"]) == (2e-3, [16, 20])
    assert (out / "model.keras").is_file()
    code, text, _ = run(capsys, *arguments)
    assert "is complete" in text
    code, _, error = run(capsys, *arguments, "--seed", "1")
    assert code == 2
    assert "seed 0 -> 1" in error


@pytest.mark.integration
def test_the_weights_name_the_folder(source, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = find_recipe("small", variant="tiny_2")
    build_model(load_training_data(source, recipe), recipe).save("start.keras")
    flags = ["--weights", "start.keras", "--epochs", "1", "--quiet"]
    assert run(capsys, "train", source, *flags)[0] == 0
    out = tmp_path / "runs" / "stripes-tiny_2-finetune"
    settings = json.loads((out / "run.json").read_text())
    assert (settings["variant"], settings["weights"]) == ("tiny_2", "start.keras")


@pytest.mark.integration
def test_preview_command(source, tmp_path, capsys):
    flags = ["--recipe", "cifar10_300", "--preview", "--image-size", "16", "24"]
    code, text, _ = run(capsys, "train", source, *flags, "--out", tmp_path / "out")
    assert code == 0
    assert text.strip() == str(tmp_path / "out" / "preview.png")
    with Image.open(tmp_path / "out" / "preview.png") as image:
        assert image.size[0] > 500
    assert not (tmp_path / "out" / "run.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--recipe", "smal"], "unknown recipe 'smal'. Did you mean: small?"),
        (["--variant", "cct_2"], "unknown variant 'cct_2'"),
        (["--lr", "fast"], "--lr must be float"),
        (["--augment", "rand-x"], "rand-x"),
        (
            ["--freeze", "3"],
            "at most the 2 blocks of cct_2_3x2_32. Received: --freeze 3",
        ),
        (["--lora-rank", "2", "--lora-targets", "key"], "no layer for an adapter: key"),
        (
            ["--distill", "hard"],
            "--distill needs a --teacher. Received: --distill hard",
        ),
        (["--teacher", "gone.keras"], "--teacher: no such model file: gone.keras"),
        (["--weights", "gone.keras"], "no such file or tag: gone.keras"),
    ],
)
def test_train_refuses_in_one_line(capsys, tmp_path, arguments, message):
    code, _, error = run(
        capsys, "train", "digits", *arguments, "--out", tmp_path / "out"
    )
    assert code == 2
    assert message in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_data_that_are_not_there(capsys, tmp_path):
    code, _, error = run(capsys, "train", "no/folder", "--out", tmp_path / "out")
    assert code == 2
    assert "no/folder: no such file or folder" in error
    assert not (tmp_path / "out").exists()


def test_unknown_flag_names_near_ones(capsys):
    with pytest.raises(SystemExit):
        main(["train", "digits", "--weigth-decay", "1"])
    assert "Did you mean: --weight-decay" in capsys.readouterr().err


def test_list_recipes(capsys):
    code, text, _ = run(capsys, "list", "--recipes", "cifar10_*")
    assert code == 0
    assert [line.split()[0] for line in text.splitlines()] == [
        "cifar10_300",
        "cifar10_1500",
        "cifar10_5000",
    ]


def test_lines_of_a_run_speak_the_command_line(source, tmp_path, capsys):
    arguments = ["train", source, *FLAGS, "--freeze", "1", "--out", tmp_path / "run"]
    _, text, _ = run(capsys, *arguments)
    assert "frozen layers keep their random values; --weights" in text
    _, text, _ = run(capsys, *arguments)
    assert "is complete; --restart trains anew" in text
