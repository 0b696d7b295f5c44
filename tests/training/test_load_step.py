"""The first step of a run: what recipe, weights, data and teacher decide."""

import dataclasses
import re

import keras
import numpy as np
import pytest
from runs import StopAfter
from runs import eager
from runs import noise_images
from runs import weights_of
from small import stripes

import cct_keras
from cct_keras.errors import DataError
from cct_keras.errors import RecipeError
from cct_keras.errors import RunError
from cct_keras.models.inspection import encoder_blocks
from cct_keras.notes import collected_notes
from cct_keras.pretrained.source import open_weights
from cct_keras.recipes.recipe import Recipe
from cct_keras.recipes.rows import find_recipe
from cct_keras.training import load
from cct_keras.training.build import build_model
from cct_keras.training.load import load_job
from cct_keras.training.load import load_teacher
from cct_keras.training.load import load_training_data
from cct_keras.training.load import match_weights
from cct_keras.training.load import open_start
from cct_keras.training.load import resolve_recipe

STILL = {"lr": 0.0, "min_lr": 0.0, "warmup_lr": 0.0}


@pytest.fixture(scope="module", autouse=True)
def eagerly():
    with eager():
        yield


@pytest.fixture(scope="module")
def data():
    return cct_keras.load_data(stripes(60))


@pytest.fixture(scope="module")
def start(data, tmp_path_factory):
    """The folder of a run, whose model has random weights."""
    folder = tmp_path_factory.mktemp("runs") / "start"
    folder.mkdir()
    keras.utils.set_random_seed(7)
    recipe = find_recipe("small", variant="tiny_2")
    model = build_model(data, recipe)
    for name in ("head", "norm"):
        layer = model.get_layer(name)
        layer.set_weights([w + 0.3 for w in layer.get_weights()])
    model.save(folder / "model.keras")
    return folder


def stored_model(start):
    return keras.models.load_model(start / "model.keras")


def start_job(data, weights, **fields):
    recipe, source = resolve_recipe(None, weights=weights, **fields)
    return load_job(data, recipe, source=source)


def start_model(data, weights, **fields):
    job = start_job(data, weights, **fields)
    return build_model(job.data, job.recipe, job.source)


def tune(data, weights, **fields):
    fields = {"epochs": 1, "batch_size": 32, "verbose": False, **fields}
    return cct_keras.train(data, weights=weights, **fields)


# === Recipe and variant ===


def file_of(kind, start, folder):
    model = stored_model(start)
    path = folder / f"model{kind}"
    if kind == ".keras":
        model.save(path)
    elif kind == ".weights.h5":
        model.save_weights(path)
    else:
        with pytest.warns(UserWarning, match="preprocessing"):
            cct_keras.to_torch(model, path)
    return path


@pytest.mark.parametrize("kind", [".keras", ".weights.h5", ".safetensors"])
def test_the_file_decides_the_variant(kind, start, data, tmp_path):
    path = file_of(kind, start, tmp_path)
    recipe, source = resolve_recipe(None, weights=path)
    assert recipe.variant == source.variant == "tiny_2"
    assert recipe.weights == source.name == str(path)
    assert recipe.layer_decay == find_recipe("finetune").layer_decay < 1
    x = stripes(8, 3)[0][..., None].astype("float32")
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(start_model(data, path)(x)),
        keras.ops.convert_to_numpy(stored_model(start)(x)),
        atol=1e-5,
    )


def test_a_named_variant_opens_nothing_yet(start):
    for arguments in (
        {"recipe": None, "variant": "tiny_2"},
        {"recipe": Recipe(variant="tiny_2")},
    ):
        recipe, source = resolve_recipe(**arguments, weights=start)
        assert (recipe.variant, source) == ("tiny_2", None)
        assert open_start(recipe).variant == "tiny_2"
    # The recipe's own weights are for the recipe's own variant.
    recipe, source = resolve_recipe("imagenet_384_finetune")
    assert (recipe.variant, recipe.weights) == ("cct_14_7x2_224", "imagenet")
    assert source is None


def test_a_tag_is_for_the_variant_of_the_recipe():
    recipe, source = resolve_recipe(None, weights="digits")
    assert (recipe.variant, source) == ("cct_2_3x2_32", None)
    assert open_start(recipe).num_classes == 10
    with pytest.raises(ValueError, match="has no weights 'digit'"):
        open_start(resolve_recipe(None, weights="digit")[0])


