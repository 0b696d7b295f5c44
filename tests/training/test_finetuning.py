"""Fine-tuning: what is taken from weights, what learns, and how fast."""

import json
import re

import keras
import numpy as np
import pytest
import reference
from small import stripes

import cct_keras
from cct_keras import cli
from cct_keras.training import find_recipe
from cct_keras.training.layerwise import LayerwiseAdamW
from cct_keras.training.layerwise import LayerwiseSGD
from cct_keras.training.layerwise import layer_paces
from cct_keras.training.recipe import RecipeError
from cct_keras.training.run_folder import RunError
from cct_keras.training.trainer import build_model
from cct_keras.training.trainer import compile_model

PLAIN = {"variant": "cvt_2_4_32", "batch_size": 32}


@pytest.fixture(autouse=True)
def quick_report(monkeypatch):
    name = "cct_keras.training.trainer.write_report"
    monkeypatch.setattr(name, lambda path, **_: path.write_text("report"))


@pytest.fixture(scope="module")
def source():
    return cct_keras.load_data(stripes(160))


@pytest.fixture(scope="module")
def trained(source, tmp_path_factory):
    """A run whose model tells the stripes apart."""
    out = tmp_path_factory.mktemp("runs") / "trained"
    keras.utils.set_random_seed(0)
    cct_keras.train(source, recipe="small", epochs=6, out=out, verbose=False, **PLAIN)
    return out


def colour(count, classes=3, side=24):
    """Other images than the stripes: larger, in colour, of more classes."""
    generator = np.random.default_rng(5)
    labels = np.arange(count) % classes
    pixels = generator.integers(0, 256, (count, side, side, 3)).astype("uint8")
    return pixels, labels


def tune(data, weights, **fields):
    fields = {"epochs": 1, "verbose": False, **fields}
    return cct_keras.train(data, weights=weights, **fields)


def weights_of(model):
    return {w.path: keras.ops.convert_to_numpy(w) for w in model.weights}


# === What is taken from the weights ===


def test_a_run_folder_is_a_start(trained, source):
    """Nothing learns, so the tuned model is the one it started from."""
    run = tune(source, trained, lr=0.0, min_lr=0.0, warmup_lr=0.0)
    assert run.metrics["variant"] == "cvt_2_4_32"
    start = weights_of(keras.models.load_model(trained / "model.keras"))
    for path, value in weights_of(run.model).items():
        np.testing.assert_array_equal(value, start[path])


def test_everything_that_changes_is_said(trained, capsys):
    run = tune(colour(60), trained, verbose=True)
    output = capsys.readouterr().out
    notes = re.findall("^note: (.*)$", output, re.MULTILINE)
    for words in (
        "left as initialised",
        "positions were resized from 4 x 4 to 6 x 6",
        "the first convolution was adapted from 1 to 3 channels",
    ):
        assert sum(words in note for note in notes) == 1, words
    assert run.model.output_shape == (None, 3)


def test_nothing_is_said_where_nothing_changes(trained, source, capsys):
    tune(source, trained, verbose=True)
    output = capsys.readouterr().out
    assert not re.search("resized|adapted|initialised|fresh|normalised", output)


