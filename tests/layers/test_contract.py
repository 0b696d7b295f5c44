"""What every public layer keeps; a new one is collected by being exported."""

import inspect
import warnings

import keras
import numpy as np
import pytest
from keras import ops

from cct_keras import layers
from cct_keras.finetuning import lora_layers
from cct_keras.finetuning.lora_dense import LoRADense
from cct_keras.kernels.device import pretend_accelerator

# layer: (constructor arguments, input shape)
CASES = {
    "AttentionPool": (
        {"num_heads": 2, "hidden_dim": 12, "activation": "gelu_tanh"},
        (3, 6, 8),
    ),
    "ClassToken": ({}, (3, 6, 8)),
    "ConvTokenizer": ({"embedding_dim": 8, "num_conv_layers": 2}, (3, 12, 9, 3)),
    "DropPath": ({"rate": 0.5, "seed": 3}, (3, 6, 8)),
    "EncoderBlock": (
        {
            "num_heads": 2,
            "hidden_dim": 12,
            "drop_path_rate": 0.2,
            "dropout_rate": 0.1,
            "activation": "gelu_tanh",
            "layer_scale": 0.5,
        },
        (3, 6, 8),
    ),
    "FeedForward": (
        {"hidden_dim": 12, "dropout_rate": 0.1, "activation": "swiglu"},
        (3, 6, 8),
    ),
    "LayerNormalization": ({"epsilon": 1e-3}, (3, 6, 8)),
    "LayerScale": ({"initial_value": 0.5}, (3, 6, 8)),
    "MultiHeadSelfAttention": ({"num_heads": 2, "attention_dropout": 0.1}, (3, 6, 8)),
    "PositionEmbedding": ({"grid": (2, 3), "interpolation": "bicubic"}, (3, 6, 8)),
    "Preprocessing": (
        {"image_size": (6, 4), "mean": (0.5,) * 3, "std": (0.25,) * 3, "crop": 0.9},
        (3, 12, 9, 3),
    ),
    "RegisterTokens": ({"num_tokens": 2, "index": 1}, (3, 6, 8)),
    "SeqPool": ({}, (3, 6, 8)),
    "TokenPool": ({"index": 1}, (3, 6, 8)),
}

# The same of the layers with adapters.
ADAPTER = {"rank": 2, "alpha": 3.0}
ADAPTED_CASES = {
    "LoRADense": ({"units": 5, **ADAPTER}, (3, 6, 8)),
    "LoRAEncoderBlock": (
        {
            "num_heads": 2,
            "hidden_dim": 12,
            "lora": {**ADAPTER, "targets": ["qkv", "linear2"]},
        },
        (3, 6, 8),
    ),
    "LoRAFeedForward": (
        {"hidden_dim": 12, "lora": {**ADAPTER, "targets": ["linear1"]}},
        (3, 6, 8),
    ),
    "LoRAMultiHeadSelfAttention": (
        {"num_heads": 2, "lora": {**ADAPTER, "targets": ["proj"]}},
        (3, 6, 8),
    ),
}
ADAPTED = {"LoRADense": LoRADense} | {
    name: getattr(lora_layers, name) for name in ADAPTED_CASES if name != "LoRADense"
}

pytestmark = pytest.mark.backend


@pytest.fixture(params=[*layers.__all__, *ADAPTED])
def case(request):
    if request.param in ADAPTED:
        return ADAPTED[request.param], *ADAPTED_CASES[request.param]
    return getattr(layers, request.param), *CASES[request.param]


def own_arguments(cls):
    """Names of the constructor's arguments, `**kwargs` followed to its parents."""
    return {
        name
        for parent in cls.__mro__
        if parent.__module__.startswith("cct_keras.") and "__init__" in vars(parent)
        for name, parameter in inspect.signature(parent.__init__).parameters.items()
        if name != "self" and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }


def inputs_of(shape, dtype="float32"):
    x = np.random.default_rng(0).standard_normal(shape)
    return ops.convert_to_tensor(x, dtype=dtype)


def test_symbolic_and_eager_call_agree(case):
    cls, arguments, shape = case
    layer = cls(**arguments)
    symbolic = layer(keras.Input(batch_shape=shape))
    eager = layer(inputs_of(shape))
    assert tuple(symbolic.shape) == tuple(eager.shape)
    assert symbolic.dtype == keras.backend.standardize_dtype(eager.dtype)
    assert layer.built


def test_compute_output_shape_is_true(case):
    cls, arguments, shape = case
    layer = cls(**arguments)
    assert layer.compute_output_shape(shape) == tuple(layer(inputs_of(shape)).shape)
    open_batch = layer.compute_output_shape((None, *shape[1:]))
    assert open_batch[0] is None


def test_config_is_the_signature_and_loads_back(case):
    cls, arguments, shape = case
    layer = cls(**arguments, name="it")
    config = layer.get_config()
    assert set(config) == own_arguments(cls) | {"name", "dtype", "trainable"}
    for name, value in arguments.items():
        assert config[name] == value
    restored = keras.layers.deserialize(keras.layers.serialize(layer))
    assert type(restored) is cls
    assert restored.get_config() == config
    x = inputs_of(shape)
    layer(x)
    restored(x)
    restored.set_weights(layer.get_weights())
    np.testing.assert_array_equal(
        ops.convert_to_numpy(restored(x)), ops.convert_to_numpy(layer(x))
    )


