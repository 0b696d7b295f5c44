"""The weights in `weights/`: what their rows state is true, and an install has them."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import keras
import numpy as np
import pytest

import cct_keras
from cct_keras.inference.metrics import wilson_interval
from cct_keras.pretrained import source as pretrained

TESTS = pathlib.Path(__file__).parents[1]
FOLDER = TESTS.parent / "weights"
SAMPLES = TESTS / "samples"
ROWS = [row for row in pretrained.WEIGHTS if row.is_shipped]
# Right answers among the sample images; a rounding may tip one of them.
RIGHT = {"cifar10_jpeg": (173, 200), "mnist": (200, 200), "digits": (359, 360)}
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.tag)


def sample(tag):
    return "digits" if tag == "digits" else SAMPLES / tag


def test_files_and_rows_belong_together():
    files = {path.name: path for path in FOLDER.glob("*.h5")}
    assert set(files) == {row.shipped_file for row in ROWS}
    assert {row.tag for row in ROWS} == {"cifar10_jpeg", "mnist", "digits"}
    assert sum(path.stat().st_size for path in files.values()) < 6e6


@each_row
def test_hash(row):
    content = (FOLDER / row.shipped_file).read_bytes()
    assert hashlib.sha256(content).hexdigest() == row.sha256


@each_row
def test_the_document_says_what_the_row_says(row):
    text = (FOLDER / "README.md").read_text()
    made = row.provenance
    low, high = made.top1_ci95
    assert low <= row.top1 <= high
    for value in (
        row.shipped_file,
        row.sha256,
        f"{row.top1:.2f} % ({low:.2f} to {high:.2f})",
        made.data,
        made.split,
        made.recipe,
        f"seed {made.seed}",
        f"{made.epochs} epochs",
        f"{made.minutes:g} minutes",
        made.hardware,
        made.train,
        made.check,
    ):
        assert value in text


@pytest.mark.backend
@each_row
def test_accuracy_on_real_images(row):
    model = cct_keras.load_classifier(f"{row.variant}.{row.tag}")
    metrics = cct_keras.evaluate(model, sample(row.tag))
    right, count = RIGHT[row.tag]
    assert metrics["count"] == count
    assert abs(metrics["top1"] * count - right) < 1.5
    low, high = wilson_interval(round(metrics["top1"] * count), count)
    assert low <= row.top1 / 100 <= high


@each_row
def test_a_named_variant_takes_the_shape_of_its_weights(row):
    shape = {"cifar10_jpeg": (32, 32, 3), "mnist": (28, 28, 1), "digits": (16, 16, 1)}
    model = cct_keras.create_model(row.variant, weights=row.tag)
    assert model.input_shape[1:] == shape[row.tag]
    data = cct_keras.load_data(sample(row.tag), image_size=shape[row.tag][:2])
    pixels = data.test.images[:8].astype("float32")
    ready = cct_keras.preprocess_input(pixels, row.tag)
    answers = keras.ops.convert_to_numpy(model(ready))
    whole = cct_keras.load_classifier(f"{row.variant}.{row.tag}")
    expected = keras.ops.convert_to_numpy(whole(pixels))
    np.testing.assert_allclose(answers, expected, atol=1e-5)
    assert tuple(cct_keras.class_names(row.tag)) == data.class_names


def test_other_shapes_classes_and_constructors():
    with pytest.warns(UserWarning, match="head"):
        model = cct_keras.create_model(
            "cct_2_3x2_32",
            weights="cifar10_jpeg",
            num_classes=3,
            input_shape=(48, 40, 3),
        )
    assert model.input_shape[1:] == (48, 40, 3)
    built = cct_keras.CCT(
        10,
        (28, 28, 1),
        num_layers=2,
        num_heads=2,
        mlp_ratio=1,
        embedding_dim=128,
        kernel_size=3,
        weights="mnist",
    )
    named = cct_keras.create_model("cct_2_3x2_32", weights="mnist")
    for one, other in zip(built.weights, named.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_channels_first():
    keras.config.set_image_data_format("channels_first")
    try:
        model = cct_keras.create_model("cct_2_3x2_32", weights="mnist")
        whole = cct_keras.load_classifier("cct_2_3x2_32.mnist")
    finally:
        keras.config.set_image_data_format("channels_last")
    assert model.input_shape == (None, 1, 28, 28)
    assert whole.input_shape == (None, None, None, 1)


def test_files_that_were_damaged_or_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "SHIPPED_FOLDERS", (tmp_path,))
    with pytest.raises(ValueError, match="install the package again"):
        cct_keras.create_model("cct_2_3x2_32", weights="digits")
    (row,) = (row for row in ROWS if row.tag == "digits")
    shutil.copy(FOLDER / row.shipped_file, tmp_path)
    assert cct_keras.create_model("cct_2_3x2_32", weights="digits").count_params()
    with (tmp_path / row.shipped_file).open("r+b") as file:
        file.seek(5000)
        file.write(b"\0damaged")
    with pytest.raises(ValueError, match=r"not the file that was shipped.*SHA-256"):
        cct_keras.create_model("cct_2_3x2_32", weights="digits")


def test_names_that_do_not_exist(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="has no weights 'svhn'"):
        cct_keras.predict("cct_2_3x2_32.svhn", "a.png")
    with pytest.raises(ValueError, match="no weights with the tag 'digits_large'"):
        cct_keras.preprocess_input(np.zeros((1, 16, 16, 1)), "digits_large")
    monkeypatch.chdir(tmp_path)
    pathlib.Path("cct_2_3x2_32.mnist").mkdir()
    for name in ("cct_9.mnist", "cct_2_3x2_32", "cct_2_3x2_32.keras"):
        with pytest.raises(ValueError, match=f"no such model file: {name}"):
            cct_keras.predict(name, "a.png")
    with pytest.raises(ValueError, match="no such model file"):
        cct_keras.predict("cct_2_3x2_32.mnist", "a.png")  # a run without a model


def test_command_line(tmp_path, capsys):
    from cct_keras.cli.main import main

    picture = SAMPLES / "mnist" / "7" / "0000.png"
    figure = tmp_path / "new" / "figure.png"
    command = ["predict", "cct_2_3x2_32.mnist", str(picture), "--top", "1"]
    assert main([*command, "--figure", str(figure)]) == 0
    assert capsys.readouterr().out.split()[-1] == "7"
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert main([*command, "--figure", str(tmp_path / "figure.txt")]) == 2
    assert "--figure must end in .png" in capsys.readouterr().err
    assert main(["list", "cct_2_3x2_32", "--pretrained"]) == 0
    listed = capsys.readouterr().out
    assert [
        line.split()[1]
        for line in listed.partition("in this package")[2].splitlines()
        if line.startswith("  cct_2_3x2_32")
    ] == [row.tag for row in ROWS]
    assert listed.count("_legacy") == 2


@pytest.mark.integration
def test_fine_tuning_starts_from_them(tmp_path):
    classes = ("cat", "ship")
    for name in classes:
        shutil.copytree(SAMPLES / "cifar10_jpeg" / name, tmp_path / "few" / name)
    run = cct_keras.train(
        tmp_path / "few", weights="cifar10_jpeg", epochs=1, verbose=False
    )
    preprocessing = run.model.get_layer("preprocessing")
    row = next(row for row in ROWS if row.tag == "cifar10_jpeg")
    assert (preprocessing.mean, preprocessing.std) == row.normalization
    assert run.data.class_names == classes


@pytest.mark.integration
def test_a_wheel_has_them(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=TESTS.parent,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = (
        "import cct_keras\n"
        "from cct_keras.pretrained import source as pretrained\n"
        "for row in pretrained.WEIGHTS:\n"
        "    if row.is_shipped:\n"
        "        print(pretrained.find_shipped(row))\n"
        "print(cct_keras.create_model('cct_2_3x2_32', weights='mnist').input_shape)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
    )
    *paths, shape = result.stdout.split("\n")[:-1]
    inside = tmp_path / "site" / "cct_keras" / "weights"
    assert paths == [str(inside / row.shipped_file) for row in ROWS]
    assert shape == "(None, 28, 28, 1)"


def test_a_tag_is_called_by_its_name():
    """In `run.json` and in messages, not by the path of the installed file."""
    source = pretrained.open_weights("mnist", variant="cct_2_3x2_32")
    assert source.name == "mnist"
