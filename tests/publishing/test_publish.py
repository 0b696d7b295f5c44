"""Models that are published, and come back from the hub as they were."""

import json
import pathlib
import re
import shlex
from dataclasses import replace

import keras
import numpy as np
import pytest
from hub_server import TOKEN
from hub_server import running_hub
from hub_server import use_hub
from small import predict
from small import small_model

import cct_keras
from cct_keras.cli import main as cli
from cct_keras.cli.train import recipe_fields
from cct_keras.errors import DownloadError
from cct_keras.errors import PublishError
from cct_keras.hub import upload_folder
from cct_keras.inference.metrics import classification_metrics
from cct_keras.pretrained.source import open_weights
from cct_keras.publishing.retraining import training_command
from cct_keras.recipes.recipe import Recipe
from cct_keras.recipes.rows import RECIPES
from cct_keras.recipes.rows import find_recipe
from cct_keras.recipes.run_settings import recipe_settings

PIXELS = np.random.default_rng(1).integers(0, 256, (3, 20, 24, 1)).astype("float32")
NAMES = tuple("0123456789")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with running_hub() as hub:
        use_hub(hub, tmp_path / "home", monkeypatch, token=TOKEN)
        yield hub


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run, of shipped weights; its metrics are of made-up answers."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    folder.mkdir()
    cct_keras.load_classifier("cct_2_3x2_32.digits").save(folder / "model.keras")
    generator = np.random.default_rng(0)
    labels = np.arange(200) % 10
    scores = generator.random((200, 10)) + 2 * (labels[:, None] == np.arange(10))
    scores[:30] = generator.random((30, 10))
    probabilities = scores / scores.sum(1, keepdims=True)
    metrics = {
        "test": classification_metrics(labels, probabilities, NAMES),
        "validation": {"top1": 0.9, "loss": 0.3, "epoch": 37},
        "epochs": 50,
        "seconds": 54.0,
        "macs": 8146176,
        "data": "digits",
    }
    settings = {
        **recipe_settings(find_recipe("small", lr=1e-3, augment="none")),
        "data": "digits",
        "fingerprint": "c18f",
        "image_size": [16, 16],
        "seed": 7,
        "backend": "tensorflow",
    }
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (folder / "run.json").write_text(json.dumps(settings))
    return folder


# The client's own words to the library below it.
@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
def test_a_run_goes_to_the_hub_and_comes_back(hub, run, tmp_path, capsys):
    out = tmp_path / "folder"
    command = ["publish", str(run), "me/digits", "--license", "apache-2.0"]
    assert cli.main([*command, "--out", str(out)]) == 0
    output = capsys.readouterr().out
    assert f"published: {hub.url}/me/digits" in output
    assert 'create_model(weights="hf://me/digits")' in output
    files = hub.files("me/digits")
    assert set(files) == {
        "model.keras",
        "model.safetensors",
        "config.json",
        "README.md",
    }
    assert files["model.keras"] == (run / "model.keras").read_bytes()
    assert files == {path.name: path.read_bytes() for path in out.iterdir()}

    original = keras.models.load_model(run / "model.keras", compile=False)
    expected = predict(original, PIXELS)
    for model in (
        cct_keras.create_model(weights="hf://me/digits", include_preprocessing=True),
        cct_keras.create_model(
            weights="hf://me/digits/model.safetensors", include_preprocessing=True
        ),
        cct_keras.load_classifier("hf://me/digits"),
    ):
        np.testing.assert_array_equal(predict(model, PIXELS), expected)
        found, own = (x.get_layer("preprocessing") for x in (model, original))
        assert found.get_config() == own.get_config()
    body = cct_keras.convert("hf://me/digits")
    normalized = predict(original.get_layer("preprocessing"), PIXELS)
    np.testing.assert_array_equal(predict(body, normalized), expected)
    assert open_weights("hf://me/digits").variant == "cct_2_3x2_32"

    # Who publishes again replaces nothing unasked.
    assert cli.main([*command, "--out", str(out), "--dry-run"]) == 2
    assert "exists; --force replaces it" in capsys.readouterr().err


def test_the_card(run, tmp_path):
    """As the library of the hub itself reads it."""
    from huggingface_hub import ModelCard

    made = cct_keras.publish(
        run, "me/digits", license="cc-by-4.0", out=tmp_path / "a", dry_run=True
    )
    assert (made.url, made.notes) == (None, ())
    card = ModelCard.load(tmp_path / "a" / "README.md")
    assert card.data.license == "cc-by-4.0"
    assert card.data.library_name == "keras"
    assert card.data.pipeline_tag == "image-classification"
    test = json.loads((run / "metrics.json").read_text())["test"]
    found = {result.metric_name: result for result in card.data.eval_results}
    low, high = test["top1_ci95"]
    top1 = found[f"Top-1 accuracy (95 % interval {low:.4f} to {high:.4f})"]
    assert top1.metric_value == pytest.approx(test["top1"], abs=1e-6)
    assert (top1.dataset_name, top1.dataset_split) == ("digits", "test")
    for text in (
        f"{test['top1']:.2%} of 200 test images",
        f"{low:.2%} to {high:.2%}",
        'create_model(weights="hf://me/digits", include_preprocessing=True)',
        "cct-keras predict hf://me/digits photo.jpg",
        "| recipe | `small` |",
        "| recipe: lr | 0.001 |",
        "50, the best was number 37",
        "cct-keras train digits --variant cct_2_3x2_32 --recipe small --epochs 50",
        "--lr 0.001",
        "--seed 7",
    ):
        assert text in card.text
    assert str(run) not in card.content