def test_no_layer_of_the_package_hides_arguments():
    """`layers.__all__` names its arguments in its own signatures."""
    for name, (arguments, _) in CASES.items():
        signature = inspect.signature(getattr(layers, name))
        assert set(arguments) <= set(signature.parameters)
        assert own_arguments(getattr(layers, name)) == {
            name
            for name, parameter in signature.parameters.items()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        }


def test_registered_under_the_package(case, request):
    cls, _, _ = case
    name = request.node.callspec.params["case"]
    assert keras.saving.get_registered_name(cls) == f"cct_keras>{name}"
    assert keras.saving.get_registered_object(f"cct_keras>{name}") is cls


def test_a_frozen_layer_is_frozen_throughout_and_can_be_thawed(case):
    """As Keras makes it from a file, where it hands `trainable` to no sublayer."""
    cls, arguments, shape = case
    usual, frozen = cls(**arguments), cls(**arguments, trainable=False)
    for layer in (usual, frozen):
        layer.build(shape)
    assert not any(weight.trainable for weight in frozen.weights)
    assert not any(sub.trainable for sub in frozen._flatten_layers() if sub.weights)
    # For a layer with adapters this also thaws what is beside them.
    for layer in (usual, frozen):
        layer.trainable = False
        layer.trainable = True
    assert [w.path.split("/")[1:] for w in frozen.trainable_weights] == [
        w.path.split("/")[1:] for w in usual.trainable_weights
    ]


def test_sublayers_are_built_with_the_layer(case):
    cls, arguments, shape = case
    layer = cls(**arguments)
    layer.build(shape)
    assert all(sublayer.built for sublayer in layer._flatten_layers())


def test_the_same_on_an_accelerator(case):
    cls, arguments, shape = case
    layer = cls(**arguments)
    expected = ops.convert_to_numpy(layer(inputs_of(shape)))
    with pretend_accelerator():
        output = ops.convert_to_numpy(layer(inputs_of(shape)))
    np.testing.assert_allclose(output, expected, atol=1e-6)


def test_files(case, tmp_path):
    """Both kinds of files, and a clone."""
    cls, arguments, shape = case
    inputs = keras.Input(shape[1:])
    model = keras.Model(inputs, cls(**arguments)(inputs))
    rng = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(rng.standard_normal(weight.shape))
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.layers[1]) is cls
    clone = keras.models.clone_model(model)
    clone.load_weights(tmp_path / "model.weights.h5")
    x = inputs_of(shape)
    expected = ops.convert_to_numpy(model(x))
    for again in (loaded, clone):
        np.testing.assert_array_equal(ops.convert_to_numpy(again(x)), expected)
        assert [w.path for w in again.weights] == [w.path for w in model.weights]
        assert [w.trainable for w in again.weights] == [
            w.trainable for w in model.weights
        ]


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("training", [False, True])
def test_mixed_precision(case, policy, training):
    cls, arguments, shape = case
    layer = cls(**arguments, dtype=policy)
    takes_training = "training" in inspect.signature(layer.call).parameters
    output = layer(
        inputs_of(shape), **({"training": training} if takes_training else {})
    )
    assert keras.backend.standardize_dtype(output.dtype) == policy.removeprefix(
        "mixed_"
    )
    assert all(weight.dtype == "float32" for weight in layer.weights)
    if not training:
        exact = cls(**arguments)
        exact(inputs_of(shape))
        exact.set_weights(layer.get_weights())
        np.testing.assert_allclose(
            ops.convert_to_numpy(ops.cast(output, "float32")),
            ops.convert_to_numpy(exact(inputs_of(shape))),
            atol=0.05,
        )


def test_a_gradient_for_every_trainable_weight(case):
    """A few steps on a random projection of the output move each weight."""
    cls, arguments, shape = case
    inputs = keras.Input(shape[1:])
    # Dense behind the layer: a sum alone is blind to what a norm cancels.
    outputs = keras.layers.Dense(1)(keras.layers.Flatten()(cls(**arguments)(inputs)))
    model = keras.Model(inputs, outputs)
    layer = model.layers[1]
    before = [weight.numpy().copy() for weight in layer.trainable_variables]
    # To trace a graph takes longer than these steps; JAX is slow without.
    eager = keras.config.backend() != "jax"
    model.compile(keras.optimizers.Adam(0.01), loss="mse", run_eagerly=eager)
    for _ in range(4):
        model.train_on_batch(inputs_of(shape), np.ones((shape[0], 1)))
    for weight, old in zip(layer.trainable_variables, before, strict=True):
        if weight.path.endswith("seq_pool/attention/bias"):
            continue  # A softmax does not see what is added to all its inputs.
        assert np.isfinite(weight.numpy()).all()
        assert not np.array_equal(weight.numpy(), old), weight.path


def test_no_warning(case):
    cls, arguments, shape = case
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = cls(**arguments)
        layer(keras.Input(shape[1:]))
        layer(inputs_of(shape))


def test_cases_are_complete():
    assert sorted(CASES) == sorted(layers.__all__)
    adapted = {name for name in dir(lora_layers) if name.startswith("LoRA")}
    assert adapted == set(ADAPTED)
