"""What every public layer keeps; a new one is collected by being exported."""

import inspect
import warnings

import keras
import numpy as np
import pytest
from keras import ops

from cct_keras import layers

# layer: (constructor arguments, input shape)
CASES = {
    "ClassToken": ({}, (3, 6, 8)),
    "ConvTokenizer": ({"embedding_dim": 8, "num_conv_layers": 2}, (3, 12, 9, 3)),
    "DropPath": ({"rate": 0.5, "seed": 3}, (3, 6, 8)),
    "EncoderBlock": (
        {"num_heads": 2, "hidden_dim": 12, "drop_path_rate": 0.2, "dropout_rate": 0.1},
        (3, 6, 8),
    ),
    "FeedForward": ({"hidden_dim": 12, "dropout_rate": 0.1}, (3, 6, 8)),
    "LayerNormalization": ({"epsilon": 1e-3}, (3, 6, 8)),
    "LoRADense": ({"units": 5, "rank": 2, "alpha": 3.0}, (3, 6, 8)),
    "MultiHeadSelfAttention": ({"num_heads": 2, "attention_dropout": 0.1}, (3, 6, 8)),
    "PositionEmbedding": ({"grid": (2, 3)}, (3, 6, 8)),
    "Preprocessing": (
        {"image_size": (6, 4), "mean": (0.5,) * 3, "std": (0.25,) * 3, "crop": 0.9},
        (3, 12, 9, 3),
    ),
    "SeqPool": ({}, (3, 6, 8)),
    "TokenPool": ({"index": 1}, (3, 6, 8)),
}

pytestmark = pytest.mark.backend


@pytest.fixture(params=layers.__all__)
def case(request):
    arguments, shape = CASES[request.param]
    return getattr(layers, request.param), arguments, shape


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
    own = {
        name
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
    config = layer.get_config()
    assert set(config) == own | {"name", "dtype", "trainable"}
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


def test_registered_under_the_package(case):
    cls, _, _ = case
    assert keras.saving.get_registered_name(cls) == f"cct_keras>{cls.__name__}"


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
    model.compile(keras.optimizers.Adam(0.01), loss="mse")
    model.fit(inputs_of(shape), np.ones((shape[0], 1)), epochs=4, verbose=0)
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
