"""Models of another activation: their function, their files, their weights."""

import importlib.util

import keras
import numpy as np
import pytest
from small import FAMILIES
from small import images
from small import predict
from small import small_model

import cct_keras
from cct_keras.checks import ACTIVATIONS
from cct_keras.converter.conversion import largest_difference
from cct_keras.converter.conversion import to_checkpoint
from cct_keras.errors import CheckpointError
from cct_keras.models.architecture import Architecture
from cct_keras.models.cost import architecture_cost
from cct_keras.models.inspection import architecture_of
from cct_keras.models.inspection import encoder_blocks

pytestmark = pytest.mark.integration

OTHERS = [name for name in ACTIVATIONS if name != "gelu"]
X = images(2, 16, 16, 3)


def model_of(activation, family="CCT", **arguments):
    """With weights large enough for the activations to differ."""
    model = small_model(family, activation=activation, **arguments)
    generator = np.random.default_rng(3)
    for weight in model.trainable_weights:
        weight.assign_add(0.2 * generator.standard_normal(weight.shape))
    return model


def activation_of(model):
    (activation,) = {block.activation for block in encoder_blocks(model)}
    return activation


# === The function ===


@pytest.mark.backend
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_agrees_with_numpy(family, activation):
    model = model_of(activation, family)
    checkpoint, architecture = to_checkpoint(model)
    assert architecture.activation == activation
    assert largest_difference(model, checkpoint, architecture) < 1e-4
    # NumPy tells the activations apart; of a gated one the shapes already do.
    arguments = {**architecture.arguments, "activation": "relu"}
    other = Architecture(architecture.family, arguments)
    if activation not in ("relu", "swiglu"):
        assert largest_difference(model, checkpoint, other) > 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_bad_names_are_refused(family):
    with pytest.raises(ValueError, match=f"{family}: `activation` must be one of"):
        small_model(family, activation="swish")


# === The record ===


def test_it_is_no_named_variant():
    model = cct_keras.create_model("cct_2_3x2_32", activation="relu")
    record, named = architecture_of(model), Architecture.from_variant("cct_2_3x2_32")
    assert record.variant is None
    assert record.nearest_variant() == "cct_2_3x2_32"
    assert "activation='relu'" in str(record)
    assert not record.same_body(named)
    assert architecture_cost(record) == architecture_cost(named)


@pytest.mark.parametrize("activation", OTHERS)
def test_models_made_from_it_keep_it(activation, tmp_path):
    model = model_of(activation)
    model.save(tmp_path / "a.keras")
    expected = predict(model, X)
    adapted = cct_keras.add_lora(model, 2)
    for other in (
        keras.models.load_model(tmp_path / "a.keras"),
        adapted,
        cct_keras.merge_lora(adapted),
        cct_keras.with_input_shape(model, (16, 16, 3)),
    ):
        assert activation_of(other) == activation
        np.testing.assert_allclose(predict(other, X), expected, atol=1e-5)
    assert activation_of(keras.models.clone_model(model)) == activation
    features = cct_keras.feature_extractor(model, ["norm"])
    assert activation_of(features) == activation


# === Weights ===


def write(model, path):
    if path.suffix == ".keras":
        model.save(path)
    elif path.suffix == ".h5":
        model.save_weights(path)
    else:
        cct_keras.to_torch(model, path)
    return path


KINDS = pytest.mark.parametrize("suffix", [".keras", ".weights.h5", ".safetensors"])


@KINDS
@pytest.mark.parametrize("activation", OTHERS)
def test_weights_come_back(activation, suffix, tmp_path):
    model = cct_keras.create_model("cct_2_3x2_32", activation=activation)
    path = write(model, tmp_path / f"a{suffix}")
    x = images(1, 32, 32, 3)
    # Named, and where nothing is said the file decides.
    for arguments in ({"activation": activation}, {}):
        again = cct_keras.create_model("cct_2_3x2_32", weights=path, **arguments)
        assert activation_of(again) == activation
        np.testing.assert_array_equal(predict(again, x), predict(model, x))


@KINDS
def test_weights_of_another_activation_are_refused(suffix, tmp_path):
    path = write(small_model("CCT"), tmp_path / f"gelu{suffix}")
    with pytest.raises(CheckpointError, match="activation='gelu' for 'relu'"):
        small_model("CCT", activation="relu", weights=path)
    path = write(small_model("CCT", activation="relu"), tmp_path / f"relu{suffix}")
    with pytest.raises(CheckpointError, match="activation='relu' for 'gelu'"):
        small_model("CCT", weights=path)


def test_known_weights_are_of_gelu():
    with pytest.raises(CheckpointError, match="digits.*activation='gelu' for 'relu'"):
        cct_keras.create_model("cct_2_3x2_32", weights="digits", activation="relu")
    with pytest.raises(CheckpointError, match="activation='gelu' for 'gelu_tanh'"):
        cct_keras.CCT(
            10,
            (16, 16, 1),
            num_layers=2,
            num_heads=2,
            mlp_ratio=1,
            embedding_dim=128,
            kernel_size=3,
            activation="gelu_tanh",
            weights="digits",
        )


# === Checkpoints that do not tell it ===


def plain_checkpoint(model):
    return to_checkpoint(model)[0].tensors


@pytest.mark.parametrize("family", ["CCT", "DeiT"])
def test_convert_is_told(family):
    model = model_of("relu", family)
    state = plain_checkpoint(model)
    same = {"num_heads": 2, "input_shape": (16, 16, 3)}
    again = cct_keras.convert(state, activation="relu", **same)
    assert activation_of(again) == "relu"
    np.testing.assert_allclose(predict(again, X), predict(model, X), atol=1e-6)
    assert activation_of(cct_keras.convert(state, **same)) == "gelu"


def test_a_constructor_is_told():
    model = model_of("relu")
    with pytest.warns(UserWarning, match="does not tell its activation"):
        again = small_model("CCT", activation="relu", weights=plain_checkpoint(model))
    np.testing.assert_allclose(predict(again, X), predict(model, X), atol=1e-6)


def test_a_record_is_not_overruled(tmp_path):
    path = write(model_of("relu"), tmp_path / "a.safetensors")
    assert activation_of(cct_keras.convert(path)) == "relu"
    with pytest.raises(CheckpointError, match="the file records activation='relu'"):
        cct_keras.convert(path, activation="gelu")


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_a_pickle_loses_it(tmp_path):
    model = model_of("relu")
    with pytest.warns(UserWarning, match="does not tell activation='relu'"):
        cct_keras.to_torch(model, tmp_path / "a.pth")
    again = cct_keras.convert(tmp_path / "a.pth", activation="relu", num_heads=2)
    np.testing.assert_allclose(predict(again, X), predict(model, X), atol=1e-6)