def test_the_normalisation_of_the_weights(trained, source, tmp_path):
    x, y = stripes(160, 1)
    darker = (x // 3, y)
    run = tune(darker, trained, out=tmp_path / "run")
    assert (run.data.mean, run.data.std) == (source.mean, source.std)
    layer = keras.models.load_model(tmp_path / "run/model.keras").get_layer(
        "preprocessing"
    )
    assert (layer.mean, layer.std) == (source.mean, source.std)
    assert any("normalised as for the weights" in note for note in run.data.notes)
    assert cct_keras.load_data(darker).mean != source.mean


def test_published_weights_bring_their_normalisation(monkeypatch, tmp_path):
    state = reference.random_state(
        tokens=64,
        num_classes=10,
        num_layers=2,
        embedding_dim=128,
        mlp_ratio=1,
        kernel_size=3,
        num_conv_layers=2,
        positional_embedding="sine",
    )
    model = cct_keras.convert(state)
    path = tmp_path / "converted.weights.h5"
    model.save_weights(path)
    monkeypatch.setattr("cct_keras.pretrained.fetch", lambda row: path)
    run = tune(
        colour(40), "cifar10_legacy", variant="cct_2_3x2_32", image_size=32, epochs=1
    )
    assert run.data.mean == (0.4914, 0.4822, 0.4465)
    # The file has sine positions, whatever the variant's name says.
    assert run.model.get_layer("position_embedding").kind == "sine"


def test_other_classes_of_the_same_number_get_a_fresh_head(trained, tmp_path, capsys):
    from PIL import Image

    x, y = stripes(60, 2)
    for name in ("red", "blue"):
        (tmp_path / "data" / name).mkdir(parents=True)
    for i, (image, label) in enumerate(zip(x, y, strict=True)):
        name = ("red", "blue")[label]
        Image.fromarray(image).save(tmp_path / "data" / name / f"{i}.png")
    fields = {"lr": 0.0, "min_lr": 0.0, "warmup_lr": 0.0}
    run = tune(tmp_path / "data", trained, verbose=True, **fields)
    assert "the head starts fresh" in capsys.readouterr().out
    start = weights_of(keras.models.load_model(trained / "model.keras"))
    end = weights_of(run.model)
    differing = {k for k in end if not np.array_equal(end[k], start[k])}
    assert differing == {"head/kernel", "head/bias"}
    assert np.abs(end["head/kernel"]).max() < 0.2


def file_of(kind, trained, folder):
    model = keras.models.load_model(trained / "model.keras")
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
def test_the_file_decides_the_variant(kind, trained, source, tmp_path):
    path = file_of(kind, trained, tmp_path)
    run = tune(source, path, lr=0.0, min_lr=0.0, warmup_lr=0.0)
    assert run.metrics["variant"] == "cvt_2_4_32"
    expected = json.loads((trained / "metrics.json").read_text())
    assert run.metrics["test"]["top1"] == expected["test"]["top1"]


@pytest.mark.parametrize("fresh", [False, True])
def test_a_head_for_unknown_classes(fresh, trained, source, tmp_path, capsys):
    """A file of bare weights does not tell its classes: kept, unless said."""
    path = file_of(".weights.h5", trained, tmp_path)
    fields = {"lr": 0.0, "min_lr": 0.0, "warmup_lr": 0.0}
    run = tune(source, path, **fields, fresh_head=fresh, verbose=True)
    start = weights_of(keras.models.load_model(trained / "model.keras"))
    kernel = weights_of(run.model)["head/kernel"]
    assert np.array_equal(kernel, start["head/kernel"]) != fresh
    output = capsys.readouterr().out
    assert ("which is kept" in output) != fresh
    assert ("the head starts fresh" in output) == fresh


def test_a_resumed_run_needs_no_weights(trained, tmp_path):
    """Normalisation and positions are on record."""

    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise KeyboardInterrupt

    x, y = stripes(80, 1)
    start = tmp_path / "start.keras"
    start.write_bytes((trained / "model.keras").read_bytes())
    fields = {**PLAIN, "epochs": 2, "out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        tune((x // 3, y), start, **fields, callbacks=[Stop()])
    start.unlink()
    assert len(tune((x // 3, y), start, **fields).history) == 2


def test_an_architecture_without_a_name(tmp_path, source):
    model = cct_keras.CVT(2, (16, 16, 1), num_layers=3, num_heads=2, embedding_dim=32)
    model.save(tmp_path / "mine.keras")
    with pytest.raises(ValueError, match="no named variant"):
        tune(source, tmp_path / "mine.keras")


@pytest.mark.parametrize("name", ["broken.keras", "broken.weights.h5", "broken.pth"])
def test_broken_weights(name, tmp_path, source):
    (tmp_path / name).write_bytes(b"PK\x03\x04 no")
    with pytest.raises(ValueError, match=name.split(".")[0]):
        tune(source, tmp_path / name, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_with_adapters_is_a_start(trained, source, tmp_path):
    plain = keras.models.load_model(trained / "model.keras")
    model = cct_keras.add_lora(plain, 2)
    for weight in model.trainable_weights:
        weight.assign(0.05 * np.ones(weight.shape))
    model.save(tmp_path / "lora.keras")
    run = tune(source, tmp_path / "lora.keras", lr=0.0, min_lr=0.0, warmup_lr=0.0)
    x = stripes(8, 3)[0][..., None].astype("float32")
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(run.model(x)),
        keras.ops.convert_to_numpy(model(x)),
        atol=1e-5,
    )
    model.save_weights(tmp_path / "lora.weights.h5")
    with pytest.raises(ValueError, match="adapters: merge_lora"):
        tune(source, tmp_path / "lora.weights.h5")


def test_weights_of_half_precision(source, tmp_path):
    model = cct_keras.create_model(
        "cvt_2_4_32", input_shape=(16, 16, 1), num_classes=2, dtype="bfloat16"
    )
    model.save(tmp_path / "half.keras")
    assert tune(source, tmp_path / "half.keras").metrics["variant"] == "cvt_2_4_32"


def test_weights_are_not_thrown_away_by_the_run_they_start(trained, source, tmp_path):
    out = tmp_path / "run"
    tune(source, trained, out=out)
    with pytest.raises(RunError, match="throw .*model.keras away"):
        tune(source, out, out=out, restart=True)
    assert (out / "model.keras").is_file()


def test_a_folder_named_like_a_tag(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cifar10").mkdir()
    assert find_recipe(None, weights="cifar10", variant="cct_7_3x1_32").weights == (
        "cifar10"
    )


def test_weights_of_a_recipe_file(trained, tmp_path):
    path = tmp_path / "mine.yml"
    path.write_text(f"weights: {trained}\nlora_rank: 2\nlora_targets: [qkv, proj]\n")
    recipe = find_recipe(path)
    assert recipe.variant == "cvt_2_4_32"
    assert recipe.weights.endswith("model.keras")
    assert recipe.lora_targets == "qkv,proj"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"weights": {"a": np.zeros(3)}}, "`weights` must be str"),
        ({"weights": "."}, "holds no model.keras"),
        ({"weights": "http://127.0.0.1:9/a.keras"}, "download .* first"),
        ({"lora_targets": "qkv"}, "need `lora_rank`"),
        ({"lora_rank": 2, "freeze": 2}, "leaves nothing for `lora_rank`"),
    ],
)
def test_what_a_recipe_refuses(fields, message):
    with pytest.raises(RecipeError, match=message):
        find_recipe("small", **fields)


def test_missing_weights(source):
    with pytest.raises(RecipeError, match="no such file or tag: gone.keras"):
        tune(source, "gone.keras")


def test_weights_make_the_recipe_finetune(trained):
    assert find_recipe(None) == find_recipe("small")
    tuned = find_recipe(None, weights=str(trained))
    assert tuned.layer_decay == find_recipe("finetune").layer_decay < 1
    assert tuned.weights.endswith("model.keras")


# === What learns ===


@pytest.mark.parametrize(
    ("fields", "frozen"),
    [
        ({"freeze": 1}, ("tokenizer", "position_embedding", "block_0")),
        ({"freeze": "body"}, ("tokenizer", "position", "block", "norm", "pool")),
    ],
)
def test_frozen_layers_do_not_move(fields, frozen, trained, source):
    run = tune(source, trained, **fields)
    start = weights_of(keras.models.load_model(trained / "model.keras"))
    end = weights_of(run.model)
    for path, value in end.items():
        if path == "pool/attention/bias":
            continue  # A softmax does not see it: its gradient is rounding.
        same = np.array_equal(value, start[path])
        assert same == path.startswith(frozen), path
    # Whoever goes on with the file can train all of it.
    assert len(run.model.trainable_weights) == len(start)
    trainable = sum(v.size for k, v in end.items() if not k.startswith(frozen))
    assert run.metrics["trained_parameters"] == trainable


@pytest.mark.parametrize("accumulate", [1, 2])
def test_gradual_unfreezing(accumulate, trained, source):
    """Seen from outside: which layers moved in which epoch."""
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(weights_of(self.model))

    fields = {"epochs": 4, "unfreeze_epochs": 1, "warmup_epochs": 0}
    tune(source, trained, **fields, accumulate=accumulate, callbacks=[Watch()])
    start = weights_of(keras.models.load_model(trained / "model.keras"))
    moved = [
        {
            path.split("/")[0]
            for path, value in now.items()
            if not np.array_equal(value, before[path])
        }
        for before, now in zip([start, *seen], seen, strict=False)
    ]
    top = {"norm", "pool", "head"}
    assert moved[0] == top
    assert moved[1] == top | {"block_1"}
    assert moved[2] == top | {"block_1", "block_0"}
    assert moved[3] == top | {"block_1", "block_0", "tokenizer", "position_embedding"}


def test_a_lora_run_saves_a_merged_model(trained, source, tmp_path):
    run = tune(source, trained, lora_rank=2, out=tmp_path / "run")
    stored = keras.models.load_model(tmp_path / "run/model.keras")
    plain = keras.models.load_model(trained / "model.keras")
    assert [w.path for w in stored.weights] == [w.path for w in plain.weights]
    x = stripes(20, 3)[0][..., None].astype("float32")
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(stored(x)),
        keras.ops.convert_to_numpy(run.model(x)),
        atol=1e-6,
    )
    dim, rank, classes = 128, 2, 2
    adapters = 2 * rank * ((dim + 3 * dim) + 3 * (dim + dim))
    assert run.metrics["trained_parameters"] == adapters + (dim + 1) * classes
    start, end = weights_of(plain), weights_of(stored)
    kept = {k for k in end if np.array_equal(end[k], start[k])}
    assert {"tokenizer/conv_0/kernel", "block_0/norm1/gamma"} <= kept
    assert "block_0/attention/qkv/kernel" not in kept


def test_a_lora_run_resumes(trained, source, tmp_path):
    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 0:
                raise KeyboardInterrupt

    fields = {"lora_rank": 2, "epochs": 3, "attention_dropout": 0.1}
    whole = tune(source, trained, **fields)
    with pytest.raises(KeyboardInterrupt):
        tune(source, trained, **fields, out=tmp_path, callbacks=[Stop()])
    resumed = tune(source, trained, **fields, out=tmp_path)
    for a, b in zip(
        resumed.model.get_weights(), whole.model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(a, b)


# === How fast ===


def compiled(data, **fields):
    recipe = find_recipe("small", **{**PLAIN, "warmup_epochs": 0, **fields})
    model = build_model(data, recipe, classifier_activation=None)
    compile_model(model, recipe, images=len(data.train), num_classes=data.num_classes)
    return model


EXPECTED = {
    "tokenizer": 0.5**3,
    "position_embedding": 0.5**3,
    "block_0": 0.5**2,
    "block_1": 0.5,
    "norm": 1,
    "pool": 1,
    "head": 1,
}


@pytest.mark.backend
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_layer_decay_scales_the_steps(optimizer, source):
    """From ones, with a gradient of one and no decay of weights."""
    model = compiled(
        source, optimizer=optimizer, layer_decay=0.5, weight_decay=0, clip_norm=None
    )
    variables = model.trainable_variables
    for variable in variables:
        variable.assign(np.ones(variable.shape))
    model.optimizer.apply([keras.ops.ones(v.shape) for v in variables], variables)
    # The first step of Adam is the rate, of SGD with Nesterov 1.9 times the rate.
    step = 2e-3 * (1.0 if optimizer == "adamw" else 1.9)
    for variable in variables:
        factor = EXPECTED[variable.path.split("/")[0]]
        np.testing.assert_allclose(
            1 - keras.ops.convert_to_numpy(variable),
            step * factor,
            rtol=1e-3,
            err_msg=variable.path,
        )


@pytest.mark.backend
def test_layer_decay_scales_the_weight_decay(source):
    model = compiled(source, layer_decay=0.5, weight_decay=0.5, decay_exempt="vectors")
    variables = model.trainable_variables
    for variable in variables:
        variable.assign(np.ones(variable.shape))
    model.optimizer.apply([keras.ops.zeros(v.shape) for v in variables], variables)
    for variable in variables:
        factor = EXPECTED[variable.path.split("/")[0]]
        factor = factor if len(variable.shape) > 1 else 0
        np.testing.assert_allclose(
            1 - keras.ops.convert_to_numpy(variable), 2e-3 * 0.5 * factor, rtol=1e-3
        )


def test_at_full_pace_it_is_adamw(source):
    """Same steps as Keras' own, weight decay and clipping included."""
    plain = compiled(source, weight_decay=0.1)
    paced = compiled(source, weight_decay=0.1, unfreeze_epochs=1e-9)
    assert isinstance(paced.optimizer, LayerwiseAdamW)
    assert not isinstance(plain.optimizer, LayerwiseAdamW)
    paced.set_weights(plain.get_weights())
    rng = np.random.default_rng(0)
    for _ in range(4):
        gradients = [rng.standard_normal(v.shape) for v in plain.trainable_variables]
        for model in (plain, paced):
            model.optimizer.apply(
                [keras.ops.convert_to_tensor(g, "float32") for g in gradients],
                model.trainable_variables,
            )
    for a, b in zip(plain.get_weights(), paced.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("kind", [LayerwiseAdamW, LayerwiseSGD])
def test_the_optimizer_loads_back(kind):
    model = cct_keras.create_model("cct_2_3x2_32")
    paces = layer_paces(model, layer_decay=0.5, unfreeze_steps=10)
    optimizer = kind(1e-3, paces=paces, decay=0.1)
    again = keras.optimizers.deserialize(
        json.loads(json.dumps(keras.optimizers.serialize(optimizer)))
    )
    assert type(again) is kind
    assert {k: tuple(v) for k, v in again.paces.items()} == paces
    assert paces["block_0"] == (0.25, 20)


# === Bad input ===


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--freeze", "3"], "at most the 2 blocks of cvt_2_4_32. Received: freeze=3"),
        (["--freeze", "tail"], "a number of blocks or 'body'"),
        (["--lora-rank", "2", "--lora-targets", "key"], "no layer for an adapter: key"),
        (["--lora-targets", "block_9/qkv"], r"block_9/qkv.*block_0 to block_1"),
        (["--freeze", "body", "--lora-rank", "2"], "leaves nothing for `lora_rank`"),
        (["--layer-decay", "1.5"], "`layer_decay` must be from"),
    ],
)
def test_one_clear_line(arguments, message, trained, tmp_path, capsys):
    out = tmp_path / "run"
    command = ["train", "digits", "--weights", str(trained), "--out", str(out)]
    assert cli.main([*command, *arguments]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert re.search(message, error)
    assert not out.exists()


def test_freezing_a_random_start_is_remarked(source, capsys):
    cct_keras.train(source, epochs=1, freeze=1, **PLAIN)
    assert "stays at its random start" in capsys.readouterr().out


# === Linear probe ===


def test_the_probe_is_a_logistic_regression(trained, source):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y = colour(90)
    x[y == 1, :8] //= 2  # Something to see.
    data = cct_keras.load_data((x, y), image_size=16, channels=1)
    run = cct_keras.linear_probe(data, weights=trained)
    body = keras.Model(run.model.input, run.model.get_layer("pool").output)

    def features(split):
        images = np.concatenate([x for x, _ in data.pipeline(split)])
        return keras.ops.convert_to_numpy(body(images))

    labels = np.concatenate([data.train.labels, data.validation.labels])
    truth = make_pipeline(
        StandardScaler(), LogisticRegression(C=run.metrics["penalty"], max_iter=5000)
    ).fit(np.concatenate([features("train"), features("validation")]), labels)
    expected = truth.predict_proba(features("test"))
    images = np.concatenate([x for x, _ in data.pipeline("test")])
    found = keras.ops.convert_to_numpy(run.model(images))
    np.testing.assert_allclose(found, expected, atol=2e-3)
    assert run.metrics["test"]["top1"] == pytest.approx(
        (expected.argmax(1) == data.test.labels).mean()
    )


def test_the_probe_of_two_classes_and_its_command(trained, tmp_path, capsys):
    x, y = stripes(160, 4)
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=x[:40], y_test=y[:40])
    command = ["probe", str(tmp_path / "data.npz"), "--weights", str(trained)]
    assert cli.main([*command, "--out", str(tmp_path / "probe.keras")]) == 0
    output = capsys.readouterr().out
    assert "test accuracy 100.00%" in output
    assert "head" not in output
    metrics = cct_keras.evaluate(tmp_path / "probe.keras", tmp_path / "data.npz")
    assert metrics["top1"] == 1.0


def test_a_probe_without_weights(source):
    with pytest.raises(RecipeError, match="needs weights"):
        cct_keras.linear_probe(source, weights=None)
