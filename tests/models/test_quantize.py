"""Keras' own quantization of a model: in place, in files, and where it is refused."""

import importlib.util
import json
import os
import subprocess
import sys
import zipfile

import keras
import numpy as np
import pytest
from small import FAMILIES
from small import images
from small import predict
from small import small_model

import cct_keras
from cct_keras.errors import CCTKerasError
from cct_keras.errors import QuantizedModelError
from cct_keras.layers import EncoderBlock
from cct_keras.layers import SeqPool
from cct_keras.layers.linear import Linear

# Keras remarks on every layer that it does not quantize.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method"),
    pytest.mark.integration,
]
family_names = pytest.mark.parametrize("family", list(FAMILIES))
X = images(2, 16, 16, 3)


def quantized(family="CCT", mode="int8", config=None, filters=None, **arguments):
    """A model that was never called before it was quantized."""
    model = small_model(family, **arguments)
    model.quantize(mode, config=config, filters=filters)
    return model


def reloaded(model, folder):
    model.save(folder / "q.keras")
    return keras.models.load_model(folder / "q.keras")


def modes_of(model):
    """`{path: mode}` of the linear layers, Keras' own included."""
    return {
        layer.path: layer.quantization_mode
        for layer in model._flatten_layers()
        if isinstance(layer, keras.layers.Dense)
    }


@pytest.mark.integration
@family_names
@pytest.mark.backend
def test_a_fresh_model_is_quantized_and_its_files_load(family, tmp_path):
    model = small_model(family, classifier_activation=None)
    exact = keras.models.clone_model(model)
    exact.set_weights(model.get_weights())
    model.quantize("int8")
    outputs = predict(model, X)
    expected = predict(exact, X)
    np.testing.assert_allclose(outputs, expected, atol=0.03 * np.abs(expected).max())
    assert np.abs(outputs - expected).max() > 0
    assert set(modes_of(model).values()) == {"int8"}

    loaded = reloaded(model, tmp_path)
    np.testing.assert_array_equal(predict(loaded, X), outputs)
    assert modes_of(loaded) == modes_of(model)
    kernel = loaded.get_layer("block_0").attention.qkv._kernel
    assert kernel.dtype == "int8"

    model.save_weights(tmp_path / "q.weights.h5")
    fresh = quantized(family, classifier_activation=None)
    fresh.load_weights(tmp_path / "q.weights.h5")
    np.testing.assert_array_equal(predict(fresh, X), outputs)


@pytest.mark.integration
@pytest.mark.backend
@pytest.mark.parametrize("mode", ["int4", "float8"])
def test_other_modes(mode, tmp_path):
    model = quantized(mode=mode)
    outputs = predict(model, X)
    loaded = reloaded(model, tmp_path)
    np.testing.assert_array_equal(predict(loaded, X), outputs)
    assert set(modes_of(loaded).values()) == {mode}


@pytest.mark.integration
@pytest.mark.backend
def test_a_quantizer_of_the_inputs_is_kept(tmp_path):
    """Weights only: without the config, the file would quantize its inputs, too."""
    config = keras.quantizers.Int8QuantizationConfig(activation_quantizer=None)
    model = quantized(mode=None, config=config)
    loaded = reloaded(model, tmp_path)
    np.testing.assert_array_equal(predict(loaded, X), predict(model, X))
    assert loaded.get_layer("block_1").attention.proj.inputs_quantizer is None
    usual = keras.models.load_model(tmp_path / "q.keras")
    for layer in usual._flatten_layers():
        if isinstance(layer, Linear):
            layer.inputs_quantizer = keras.quantizers.AbsMaxQuantizer()
    assert np.abs(predict(usual, X) - predict(model, X)).max() > 0


@pytest.mark.parametrize(
    ("filters", "count"), [("qkv", 2), (["linear1", "head"], 3), ("attention", 1)]
)
def test_filters(filters, count, tmp_path):
    model = quantized(filters=filters)
    modes = modes_of(model)
    assert sorted(modes.values(), key=str).count("int8") == count
    assert modes_of(reloaded(model, tmp_path)) == modes


@pytest.mark.integration
@pytest.mark.backend
def test_mixed_precision_and_a_frozen_model(tmp_path):
    model = small_model("CCT", dtype="mixed_bfloat16")
    model.trainable = False
    model.quantize("int8")
    block = model.get_layer("block_0")
    assert block.attention.qkv.dtype_policy.name == "int8_from_mixed_bfloat16"
    loaded = reloaded(model, tmp_path)
    np.testing.assert_array_equal(
        predict(loaded, X).astype("float32"), predict(model, X).astype("float32")
    )
    assert not loaded.trainable_weights
    policies = {layer.dtype_policy.name for layer in loaded._flatten_layers()}
    assert policies == {"mixed_bfloat16", "int8_from_mixed_bfloat16"} | (
        {"float32"} & policies
    )


@pytest.mark.integration
@pytest.mark.backend
def test_a_quantized_model_can_be_fitted():
    model = quantized(dropout_rate=0.1)
    kernel = model.get_layer("block_0").attention.qkv._kernel
    bias = model.get_layer("block_0").attention.proj.bias
    before = kernel.numpy().copy(), bias.numpy().copy()
    model.compile("sgd", "sparse_categorical_crossentropy")
    model.train_on_batch(X, np.array([0, 1]))
    np.testing.assert_array_equal(kernel.numpy(), before[0])
    assert np.abs(bias.numpy() - before[1]).max() > 0


