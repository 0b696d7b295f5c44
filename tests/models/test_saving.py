"""Files: round trips, other backends, weights that do not fit."""

import importlib.util
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from small import FAMILIES
from small import first_of_all
from small import images
from small import predict
from small import small_model

import cct_keras

family_names = pytest.mark.parametrize("family", list(FAMILIES))
some_families = pytest.mark.parametrize("family", first_of_all(FAMILIES, "CCT", "DeiT"))
later = pytest.mark.integration
positions = pytest.mark.parametrize(
    "positional_embedding",
    ["learnable", pytest.param("sine", marks=later), pytest.param(None, marks=later)],
)
suffixes = pytest.mark.parametrize("suffix", [".keras", ".weights.h5"])


def scrambled(family, **arguments):
    """A model whose weights, biases and norms included, are all random."""
    model = small_model(family, **arguments)
    rng = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(weight.numpy() + 0.05 * rng.standard_normal(weight.shape))
    return model


def save(model, path):
    if path.suffix == ".keras":
        model.save(path)
    else:
        model.save_weights(path)
    return path


@family_names
@positions
@pytest.mark.backend
def test_keras_file_round_trip(family, positional_embedding, tmp_path):
    model = scrambled(family, positional_embedding=positional_embedding)
    model.save(tmp_path / "model.keras")
    restored = keras.models.load_model(tmp_path / "model.keras", safe_mode=True)
    x = images(2, 16, 16, 3)
    np.testing.assert_array_equal(predict(restored, x), predict(model, x))
    for ours, theirs in zip(restored.layers, model.layers, strict=True):
        assert ours.get_config() == theirs.get_config()


@family_names
@positions
@pytest.mark.backend
def test_weights_file_round_trip(family, positional_embedding, tmp_path):
    model = scrambled(family, positional_embedding=positional_embedding)
    model.save_weights(tmp_path / "model.weights.h5")
    restored = small_model(family, positional_embedding=positional_embedding)
    restored.load_weights(tmp_path / "model.weights.h5")
    x = images(2, 16, 16, 3)
    np.testing.assert_array_equal(predict(restored, x), predict(model, x))


LOAD = """
import keras, numpy as np, sys
import cct_keras
folder, *families = sys.argv[1:]
x = np.load(f"{folder}/x.npy")
for family in families:
    model = keras.models.load_model(f"{folder}/{family}.keras")
    fresh = keras.models.clone_model(model)
    fresh.load_weights(f"{folder}/{family}.weights.h5")
    for kind, model in (("keras", model), ("weights", fresh)):
        output = keras.ops.convert_to_numpy(model(x, training=False))
        np.save(f"{folder}/{family}.{kind}.npy", output)
"""


@pytest.mark.integration
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_a_file_gives_the_same_outputs_on_every_backend(backend, tmp_path):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    x = images(2, 16, 16, 3)
    np.save(tmp_path / "x.npy", x)
    expected = {}
    for family in FAMILIES:
        model = scrambled(family, positional_embedding="sine")
        save(model, tmp_path / f"{family}.keras")
        save(model, tmp_path / f"{family}.weights.h5")
        expected[family] = predict(model, x)
    subprocess.run(
        [sys.executable, "-c", LOAD, str(tmp_path), *FAMILIES],
        env={**os.environ, "KERAS_BACKEND": backend},
        check=True,
    )
    for family in FAMILIES:
        for kind in ("keras", "weights"):
            output = np.load(tmp_path / f"{family}.{kind}.npy")
            np.testing.assert_allclose(output, expected[family], atol=1e-6)


@family_names
@pytest.mark.backend
def test_clone(family):
    model = scrambled(family)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    x = images(2, 16, 16, 3)
    np.testing.assert_array_equal(predict(clone, x), predict(model, x))


@some_families
@suffixes
def test_weights_argument(family, suffix, tmp_path):
    model = scrambled(family)
    path = save(model, tmp_path / f"model{suffix}")
    x = images(2, 16, 16, 3)
    same = small_model(family, weights=path)
    np.testing.assert_array_equal(predict(same, x), predict(model, x))

    larger = small_model(family, weights=str(path), input_shape=(24, 32, 3))
    expected = cct_keras.with_input_shape(model, (24, 32, 3))
    x = images(2, 24, 32, 3)
    np.testing.assert_allclose(predict(larger, x), predict(expected, x), atol=1e-6)