@pytest.mark.integration
def test_a_folder_is_replaced_if_asked(run, tmp_path, capsys):
    command = ["publish", str(run), "me/digits", "--dry-run"]
    command += ["--out", str(tmp_path / "out"), "--force"]
    for _ in range(2):
        assert cli.main(command) == 0
        assert "nothing was uploaded" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.integration
def test_what_the_card_says_of_an_unknown_model(tmp_path):
    model = small_model("ViT")
    made = cct_keras.publish(model, "me/vit", out=tmp_path / "vit", dry_run=True)
    assert any("no license was given" in note for note in made.notes)
    text = (tmp_path / "vit" / "README.md").read_text()
    assert not re.search("^license:", text, re.MULTILINE)
    assert "None was given" in text
    assert "not measured" in text
    assert "model-index" not in text
    assert 'create_model(weights="hf://me/vit")' in text
    assert "(batch, 16, 16, 3), normalized" in text


@pytest.mark.parametrize("name", RECIPES)
def test_the_command_trains_with_the_same_recipe(name):
    recipe = find_recipe(name, epochs=7, weights=None, ema=0.5, clip_norm=None)
    settings = {
        **recipe_settings(recipe),
        "data": "my photos",
        "image_size": [32, 48],
        "seed": 3,
    }
    # As they come back from the file.
    settings = json.loads(json.dumps(settings))
    words = shlex.split(shlex.join(training_command(settings)))
    parser, _ = cli._parser(words[1:])
    arguments = parser.parse_args(words[1:])
    again = find_recipe(arguments.recipe, **recipe_fields(arguments))
    # The image size is an option of its own.
    again, recipe = (replace(x, image_size=None) for x in (again, recipe))
    assert recipe_settings(again) == recipe_settings(recipe)
    assert (arguments.data, arguments.seed) == ("my photos", 3)
    assert arguments.image_size == (32, 48)


def test_the_command_hides_where_files_are():
    settings = {
        **recipe_settings(Recipe(weights="/home/me/secret/model.keras")),
        "data": "photos",
        "seed": 0,
    }
    words = training_command(settings)
    assert words[words.index("--weights") + 1] == "model.keras"
    assert not any("secret" in word for word in words)


@pytest.mark.parametrize(
    ("repo", "options", "message"),
    [
        ("digits", {}, "`repo` must be user/repo"),
        ("me/digits@v1", {}, "`repo` must be user/repo"),
        ("me/digits/file", {}, "`repo` must be user/repo"),
        ("me/digits", {"license": "Apache 2.0"}, "`license` must be an identifier"),
        ("me/digits", {"license": "mit\nx: 1"}, "`license` must be an identifier"),
    ],
)
def test_what_is_refused_before_any_work(repo, options, message, tmp_path):
    with pytest.raises(PublishError, match=re.escape(message)):
        cct_keras.publish("nothing.keras", repo, out=tmp_path / "x", **options)
    assert not list(tmp_path.iterdir())


def publish_to(folder, model):
    return cct_keras.publish(model, "me/it", out=folder, dry_run=True)


def test_models_that_cannot_be_published(tmp_path):
    incomplete = tmp_path / "run"
    incomplete.mkdir()
    body = small_model("CCT", include_top=False, pooling="seq")
    plain = small_model("CCT")
    added = keras.layers.Dense(2, name="more")(plain.output)
    stranger = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    for model, message in (
        (incomplete, "holds no metrics.json: it is no complete run"),
        (tmp_path / "gone.keras", "no such model file"),
        (body, "the model has no head"),
        (stranger, "cannot be published"),
        (keras.Model(plain.input, added), "no model of this package: left over: more/"),
    ):
        with pytest.raises(PublishError, match=re.escape(message)):
            publish_to(tmp_path / "out", model)
    assert [path.name for path in tmp_path.iterdir()] == ["run"], "all or nothing"


def test_a_folder_of_somebody_else_stays(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(PublishError, match="overwrite=True replaces it"):
        publish_to(folder, "any.keras")
    with pytest.raises(PublishError, match="was not written by this command"):
        cct_keras.publish(
            "any.keras", "me/it", out=folder, dry_run=True, overwrite=True
        )
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]


