"""Settings in weights files: what shapes do not tell."""

import json
import pathlib

import h5py
import keras
import numpy as np
import pytest
from keras import ops

from cct_keras.layers import ConvTokenizer
from cct_keras.layers import EncoderBlock
from cct_keras.layers import PositionEmbedding

pytestmark = pytest.mark.backend

OLD_FILES = pathlib.Path(__file__).parent.parent / "golden" / "version_0_1"


def block(**changes):
    return EncoderBlock(**{"num_heads": 2, "hidden_dim": 8, **changes}), (6, 8)


def tokenizer(**changes):
    return ConvTokenizer(8, **{"num_conv_layers": 2, "hidden_dim": 4, **changes}), (
        (9, 9, 3)
    )


def positions(**changes):
    return PositionEmbedding(**{"grid": (2, 2), "num_prefix_tokens": 2, **changes}), (
        (6, 8)
    )


def model_of(layer, shape):
    """A model with layers around that have no settings, or no weights at all."""
    inputs = keras.Input(shape)
    x = keras.layers.Dropout(0.1)(layer(keras.layers.Activation("relu")(inputs)))
    return keras.Model(inputs, keras.layers.Dense(2)(x))


def stored_settings(path, group):
    with h5py.File(path) as file:
        array = file[f"layers/{group}/vars/settings"]
        assert array.dtype == "uint8"
        return json.loads(bytes(array[...]).decode())


def test_what_is_written(tmp_path):
    path = tmp_path / "a.weights.h5"
    model_of(*block(pre_norm=True, qkv_bias=True, epsilon=1e-6)).save_weights(path)
    assert stored_settings(path, "encoder_block") == {
        "num_heads": 2,
        "hidden_dim": 8,
        "qkv_bias": True,
        "pre_norm": True,
        "epsilon": 1e-6,
        "activation": "gelu",
        "layer_scale": False,
    }
    model_of(*tokenizer(activation="gelu", padding=0)).save_weights(path)
    assert stored_settings(path, "conv_tokenizer") == {
        "num_conv_layers": 2,
        "kernel_size": 3,
        "stride": 1,
        "padding": 0,
        "activation": "gelu",
        "use_bias": False,
        "pooling_kernel_size": 3,
        "pooling_stride": 2,
        "pooling_padding": 1,
        "hidden_dim": 4,
    }
    model_of(*positions(kind="sine")).save_weights(path)
    assert stored_settings(path, "position_embedding") == {
        "kind": "sine",
        "num_prefix_tokens": 2,
    }


SAME_SHAPES = [
    (block, {"num_heads": 4}),
    (block, {"pre_norm": True}),
    (block, {"epsilon": 1e-6}),
    (block, {"activation": "relu"}),
    (block, {"activation": "gelu_tanh"}),
    (tokenizer, {"padding": 0}),
    (tokenizer, {"stride": 2}),
    (tokenizer, {"activation": None}),
    (tokenizer, {"activation": "gelu"}),
    (tokenizer, {"pooling_stride": 1}),
    (tokenizer, {"pooling_padding": 0}),
    (tokenizer, {"pooling_kernel_size": 2}),
    (tokenizer, {"pooling_kernel_size": None}),
    (positions, {"grid": (3, 2), "num_prefix_tokens": 0}),
]
OTHER_SHAPES = [
    (block, {"hidden_dim": 4}),
    (block, {"qkv_bias": True}),
    (tokenizer, {"num_conv_layers": 1}),
    (tokenizer, {"kernel_size": 5}),
    (tokenizer, {"use_bias": True}),
    (tokenizer, {"hidden_dim": 5}),
]


# Keras warns before it raises.
@pytest.mark.filterwarnings("ignore:Skipping nested container")
@pytest.mark.parametrize(("make", "change"), SAME_SHAPES + OTHER_SHAPES)
def test_weights_of_another_architecture_are_refused(make, change, tmp_path):
    path = tmp_path / "a.weights.h5"
    model_of(*make()).save_weights(path)
    layer, shape = make(**change)
    model = model_of(layer, shape)
    setting = list(change)[-1]
    ours, theirs = (layer.get_config()[setting] for layer in (layer, make()[0]))
    with pytest.raises(ValueError, match=layer.name) as caught:
        model.load_weights(path)
    assert f"has {setting}={ours!r}" in str(caught.value)
    assert f"saved by a layer with {setting}={theirs!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("make", "before", "after"),
    [
        # What is random, or how it is computed, belongs to no architecture.
        (block, {}, {"dropout_rate": 0.5, "attention_dropout": 0.1, "remat": True}),
        (block, {}, {"drop_path_rate": 0.5}),
        # Without a pooling its stride changes nothing, nor does the width of the
        # stages before the last one if there are none.
        (
            tokenizer,
            {"pooling_kernel_size": None},
            {"pooling_kernel_size": None, "pooling_stride": 1, "pooling_padding": 0},
        ),
        (tokenizer, {"num_conv_layers": 1}, {"num_conv_layers": 1, "hidden_dim": 32}),
        # A learnable table may start as a sinusoid, and for another grid.
        (positions, {"kind": "sine"}, {"kind": "learnable"}),
    ],
)
def test_what_may_differ(make, before, after, tmp_path):
    path = tmp_path / "a.weights.h5"
    model = model_of(*make(**before))
    model.save_weights(path)
    layer, shape = make(**after)
    other = model_of(layer, shape)
    other.load_weights(path)
    x = np.random.default_rng(0).standard_normal((2, *shape)).astype("float32")
    np.testing.assert_allclose(
        ops.convert_to_numpy(other(x)), ops.convert_to_numpy(model(x)), atol=1e-6
    )


