"""`evaluate`, `predict` and the commands around a trained file."""

import json
import warnings

import keras
import numpy as np
import pytest
from PIL import Image

import cct_keras
from cct_keras.cli import main
from cct_keras.data import DataError
from cct_keras.training import find_recipe
from cct_keras.training.trainer import build_model

COLOURS = {"blue": (0, 0, 255), "green": (0, 255, 0), "red": (255, 0, 0)}


def make_folder(root, size=(20, 30)):
    generator = np.random.default_rng(0)
    for name, colour in COLOURS.items():
        (root / name).mkdir(parents=True)
        for i in range(24):
            noise = generator.integers(-40, 40, (*size, 3))
            image = np.clip(np.array(colour) * 0.7 + 40 + noise, 0, 255)
            Image.fromarray(image.astype("uint8")).save(root / name / f"{i:02}.png")
    return root


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Three colours, learnt to the last image."""
    folder = make_folder(tmp_path_factory.mktemp("colours") / "set")
    out = tmp_path_factory.mktemp("run")
    run = cct_keras.train(
        folder,
        "cvt_2_4_32",
        epochs=10,
        image_size=16,
        batch_size=16,
        out=out,
        verbose=False,
    )
    assert run.metrics["test"]["top1"] == 1.0
    return folder, out / "model.keras"


def test_evaluate(trained):
    folder, model = trained
    metrics = cct_keras.evaluate(model, folder)
    assert metrics["top1"] == 1.0
    assert metrics["count"] == 11
    assert [row["name"] for row in metrics["per_class"]] == list(COLOURS)
    counts = [
        cct_keras.evaluate(model, folder, split=split)["count"]
        for split in ("train", "validation", "test")
    ]
    assert counts == [55, 6, 11]


def test_evaluate_uses_the_images_that_training_held_out(tmp_path):
    folder = make_folder(tmp_path / "set")
    run = cct_keras.train(
        folder,
        "cvt_2_4_32",
        epochs=1,
        image_size=16,
        batch_size=16,
        seed=5,
        verbose=False,
    )
    found = cct_keras.evaluate(run.model, folder)
    assert found["count"] == run.metrics["test"]["count"]
    assert found["loss"] == pytest.approx(run.metrics["test"]["loss"], rel=1e-3)
    other = cct_keras.evaluate(run.model, make_folder(tmp_path / "other", (22, 30)))
    assert other["count"] == 72
    assert other["notes"] == ["no test split: all 72 images are measured"]


def test_evaluate_a_set_with_fewer_classes(trained, tmp_path):
    """Labels follow the model's names, not their order in the new set."""
    folder, model = trained
    for name in ("green", "red"):
        (tmp_path / "set").mkdir(exist_ok=True)
        (tmp_path / "set" / name).symlink_to(folder / name)
    assert cct_keras.evaluate(model, tmp_path / "set")["top1"] == 1.0
    (tmp_path / "set" / "yellow").symlink_to(folder / "blue")
    with pytest.raises(DataError, match="does not know these classes of set: yellow"):
        cct_keras.evaluate(model, tmp_path / "set")


def test_predict_images_of_any_size_and_kind(trained, tmp_path):
    _, model = trained
    Image.new("RGB", (301, 77), (250, 10, 10)).save(tmp_path / "red.jpg")
    Image.new("RGBA", (16, 16), (10, 250, 10, 255)).save(tmp_path / "green.png")
    Image.new("RGB", (16, 16), (5, 5, 250)).quantize(4).save(tmp_path / "blue.png")
    (tmp_path / "bad.webp").write_bytes(b"RIFF")
    rows = cct_keras.predict(model, tmp_path, top=2)
    assert [row["image"] for row in rows] == [
        str(tmp_path / name)
        for name in ("bad.webp", "blue.png", "green.png", "red.jpg")
    ]
    assert "bad.webp" in rows[0]["error"]
    assert [row["classes"][0]["name"] for row in rows[1:]] == ["blue", "green", "red"]
    for row in rows[1:]:
        first, second = (answer["probability"] for answer in row["classes"])
        assert 1 >= first > second >= 0


def test_predict_arrays(trained):
    _, model = trained
    model = keras.models.load_model(model)
    red = np.zeros((40, 30, 3), "uint8")
    red[..., 0] = 250
    one = cct_keras.predict(model, red, top=1)
    many = cct_keras.predict(model, np.stack([red, red[..., ::-1]]), top=1)
    assert one[0]["classes"][0]["name"] == "red"
    assert [row["classes"][0]["name"] for row in many] == ["red", "blue"]
    assert "3 channels" in cct_keras.predict(model, red[..., :2])[0]["error"]


def test_prediction_and_evaluation_agree(trained):
    """Files through `predict` and through the pipeline of `evaluate`."""
    folder, model = trained
    rows = cct_keras.predict(model, folder, top=1)
    names = [row["classes"][0]["name"] for row in rows]
    assert names == [row["image"].split("/")[-2] for row in rows]


def test_a_file_is_a_start_for_other_classes(trained):
    _, path = trained
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = cct_keras.create_model(
            "cvt_2_4_32", weights=path, num_classes=5, input_shape=(24, 24, 3)
        )
    stored = keras.models.load_model(path)
    for name in ("block_0", "block_1", "tokenizer"):
        pairs = zip(
            model.get_layer(name).get_weights(),
            stored.get_layer(name).get_weights(),
            strict=True,
        )
        for a, b in pairs:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("model", "message"),
    [("none.keras", "no such model file"), ("bad.keras", "is not a Keras model file")],
)
def test_bad_models(tmp_path, model, message):
    (tmp_path / "bad.keras").write_bytes(b"PK\3\4 nothing")
    with pytest.raises(DataError, match=message):
        cct_keras.evaluate(tmp_path / model, "digits")


