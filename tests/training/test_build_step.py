"""The second step of a run: the head, the precision, what learns."""

import logging

import keras
import numpy as np
import pytest
from runs import weights_of
from small import stripes

import cct_keras
from cct_keras.pretrained.source import open_weights
from cct_keras.recipes.rows import find_recipe
from cct_keras.training.build import build_model
from cct_keras.training.build import count_trained
from cct_keras.training.build import frozen_notes
from cct_keras.training.build import learning_lines
from cct_keras.training.build import precision_policy


@pytest.fixture(scope="module")
def data():
    return cct_keras.load_data(stripes(60))


def build(data, *, source=None, frozen=True, **fields):
    recipe = find_recipe("small", **{"variant": "tiny_2", **fields})
    return build_model(data, recipe, source, frozen=frozen)


@pytest.mark.backend
def test_a_model_for_raw_images_saves_and_loads(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), "uint8")
    data = cct_keras.load_data((images, np.arange(40) % 4))
    model = build(data)
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


def test_the_rates_of_the_recipe(data):
    model = build(data, dropout=0.3, attention_dropout=0.2, stochastic_depth=0.4)
    config = model.get_layer("block_1").get_config()
    assert 0.3 in config.values()
    assert 0.2 in config.values()
    assert 0.4 in config.values()
    assert build(data, positional_embedding="sine").get_layer(
        "position_embedding"
    ).kind == ("sine")
    names = [x.name for x in build(data, positional_embedding="none").layers]
    assert "position_embedding" not in names


# === Head ===


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    """The same weights, with the names of the classes and without."""
    folder = tmp_path_factory.mktemp("weights")
    model = build(data)
    head = model.get_layer("head")
    head.set_weights([w + 0.3 for w in head.get_weights()])
    model.save(folder / "model.keras")
    model.save_weights(folder / "model.weights.h5")
    return model, {
        True: open_weights(folder / "model.keras"),
        False: open_weights(folder / "model.weights.h5", variant="tiny_2"),
    }


class OtherNames:
    def __init__(self, data):
        self.data = data
        self.class_names = ("red", "blue")

    def __getattr__(self, name):
        return getattr(self.data, name)


@pytest.mark.parametrize(
    ("names_known", "other_classes", "fresh_head", "kept", "words"),
    [
        (True, False, False, True, ""),
        (True, False, True, False, "the head starts fresh"),
        (True, True, False, False, "the head starts fresh"),
        (False, True, False, True, "which is kept; for other classes use fresh_head="),
        (False, False, True, False, "the head starts fresh"),
    ],
)
def test_the_head(
    data, files, caplog, names_known, other_classes, fresh_head, kept, words
):
    """A head of as many classes is kept, unless it is known to be for others."""
    model, sources = files
    if other_classes:
        data = OtherNames(data)
    with caplog.at_level(logging.INFO, "cct_keras"):
        tuned = build(data, source=sources[names_known], fresh_head=fresh_head)
    expected, found = weights_of(model), weights_of(tuned)
    differing = {k for k in found if not np.array_equal(found[k], expected[k])}
    assert differing == (set() if kept else {"head/kernel", "head/bias"})
    assert kept or np.abs(found["head/bias"]).max() == 0
    assert words in caplog.text
    assert bool(words) == bool(caplog.text)


def test_a_head_of_another_width_is_fresh(data, files):
    x, _ = stripes(60)
    three = cct_keras.load_data((x, np.arange(60) % 3))
    with pytest.warns(UserWarning, match="head"):
        model = build(three, source=files[1][True])
    assert model.output_shape == (None, 3)


# === What learns ===


def test_frozen_layers_and_what_is_said_of_them(data):
    model = build(data, freeze="body")
    assert count_trained(model) == 2 * 17
    recipe = find_recipe("small", variant="tiny_2", freeze="body")
    (line,) = learning_lines(model, recipe)
    assert line == f"training 34 of {model.count_params():,} parameters"
    assert list(frozen_notes(recipe)) == [
        "frozen layers keep their random values; weights=... starts from trained ones"
    ]
    thawed = build(data, freeze="body", frozen=False)
    assert count_trained(thawed) == thawed.count_params()


def test_what_is_said_of_a_plain_run(data):
    recipe = find_recipe("small", variant="tiny_2")
    assert list(learning_lines(build(data), recipe)) == []
    assert list(frozen_notes(recipe)) == []


def test_blocks_that_never_learn():
    recipe = find_recipe("small", variant="tiny_2", epochs=6, unfreeze_epochs=2)
    assert list(frozen_notes(recipe)) == [
        "with unfreeze_epochs=2 some layers do not learn within 6 epochs"
    ]


# === Precision ===


def test_precision(data):
    assert precision_policy("mixed") == "float32"
    model = build(data, precision="mixed_bfloat16")
    assert model.get_layer("block_0").compute_dtype == "bfloat16"
    assert all(weight.dtype == "float32" for weight in model.trainable_variables)


@pytest.mark.parametrize(
    ("device", "policy"),
    [("cpu", "float32"), ("gpu", "mixed_float16"), ("tpu", "mixed_bfloat16")],
)
def test_mixed_is_what_suits_the_device(device, policy, monkeypatch):
    monkeypatch.setattr("cct_keras.training.build.device_type", lambda: device)
    assert precision_policy("mixed") == policy