@keras.saving.register_keras_serializable(package="tests")
def doubled(x):
    return 2 * x


@pytest.mark.parametrize(
    ("activation", "stored"),
    [(doubled, "tests>doubled"), (lambda x: 2 * x, "<lambda>")],
)
def test_activations_that_are_not_of_keras(activation, stored, tmp_path):
    path = tmp_path / "a.weights.h5"
    model = model_of(*tokenizer(activation=activation))
    model.save_weights(path)
    model.load_weights(path)
    assert stored_settings(path, "conv_tokenizer")["activation"] == stored
    with pytest.raises(ValueError, match="has activation='relu'"):
        model_of(*tokenizer()).load_weights(path)


def test_an_activation_layer(tmp_path):
    path = tmp_path / "a.weights.h5"
    for _ in range(2):  # Each has a name of its own.
        model = model_of(*tokenizer(activation=keras.layers.LeakyReLU(0.1)))
        if not path.exists():
            model.save_weights(path)
    model.load_weights(path)


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("make", [block, tokenizer, positions])
def test_half_precision(make, dtype, tmp_path):
    model = model_of(*make(dtype=dtype))
    model.save_weights(tmp_path / "a.weights.h5")
    model.save(tmp_path / "a.keras")
    other = model_of(*make(dtype=dtype))
    other.load_weights(tmp_path / "a.weights.h5")
    loaded = keras.models.load_model(tmp_path / "a.keras")
    for again in (other, loaded):
        for ours, theirs in zip(again.weights, model.weights, strict=True):
            np.testing.assert_array_equal(
                ops.convert_to_numpy(ours), ops.convert_to_numpy(theirs)
            )


def test_files_of_version_0_1_have_none(tmp_path):
    path = tmp_path / "a.weights.h5"
    for make, group in (
        (block, "encoder_block"),
        (tokenizer, "conv_tokenizer"),
        (positions, "position_embedding"),
    ):
        model = model_of(*make())
        model.save_weights(path)
        with h5py.File(path, "a") as file:
            del file[f"layers/{group}/vars/settings"]
        model_of(*make()).load_weights(path)


@pytest.mark.filterwarnings("ignore:Skipping nested container")
@pytest.mark.parametrize("settings", [None, {"num_heads": 2}])
def test_files_from_before_the_choice_are_of_gelu(settings, tmp_path):
    path = tmp_path / "a.weights.h5"
    model_of(*block()).save_weights(path)
    with h5py.File(path, "a") as file:
        group = file["layers/encoder_block/vars"]
        del group["settings"]
        if settings is not None:
            text = json.dumps(settings).encode()
            group["settings"] = np.frombuffer(text, dtype="uint8")
    model_of(*block()).load_weights(path)
    with pytest.raises(ValueError, match="activation='relu', but .*activation='gelu'"):
        model_of(*block(activation="relu")).load_weights(path)


@pytest.mark.parametrize(
    "name", ["layers", "cct", "vit", "vit_lite_sine", "deit_distilled", "cct_lora"]
)
def test_models_of_version_0_1(name, tmp_path):
    """They load, and what they save loads again."""
    model = keras.models.load_model(OLD_FILES / f"{name}.keras", compile=False)
    numbers = np.load(OLD_FILES / f"{name}.npz")
    model.save(tmp_path / "again.keras")
    models = [model, keras.models.load_model(tmp_path / "again.keras")]
    weights = OLD_FILES / f"{name}.weights.h5"
    if weights.exists():
        models.append(keras.models.clone_model(model))
        models[-1].load_weights(weights)
    for it in models:
        output = ops.convert_to_numpy(it(numbers["x"], training=False))
        np.testing.assert_allclose(output, numbers["y"], atol=1e-5)


def test_sharded_files(tmp_path):
    model = model_of(*block())
    model.save_weights(tmp_path / "a.weights.json", max_shard_size=1e-6)
    model_of(*block()).load_weights(tmp_path / "a.weights.json")
    with pytest.raises(ValueError, match="has num_heads=4"):
        model_of(*block(num_heads=4)).load_weights(tmp_path / "a.weights.json")