@some_families
@suffixes
def test_weights_for_another_task(family, suffix, tmp_path):
    """The body is loaded; the head stays fresh, with a warning."""
    model = scrambled(family)
    path = save(model, tmp_path / f"model{suffix}")
    x = images(2, 16, 16, 3)
    with pytest.warns(UserWarning, match="head.*left as initialized"):
        other = small_model(family, num_classes=3, weights=path)
    names = ["block_1", "norm", "pool"]
    ours, theirs = (cct_keras.feature_extractor(m, names)(x) for m in (other, model))
    for name in names:
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(ours[name]),
            keras.ops.convert_to_numpy(theirs[name]),
            atol=1e-6,
        )
    body = small_model(family, include_top=False, weights=path)
    np.testing.assert_allclose(
        predict(body, x), keras.ops.convert_to_numpy(theirs["norm"]), atol=1e-6
    )
    body_path = save(body, tmp_path / f"body{suffix}")
    with pytest.warns(UserWarning, match="head"):
        again = small_model(family, weights=body_path)
    np.testing.assert_array_equal(
        again.get_layer("norm").gamma.numpy(), model.get_layer("norm").gamma.numpy()
    )


@suffixes
def test_weights_for_other_channels(suffix, tmp_path):
    """A gray image in one channel gives what it gave in three."""
    model = scrambled("CCT")
    path = save(model, tmp_path / f"model{suffix}")
    with pytest.warns(UserWarning, match="from 3 to 1 channels"):
        gray = small_model("CCT", input_shape=(16, 16, 1), weights=path)
    x = images(2, 16, 16, 1)
    expected = predict(model, np.repeat(x, 3, axis=-1))
    np.testing.assert_allclose(predict(gray, x), expected, atol=1e-5)


@suffixes
def test_weights_behind_preprocessing(suffix, tmp_path):
    model = scrambled("CCT")
    path = save(model, tmp_path / f"model{suffix}")
    inputs = keras.Input((16, 16, 3))
    normalized = keras.layers.Normalization(mean=1.0, variance=4.0)(inputs)
    built = small_model("CCT", input_shape=None, input_tensor=normalized, weights=path)
    x = images(2, 16, 16, 3)
    np.testing.assert_allclose(predict(built, 2 * x + 1), predict(model, x), atol=1e-5)


@suffixes
@pytest.mark.parametrize(
    ("family", "arguments", "message"),
    [
        ("CCT", {"num_layers": 3}, "missing: block_2"),
        ("CCT", {"num_layers": 1}, "left over: block_1"),
        ("CCT", {"embedding_dim": 64}, "shapes: tokenizer"),
        ("CCT", {"mlp_ratio": 2}, "shapes: block_0"),
        ("CCT", {"positional_embedding": None}, "left over: position_embedding"),
        ("CCT", {"positional_embedding": "sine"}, "needs the sinusoid"),
        ("ViTLite", {}, "missing: .*class_token"),
    ],
)
def test_weights_of_another_architecture(suffix, family, arguments, message, tmp_path):
    path = save(scrambled("CCT"), tmp_path / f"model{suffix}")
    with pytest.raises(ValueError, match=message):
        small_model(family, weights=path, **arguments)


@pytest.mark.parametrize("change", [{"num_heads": 4}, {"padding": 2}])
def test_a_keras_file_knows_more_than_shapes(change, tmp_path):
    shape = {"positional_embedding": None}
    path = save(small_model("CCT", **shape, **change), tmp_path / "a.keras")
    with pytest.raises(ValueError, match=next(iter(change))):
        small_model("CCT", weights=path, **shape)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_of_low_precision(dtype, tmp_path):
    model = small_model("CCT", dtype=dtype)
    path = save(model, tmp_path / "a.weights.h5")
    again = small_model("CCT", dtype=dtype, weights=path)
    for ours, theirs in zip(again.weights, model.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("name", ["a.keras", "a.weights.h5", "a.npz", "folder"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no", b"\x89HDF\r\n\x1a\n"])
def test_broken_weights_files(name, content, tmp_path):
    path = tmp_path / name
    path.mkdir() if name == "folder" else path.write_bytes(content)
    with pytest.raises(ValueError, match=name):
        small_model("CCT", weights=path)


def test_groups_of_a_weights_file_keep_their_names(tmp_path):
    """Keras names them after classes; files of older versions must load."""
    import h5py

    model = cct_keras.CVT(3, (8, 8, 3), num_layers=1, num_heads=2, embedding_dim=8)
    model.save_weights(tmp_path / "model.weights.h5")
    with h5py.File(tmp_path / "model.weights.h5") as file:
        assert set(file["layers"]) >= {
            "conv_tokenizer",
            "position_embedding",
            "encoder_block",
            "layer_normalization",
            "seq_pool",
            "dense",
        }