def test_opened_weights(start):
    opened = open_weights(start)
    recipe, source = resolve_recipe(None, weights=opened)
    assert source is opened
    assert (recipe.variant, recipe.weights) == ("tiny_2", opened.name)
    named = resolve_recipe(Recipe(variant="tiny_1"), weights=opened)[0]
    assert named.variant == "tiny_1"


def test_weights_are_opened_once(start, data, monkeypatch):
    opened = []

    def counting(*arguments, **named):
        opened.append(open_weights(*arguments, **named))
        return opened[-1]

    monkeypatch.setattr(load, "open_weights", counting)
    tune(data, start, **STILL)
    assert len(opened) == 1
    run = tune(data, opened[0], **STILL)
    assert len(opened) == 1
    assert run.metrics["variant"] == "tiny_2"


def test_a_folder_named_like_a_tag(start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    recipe, source = resolve_recipe(None, weights="digits")
    assert (recipe.weights, source) == ("digits", None)
    assert open_start(recipe).num_classes == 10
    # A run comes first.
    (tmp_path / "digits/model.keras").symlink_to(start / "model.keras")
    assert resolve_recipe(None, weights="digits")[0].variant == "tiny_2"


def test_weights_of_a_recipe_file(start, tmp_path):
    path = tmp_path / "mine.yml"
    path.write_text(f"weights: {start}\nlora_rank: 2\nlora_targets: [qkv, proj]\n")
    recipe, source = resolve_recipe(path)
    assert recipe.variant == "tiny_2"
    assert recipe.weights == source.name
    assert recipe.lora_targets == "qkv,proj"


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"a": np.zeros(3)}, "`weights` must be str"),
        (".", "holds no model.keras; is that run complete"),
        ("http://127.0.0.1:9/a.keras", "download .* first"),
        ("gone.keras", "no such file or tag: gone.keras"),
        ("runs/gone", "no such file or tag: runs/gone"),
        ("dinov2_smal.lvd142m", "Did you mean: dinov2_small.lvd142m"),
        ("facebook/dinov2-small", "it would be hf://facebook/dinov2-small"),
    ],
)
@pytest.mark.parametrize("variant", [None, "tiny_2"])
def test_weights_that_are_not_there(weights, message, variant, data, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(RecipeError, match=message):
        tune(data, weights, variant=variant, out=out)
    assert not out.exists()


def test_an_architecture_without_a_name(tmp_path, data):
    model = cct_keras.CVT(2, (16, 16, 1), num_layers=3, num_heads=2, embedding_dim=32)
    model.save(tmp_path / "mine.keras")
    with pytest.raises(ValueError, match="no named variant"):
        tune(data, tmp_path / "mine.keras")


@pytest.mark.parametrize("name", ["broken.keras", "broken.weights.h5", "broken.pth"])
def test_broken_weights(name, tmp_path, data):
    (tmp_path / name).write_bytes(b"PK\x03\x04 no")
    with pytest.raises(ValueError, match=name.split(".")[0]):
        tune(data, tmp_path / name, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_weights_are_not_thrown_away_by_the_run_they_start(start, data):
    with pytest.raises(RunError, match="restart=True would throw .*model.keras away"):
        tune(data, start, out=start, restart=True)
    assert (start / "model.keras").is_file()


# === What is taken from the weights ===


def test_a_run_folder_is_a_start(start, data, capsys):
    """Nothing learns, so the tuned model is the one it started from."""
    run = tune(data, start, **STILL, verbose=True)
    assert run.metrics["variant"] == "tiny_2"
    expected = weights_of(stored_model(start))
    for path, value in weights_of(run.model).items():
        np.testing.assert_array_equal(value, expected[path])
    output = capsys.readouterr().out
    assert re.search(r"training [\d,]+ of [\d,]+ parameters from .*model.keras", output)
    # Nothing has changed, and nothing is said to have.
    assert not re.search("resized|adapted|initiali|fresh|normali", output)


def test_everything_that_changes_is_said(start, capsys):
    run = tune(noise_images(40), start, verbose=True)
    notes = re.findall("^note: (.*)$", capsys.readouterr().out, re.MULTILINE)
    for words in (
        "left as initiali",
        "positions were resized from 4 x 4 to 6 x 6",
        "the first convolution was adapted from 1 to 3 channels",
        "images keep their own normalization: the weights are for other channels",
    ):
        assert sum(words in note for note in notes) == 1, words
        assert sum(words in note for note in run.data.notes) == 1, words
    assert run.model.output_shape == (None, 3)


def test_the_normalization_of_the_weights(start, data):
    x, y = stripes(60, 1)
    job = start_job((x // 3, y), start)
    assert (job.data.mean, job.data.std) == (data.mean, data.std)
    assert "images are normalized as for the weights" in job.data.notes[-1]
    layer = build_model(job.data, job.recipe, job.source).get_layer("preprocessing")
    assert (layer.mean, layer.std) == (data.mean, data.std)
    assert cct_keras.load_data((x // 3, y)).mean != data.mean


def test_known_weights_bring_their_normalization(data):
    job = start_job(data, "digits")
    assert (job.data.mean, job.data.std) == ((0.306,), (0.3763,))


def test_the_positions_of_the_weights(data, tmp_path):
    """Whatever the variant's name says."""
    path = tmp_path / "sine.weights.h5"
    cct_keras.create_model(
        "tiny_1", positional_embedding="sine", input_shape=(16, 16, 1), num_classes=2
    ).save_weights(path)
    assert start_job(data, path, variant="tiny_1").recipe.positional_embedding == "sine"
    model = start_model(data, path, variant="tiny_1")
    assert model.get_layer("position_embedding").kind == "sine"


# === Activation ===


@pytest.fixture
def relu_file(data, tmp_path):
    model = build_model(data, find_recipe("small", variant="tiny_2", activation="relu"))
    model.save(tmp_path / "relu.keras")
    return tmp_path / "relu.keras"


def activations(model):
    return {block.activation for block in encoder_blocks(model)}


def test_the_activation_of_a_run(data, start, relu_file):
    """That of the recipe, else that of the weights, else gelu."""
    plain = load_job(data, Recipe(variant="tiny_1"))
    assert plain.settings["activation"] == "gelu"
    assert load_job(data, Recipe(activation="gelu_tanh")).recipe.activation == (
        "gelu_tanh"
    )
    assert start_job(data, start).recipe.activation == "gelu"
    job = start_job(data, relu_file)
    assert (job.recipe.variant, job.recipe.activation) == ("tiny_2", "relu")
    assert activations(start_model(data, relu_file)) == {"relu"}
    # The model that is saved is built without the weights.
    assert activations(build_model(job.data, job.recipe)) == {"relu"}


@pytest.mark.parametrize("asked", ["relu", "gelu"])
def test_weights_of_another_activation_are_a_start(asked, data, start, relu_file):
    weights = start if asked == "relu" else relu_file
    with collected_notes() as notes:
        model = start_model(data, weights, activation=asked)
    assert activations(model) == {asked}
    theirs = "gelu" if asked == "relu" else "relu"
    assert any(f"activation {theirs}; this run" in note for note in notes)
    stored = keras.models.load_model(
        weights / "model.keras" if weights == start else weights
    )
    for path, array in weights_of(model).items():
        np.testing.assert_array_equal(array, weights_of(stored)[path])


def test_a_recorded_activation_counts():
    recipe = Recipe(weights="gone.keras", variant="tiny_1")
    recorded = {"mean": (0.5,), "std": (0.5,), "positional_embedding": "learnable"}
    data = load_training_data(stripes(60), recipe)
    for settings, expected in (({}, "gelu"), ({"activation": "relu"}, "relu")):
        found = match_weights(data, recipe, None, {**recorded, **settings})[1]
        assert found.activation == expected


def test_a_model_with_adapters_is_a_start(start, data, tmp_path):
    model = cct_keras.add_lora(stored_model(start), 2)
    for weight in model.trainable_weights:
        weight.assign(0.05 * np.ones(weight.shape))
    model.save(tmp_path / "lora.keras")
    x = stripes(8, 3)[0][..., None].astype("float32")
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(start_model(data, tmp_path / "lora.keras")(x)),
        keras.ops.convert_to_numpy(model(x)),
        atol=1e-5,
    )
    model.save_weights(tmp_path / "lora.weights.h5")
    with pytest.raises(ValueError, match="adapters: merge_lora"):
        start_model(data, tmp_path / "lora.weights.h5")


def test_weights_of_half_precision(data, tmp_path):
    cct_keras.create_model(
        "tiny_1", input_shape=(16, 16, 1), num_classes=2, dtype="bfloat16"
    ).save(tmp_path / "half.keras")
    assert start_job(data, tmp_path / "half.keras").recipe.variant == "tiny_1"
    assert start_model(data, tmp_path / "half.keras").output_shape == (None, 2)


@pytest.mark.integration
def test_a_resumed_run_does_not_need_its_first_weights(start, tmp_path):
    """Variant, normalization and positions are on record."""
    x, y = stripes(60, 1)
    weights = tmp_path / "start.keras"
    weights.write_bytes((start / "model.keras").read_bytes())
    fields = {"epochs": 2, "out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        tune((x // 3, y), weights, **fields, callbacks=[StopAfter(1)])
    weights.unlink()
    assert len(tune((x // 3, y), weights, **fields).history) == 2
    # Neither does a complete one.
    assert len(tune((x // 3, y), weights, **fields).history) == 2


@pytest.mark.parametrize("weights", ["runs/gone", "runs/gone/model.keras"])
def test_recorded_settings_count(weights):
    recorded = {"weights": "runs/gone/model.keras", "variant": "tiny_2"}
    recipe, source = resolve_recipe(None, weights=weights, recorded=recorded)
    assert (recipe.variant, recipe.weights) == ("tiny_2", "runs/gone/model.keras")
    assert source is open_start(recipe, recorded=recorded) is None
    # A variant that is named stays, so that the run is refused.
    fields = {"weights": weights, "variant": "tiny_1", "recorded": recorded}
    assert resolve_recipe(None, **fields)[0].variant == "tiny_1"


def test_a_run_without_a_snapshot_needs_its_weights(start, data, tmp_path):
    weights = tmp_path / "start.keras"
    weights.write_bytes((start / "model.keras").read_bytes())

    class StopAtOnce(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            raise KeyboardInterrupt

    fields = {"variant": "tiny_2", "out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        tune(data, weights, **fields, callbacks=[StopAtOnce()])
    weights.unlink()
    with pytest.raises(RecipeError, match="no such file or tag"):
        tune(data, weights, **fields)


def test_a_file_is_a_start_for_other_classes(start):
    with pytest.warns(UserWarning, match="initiali"):
        model = cct_keras.create_model(
            "tiny_2",
            weights=start / "model.keras",
            num_classes=5,
            input_shape=(24, 24, 1),
        )
    expected, found = weights_of(stored_model(start)), weights_of(model)
    for path, value in found.items():
        if path.startswith(("block", "tokenizer")):
            np.testing.assert_array_equal(value, expected[path])


# === Data ===


def test_loaded_data_keep_their_size(data):
    with pytest.raises(DataError, match="loaded at .*Received: image_size=24"):
        load_training_data(data, Recipe(), image_size=24)
    assert load_training_data(data, Recipe(), image_size=16) is data


def test_data_that_no_patch_divides():
    data = cct_keras.load_data(stripes(60), image_size=18)
    with pytest.raises(DataError, match=r"load_data\(..., multiple=4\)"):
        load_training_data(data, Recipe(variant="tiny_1"))
    assert load_training_data(data, Recipe()) is data


@pytest.mark.parametrize(
    ("variant", "size"), [("tiny_1", 64), ("cct_2_3x2_32", 64), ("cct_7_3x1_32", 32)]
)
def test_large_images_become_16_x_16_tokens(variant, size):
    x, y = noise_images(20, side=80)
    data = load_training_data((x, y), Recipe(variant=variant))
    assert data.image_size == (size, size)


def test_the_recipe_can_name_the_image_size():
    data = load_training_data(stripes(60), Recipe(image_size=24, eval_crop=0.9))
    assert (data.image_size, data.crop) == ((24, 24), 0.9)


# === Teacher ===


def test_no_such_teacher(data, tmp_path):
    with pytest.raises(RecipeError, match="`teacher`: no such model file: gone.keras"):
        load_teacher("gone.keras", Recipe())
    (tmp_path / "broken.keras").write_text("no zip")
    recipe = Recipe(teacher=str(tmp_path / "broken.keras"))
    with pytest.raises(RecipeError, match="`teacher`: .* is not a Keras model file"):
        load_job(data, recipe)


def test_a_teacher_from_its_file(start, data):
    job = load_job(data, Recipe(teacher=str(start)))
    assert job.teacher.num_classes == 2
    assert job.settings["teacher_name"] == job.teacher.name
    assert dataclasses.replace(job, teacher=None).settings["teacher_name"] is None


def test_other_machines_hear_what_is_wrong(data):
    heard = []

    class Watched(load.Devices):
        def fail(self, error):
            heard.append(str(error))

    with pytest.raises(RecipeError):
        load_job(data, Recipe(teacher="gone.keras"), devices=Watched())
    assert heard == ["`teacher`: no such model file: gone.keras"]