def test_single_layers(tmp_path):
    """Without a model around it, and before it is built again."""
    tokens = keras.Input((6, 8))
    for layer in (EncoderBlock(2, 12), SeqPool()):
        plain = layer.get_config()["dtype"]
        model = keras.Model(tokens, layer(tokens))
        model.quantize("int8")
        config = layer.get_config()
        assert config["dtype"] != plain
        again = type(layer).from_config(config)
        assert again.get_config() == config
        assert again.dtype_policy.name == "float32"
        again.build((None, 6, 8))
        again.set_weights(layer.get_weights())
        x = images(3, 6, 8)
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(again(x)), keras.ops.convert_to_numpy(layer(x))
        )


def test_a_float_model_says_nothing_of_policies(tmp_path):
    """Its files stay readable for versions that do not know of them."""
    small_model("CCT").save(tmp_path / "model.keras")
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        config = archive.read("config.json").decode()
    assert "ProjectionPolicies" not in config
    block = next(
        layer
        for layer in json.loads(config)["config"]["layers"]
        if layer["name"] == "block_0"
    )
    assert block["config"]["dtype"]["class_name"] == "DTypePolicy"


LOAD = """
import sys
import cct_keras, keras, numpy as np
folder = sys.argv[1]
model = keras.models.load_model(f"{folder}/q.keras")
outputs = model(np.load(f"{folder}/x.npy"), training=False)
np.save(f"{folder}/outputs.npy", keras.ops.convert_to_numpy(outputs))
"""


@pytest.mark.integration
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_a_file_for_every_backend(backend, tmp_path):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    model = quantized()
    model.save(tmp_path / "q.keras")
    np.save(tmp_path / "x.npy", X)
    subprocess.run(
        [sys.executable, "-c", LOAD, str(tmp_path)],
        env={**os.environ, "KERAS_BACKEND": backend},
        check=True,
    )
    # An input near the middle of two integers may be rounded to either of them.
    np.testing.assert_allclose(
        np.load(tmp_path / "outputs.npy"), predict(model, X), atol=1e-3
    )


# === The rest of the package ===


@pytest.mark.integration
@pytest.mark.backend
def test_a_classifier_of_raw_pixels(tmp_path):
    model = cct_keras.load_classifier("cct_2_3x2_32.digits")
    pixels = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 1), "uint8")
    expected = predict(model, pixels)
    model.quantize("int8")
    outputs = predict(model, pixels)
    np.testing.assert_allclose(outputs, expected, atol=0.05)
    model.save(tmp_path / "q.keras")
    again = cct_keras.load_classifier(tmp_path / "q.keras")
    np.testing.assert_array_equal(predict(again, pixels), outputs)


@pytest.mark.integration
def test_models_made_from_a_quantized_one():
    model = quantized(classifier_activation=None)
    features = cct_keras.feature_extractor(model, ["head"])(X)
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(features["head"]), predict(model, X)
    )
    same = cct_keras.with_input_shape(model, (16, 16, 3))
    np.testing.assert_allclose(predict(same, X), predict(model, X), atol=1e-6)
    larger = cct_keras.with_input_shape(model, (24, 32, 3))
    assert modes_of(larger) == modes_of(model)
    with pytest.raises(QuantizedModelError, match="float8"):
        cct_keras.with_input_shape(quantized(mode="float8"), (24, 32, 3))


REFUSALS = {
    "to_torch": lambda model, path: cct_keras.to_torch(model, path / "a.pth"),
    "export": lambda model, path: cct_keras.export(model, path / "a.onnx"),
    "add_lora": lambda model, path: cct_keras.add_lora(model),
}


@pytest.mark.integration
@pytest.mark.parametrize("mode", ["int8", "float8"])
def test_what_needs_float_weights_refuses(mode, tmp_path):
    model = quantized(mode=mode, num_layers=1)
    for refuse in REFUSALS.values():
        with pytest.raises(CCTKerasError, match=rf"quantized \({mode}\)") as caught:
            refuse(model, tmp_path)
        assert "\n" not in str(caught.value)
        assert not list(tmp_path.iterdir())


@pytest.mark.integration
@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
def test_files_of_quantized_models_are_no_start(mode, tmp_path):
    model = quantized(mode=mode, num_layers=1)
    model.save(tmp_path / "q.keras")
    model.save_weights(tmp_path / "q.weights.h5")
    for path in tmp_path.iterdir():
        with pytest.raises(CCTKerasError, match="of a quantized model") as caught:
            small_model("CCT", num_layers=1, weights=path)
        assert str(path) in str(caught.value)


@pytest.mark.integration
def test_float_weights_are_not_put_into_integers(tmp_path):
    from cct_keras.pretrained.source import open_weights

    small_model("CCT").save(tmp_path / "model.keras")
    source = open_weights(tmp_path / "model.keras")
    with pytest.raises(CCTKerasError, match="quantized"):
        source.load_into(quantized())


@pytest.mark.integration
def test_adapters_are_merged_first():
    adapted = cct_keras.add_lora(small_model("CCT"), 2)
    with pytest.raises(CCTKerasError, match="merge_lora"):
        adapted.quantize("int8")
    assert set(modes_of(adapted).values()) == {None}
    merged = cct_keras.merge_lora(adapted)
    expected = predict(merged, X)
    merged.quantize("int8")
    np.testing.assert_allclose(predict(merged, X), expected, atol=0.01)


def test_modes_that_need_more_are_refused_before_anything_changes():
    model = small_model("CCT")
    for mode in ("gptq", "awq", "int3"):
        with pytest.raises(ValueError, match=r"config|mode"):
            model.quantize(mode)
    assert set(modes_of(model).values()) == {None}