def test_without_the_right_token(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    with pytest.raises(DownloadError, match=r"cannot be written \(401\): the token"):
        upload_folder(folder, "me/digits", private=False, message="first")
    assert not hub.repos.get("me/digits")


def test_a_private_repository(hub, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    url = upload_folder(folder, "me/mine", private=True, message="first")
    assert url == f"{hub.url}/me/mine"
    assert hub.private == {"me/mine"}
    assert set(hub.files("me/mine")) == {"README.md"}


def test_files_of_strangers_that_lie(hub, run):
    """A file is measured against what it claims before a model of it is built."""
    import io
    import zipfile

    def changed(change):
        content, config = io.BytesIO(), None
        with zipfile.ZipFile(run / "model.keras") as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        config = json.loads(parts["config.json"])
        change({layer["name"]: layer for layer in config["config"]["layers"]})
        parts["config.json"] = json.dumps(config).encode()
        with zipfile.ZipFile(content, "w") as archive:
            for name, part in parts.items():
                archive.writestr(name, part)
        return content.getvalue()

    def larger_images(layers):
        shape = [None, 10**6, 10**6, 1]
        layers["tokenizer"]["build_config"]["input_shape"] = shape

    def wider_layers(layers):
        layers["block_0"]["config"]["hidden_dim"] = 10**12

    def other_normalization(layers):
        layers["preprocessing"]["config"]["mean"] = ["0.5"]

    def other_names(layers):
        layers["preprocessing"]["config"]["class_names"] = {"__reduce__": "os.system"}

    for change, message in (
        (other_normalization, "`mean` must be a list of a few numbers"),
        (other_names, "`class_names` must be a list of at most"),
        (larger_images, "its positions are not for images of (1000000, 1000000)"),
        (wider_layers, "no model of this package: shapes: block_0/feed_forward"),
        (lambda layers: layers["block_0"].clear(), "there is no 'class_name'"),
    ):
        hub.commit("me/bad", {"model.keras": changed(change)})
        with pytest.raises(ValueError, match=re.escape(message)) as error:
            cct_keras.convert("hf://me/bad")
        assert "hf://me/bad" in str(error.value)
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", b"0" * 2**27)
    hub.commit("me/bad", {"model.keras": bomb.getvalue()})
    with pytest.raises(ValueError, match="declares far more than it holds"):
        cct_keras.create_model(weights="hf://me/bad")


def test_what_keras_itself_uploads(hub, tmp_path):
    """`model.save("hf://user/repo")`: weights with a config of Keras beside them."""
    model = small_model("CVT")
    model.save_weights(tmp_path / "model.weights.h5")
    content = (tmp_path / "model.weights.h5").read_bytes()
    config = {"module": "keras", "class_name": "Functional", "config": {}}
    hub.put("me/it", model__weights__h5=content, config__json=config)
    x = np.random.default_rng(0).standard_normal((2, 16, 16, 3)).astype("float32")
    loaded = cct_keras.create_model(weights="hf://me/it")
    np.testing.assert_array_equal(predict(loaded, x), predict(model, x))
    with pytest.warns(UserWarning, match="does not tell how its images are normalized"):
        cct_keras.load_classifier("hf://me/it")


def test_a_model_without_a_variant_needs_weights_that_tell(tmp_path):
    with pytest.raises(ValueError, match="give a `variant`, or `weights`"):
        cct_keras.create_model(num_classes=3)
    with pytest.raises(ValueError, match="needs a variant that it belongs to"):
        cct_keras.create_model(weights="cifar10_jpeg")
    model = small_model("ViT", num_heads=4)
    model.save(tmp_path / "vit.keras")
    x = np.random.default_rng(0).standard_normal((2, 16, 16, 3)).astype("float32")
    loaded = cct_keras.create_model(weights=tmp_path / "vit.keras")
    np.testing.assert_array_equal(predict(loaded, x), predict(model, x))


@pytest.mark.integration
def test_by_commands_alone(tmp_path):
    """Processes of their own, which know the hub by their environment."""
    import os
    import subprocess
    import sys

    from hub_server import environment

    command = pathlib.Path(sys.executable).with_name("cct-keras")
    with running_hub() as hub:
        settings = {**os.environ, **environment(hub, tmp_path / "home")}
        settings["HF_TOKEN"] = TOKEN

        def call(*words):
            result = subprocess.run(
                [command, *words],
                env=settings,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
            )
            assert result.returncode == 0, result.stderr
            return result.stdout

        call(
            *[
                "train",
                "digits",
                "--recipe",
                "quick",
                "--epochs",
                "1",
                "--out",
                "run",
                "--quiet",
            ]
        )
        output = call("publish", "run", "me/digits", "--license", "mit")
        assert f"published: {hub.url}/me/digits" in output
        metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
        found = json.loads(call("evaluate", "hf://me/digits", "digits", "--json"))
        assert found["top1"] == metrics["test"]["top1"]
        probe = call("probe", "digits", "--weights", "hf://me/digits")
        assert "note: weights: model.keras of hf://me/digits" in probe
        words = "train digits --weights hf://me/digits --epochs 1 --out tuned"
        output = call(*words.split())
        assert "note: weights: model.keras of hf://me/digits" in output
        call(*["publish", "tuned", "me/tuned"])
        card = hub.files("me/tuned")["README.md"].decode()
        assert "base_model: me/digits" in card
        assert "--weights hf://me/digits" in card
        converted = call("convert", "hf://me/digits/model.safetensors", "out.keras")
        assert "self-check" in converted
        assert (tmp_path / "out.keras").is_file()