def test_a_model_without_preprocessing():
    with pytest.raises(DataError, match="no `Preprocessing` layer"):
        cct_keras.predict(cct_keras.create_model("cvt_2_4_32"), np.zeros((8, 8, 3)))


# === The command line ===


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_evaluate_command(trained, capsys):
    folder, model = trained
    code, text, _ = run(capsys, "evaluate", model, folder)
    assert code == 0
    assert "top-1   100.00% (95 % interval" in text
    assert "green" in text
    code, text, _ = run(capsys, "evaluate", model.parent, folder, "--json")
    assert json.loads(text)["top1"] == 1.0


def test_predict_command(trained, capsys, tmp_path):
    folder, model = trained
    image = next((folder / "red").iterdir())
    code, text, _ = run(capsys, "predict", model, image, "--top", "2")
    assert code == 0
    assert text.splitlines()[0] == str(image)
    assert text.splitlines()[1].endswith("  red")
    assert len(text.splitlines()) == 3
    (tmp_path / "bad.jpg").write_bytes(b"")
    code, text, error = run(
        capsys, "predict", model, image, tmp_path / "bad.jpg", "--json"
    )
    assert code == 2
    assert json.loads(text)[0]["classes"][0]["name"] == "red"
    assert "bad.jpg" in error
    assert len(error.splitlines()) == 1


def test_train_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("cct_keras.training.trainer.write_report", lambda *_, **__: 0)
    folder = make_folder(tmp_path / "set")
    monkeypatch.chdir(tmp_path)
    arguments = ["train", folder, "--variant", "cvt_2_4_32", "--epochs", "1"]
    arguments += ["--image-size", "16", "--batch-size", "16", "--lr", "2e-3"]
    code, text, _ = run(capsys, *arguments)
    assert code == 0
    assert "epoch 1/1  loss" in text
    out = tmp_path / "runs" / "set-cvt_2_4_32-small"
    settings = json.loads((out / "run.json").read_text())
    assert (settings["lr"], settings["image_size"]) == (2e-3, [16, 16])
    assert (out / "model.keras").is_file()
    code, text, _ = run(capsys, *arguments)
    assert "is complete" in text
    code, _, error = run(capsys, *arguments, "--seed", "1")
    assert code == 2
    assert "seed 0 -> 1" in error


def test_preview_command(tmp_path, capsys):
    folder = make_folder(tmp_path / "set")
    code, text, _ = run(
        capsys,
        "train",
        folder,
        "--recipe",
        "cifar10_300",
        "--preview",
        "--image-size",
        "16",
        "24",
        "--out",
        tmp_path / "out",
    )
    assert code == 0
    assert text.strip() == str(tmp_path / "out" / "preview.png")
    with Image.open(tmp_path / "out" / "preview.png") as image:
        assert image.size[0] > 500
    assert not (tmp_path / "out" / "run.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits", "--recipe", "smal"], "unknown recipe 'smal'. Did you mean: small?"),
        (["digits", "--variant", "cct_2"], "unknown variant 'cct_2'"),
        (["no/folder"], "no/folder: no such file or folder"),
        (["digits", "--lr", "fast"], "`lr` must be float"),
        (["digits", "--augment", "rand-x"], "rand-x"),
    ],
)
def test_train_refuses_in_one_line(capsys, tmp_path, arguments, message):
    code, _, error = run(capsys, "train", *arguments, "--out", tmp_path / "out")
    assert code == 2
    assert message in error
    assert len(error.splitlines()) == 1


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


# === The layer inside ===


@pytest.mark.backend
def test_preprocessing_layer_against_pillow():
    """A downscaled photograph-like image, cut to the aspect ratio of the model."""
    rows, columns = np.mgrid[:90, :120]
    image = 127 + 60 * np.sin(rows / 9) + 50 * np.cos(columns / 11)
    image = np.stack([image, image[::-1], image[:, ::-1]], -1).astype("uint8")
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    layer = cct_keras.layers.Preprocessing((30, 30), mean=mean, std=std, crop=0.8)
    found = keras.ops.convert_to_numpy(layer(image[None]))[0]
    # 90 x 90 in the middle, 0.8 of it: 72 x 72 from (9, 24).
    cut = Image.fromarray(image).crop((24, 9, 96, 81))
    expected = np.asarray(cut.resize((30, 30), Image.Resampling.BICUBIC)) / 255
    np.testing.assert_allclose(found * std + mean, expected, atol=1.5 / 255)
    ready = np.full((2, 30, 30, 3), 255 * 0.4)
    found = keras.ops.convert_to_numpy(layer(ready))
    np.testing.assert_allclose(found[..., 0], 0, atol=1e-5)


@pytest.mark.backend
def test_a_model_for_raw_images_saves_and_loads(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), "uint8")
    data = cct_keras.load_data((images, np.arange(40) % 4))
    model = build_model(data, find_recipe("small", variant="cvt_2_4_32"))
    model.save(tmp_path / "m.keras")
    stored = keras.models.load_model(tmp_path / "m.keras")
    larger = images[:3].repeat(3, 1).repeat(3, 2).astype("float32")
    for batch in (images[:3].astype("float32"), larger):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(stored(batch)),
            keras.ops.convert_to_numpy(model(batch)),
            atol=1e-6,
        )
    assert stored.get_layer("preprocessing").class_names == ("0", "1", "2", "3")
