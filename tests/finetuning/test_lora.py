"""Adapters: what they compute, what they train, files, and merging."""

import io
import pathlib
import zipfile

import h5py
import keras
import numpy as np
import pytest
from small import FAMILIES
from small import images
from small import predict
from small import small_model

import cct_keras
from cct_keras.finetuning.lora_dense import LoRADense
from cct_keras.finetuning.lora_layers import LoRAEncoderBlock
from cct_keras.finetuning.lora_layers import LoRAFeedForward
from cct_keras.finetuning.lora_layers import LoRAMultiHeadSelfAttention
from cct_keras.layers import EncoderBlock
from cct_keras.layers import FeedForward
from cct_keras.layers import MultiHeadSelfAttention
from cct_keras.models.plain_weights import plain_weights

pytestmark = [pytest.mark.backend, pytest.mark.integration]

OLD_FILE = pathlib.Path(__file__).parent.parent / "golden/version_0_1/cct_lora.keras"


def with_adapters(family="CCT", **arguments):
    """A model whose adapters are no longer zero."""
    model = cct_keras.add_lora(small_model(family), 3, alpha=6, **arguments)
    rng = np.random.default_rng(1)
    for weight in model.trainable_weights:
        weight.assign(0.1 * rng.standard_normal(weight.shape))
    return model


def train(model, steps):
    # To trace a graph takes longer than these steps; JAX is slow without.
    eager = keras.config.backend() != "jax"
    optimizer = keras.optimizers.Adam(0.01)
    model.compile(optimizer, "sparse_categorical_crossentropy", run_eagerly=eager)
    for _ in range(steps):
        model.train_on_batch(images(8, 16, 16, 3), np.arange(8) % 5)


def test_the_closed_form():
    layer = LoRADense(5, rank=2, alpha=3.0)
    x = images(4, 7, 8)
    layer(x)
    rng = np.random.default_rng(0)
    layer.set_weights([rng.standard_normal(w.shape) for w in layer.weights])
    kernel, bias, a, b = (w.numpy() for w in (
        layer.kernel, layer.bias, layer.lora_a, layer.lora_b
    ))  # fmt: skip
    expected = x @ kernel + bias + 1.5 * x @ a @ b
    output = keras.ops.convert_to_numpy(layer(x))
    np.testing.assert_allclose(output, expected, atol=1e-4)
    np.testing.assert_allclose(layer.merged_kernel(), kernel + 1.5 * a @ b, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_fresh_adapters_change_nothing(family):
    model = small_model(family)
    x = images(2, 16, 16, 3)
    adapted = cct_keras.add_lora(model, 4)
    np.testing.assert_allclose(predict(adapted, x), predict(model, x), atol=1e-6)
    assert all(w.trainable for w in model.trainable_weights)


def test_what_is_trained():
    """Adapters and the head: their number in closed form."""
    adapted = cct_keras.add_lora(small_model("CCT"), 4, targets=["qkv", "block_1/proj"])
    assert [w.path for w in adapted.trainable_weights] == [
        "block_0/attention/qkv/lora_a",
        "block_0/attention/qkv/lora_b",
        "block_1/attention/qkv/lora_a",
        "block_1/attention/qkv/lora_b",
        "block_1/attention/proj/lora_a",
        "block_1/attention/proj/lora_b",
        "head/kernel",
        "head/bias",
    ]
    count = sum(int(np.prod(w.shape)) for w in adapted.trainable_weights)
    assert count == 2 * 4 * (32 + 96) + 4 * (32 + 32) + 33 * 5


def test_training_moves_nothing_else():
    model = cct_keras.add_lora(small_model("CCT"), 4)
    trained = {w.path for w in model.trainable_weights}
    before = {w.path: w.numpy().copy() for w in model.weights}
    train(model, steps=3)
    moved = {
        w.path for w in model.weights if not np.array_equal(w.numpy(), before[w.path])
    }
    assert moved == trained


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_model_reloads_and_merges_to_the_same(family, tmp_path):
    model = with_adapters(family)
    x = images(2, 16, 16, 3)
    model.save(tmp_path / "lora.keras")
    restored = keras.models.load_model(tmp_path / "lora.keras")
    np.testing.assert_allclose(predict(restored, x), predict(model, x), atol=1e-6)
    for ours, theirs in zip(restored.weights, model.weights, strict=True):
        assert ours.path == theirs.path
        assert ours.trainable == theirs.trainable
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    merged = cct_keras.merge_lora(restored)
    np.testing.assert_allclose(predict(merged, x), predict(model, x), atol=1e-5)
    plain = small_model(family)
    assert [w.path for w in merged.weights] == [w.path for w in plain.weights]
    assert [w.path for w in merged.trainable_weights] == [
        w.path for w in plain.trainable_weights
    ]


def test_adapters_that_were_loaded_go_on_learning(tmp_path):
    """In Keras' own LoRA both matrices come back as zeros, and stay so."""
    model = with_adapters()
    model.save(tmp_path / "lora.keras")
    restored = keras.models.load_model(tmp_path / "lora.keras", compile=False)
    before = [w.numpy().copy() for w in restored.trainable_weights]
    train(restored, steps=1)
    for weight, old in zip(restored.trainable_weights, before, strict=True):
        assert not np.array_equal(weight.numpy(), old), weight.path


def test_files_for_others_are_merged(tmp_path):
    model, x = with_adapters(), images(2, 16, 16, 3)
    cct_keras.to_torch(model, tmp_path / "a.safetensors")
    again = cct_keras.convert(tmp_path / "a.safetensors", num_heads=2)
    np.testing.assert_allclose(predict(again, x), predict(model, x), atol=1e-5)
    model.save(tmp_path / "a.keras")
    loaded = small_model("CCT", weights=tmp_path / "a.keras")
    np.testing.assert_allclose(predict(loaded, x), predict(model, x), atol=1e-5)


def groups(path):
    """Names of all groups and arrays in the weights of a `.keras` file."""
    names = []
    with zipfile.ZipFile(path) as archive:
        content = io.BytesIO(archive.read("model.weights.h5"))
    with h5py.File(content) as file:
        file.visit(names.append)
    return {name for name in names if not name.endswith("/settings")}


def test_files_of_version_0_1_have_the_same_names(tmp_path):
    model = keras.models.load_model(OLD_FILE, compile=False)
    assert all(
        isinstance(model.get_layer(f"block_{i}"), LoRAEncoderBlock) for i in (0, 1)
    )
    model.save(tmp_path / "again.keras")
    assert groups(tmp_path / "again.keras") == groups(OLD_FILE)


LORA = {"rank": 2, "alpha": 3, "targets": ["qkv", "linear1"]}


@pytest.mark.parametrize(
    ("plain", "adapted", "arguments"),
    [
        (EncoderBlock, LoRAEncoderBlock, {"num_heads": 2, "hidden_dim": 12}),
        (MultiHeadSelfAttention, LoRAMultiHeadSelfAttention, {"num_heads": 2}),
        (FeedForward, LoRAFeedForward, {"hidden_dim": 12}),
    ],
)
def test_configurations_of_version_0_1(plain, adapted, arguments):
    config = plain(**arguments, name="it").get_config()
    assert "lora" not in config
    without = plain.from_config({**config, "lora": None})
    assert type(without) is plain
    assert without.get_config() == config
    layer = plain.from_config({**config, "lora": LORA})
    assert type(layer) is adapted
    assert layer.get_config() == {**config, "lora": LORA}
    layer.build((None, 6, 8))
    assert all("lora_" in weight.path for weight in layer.trainable_weights)
    assert isinstance(keras.layers.deserialize(keras.layers.serialize(layer)), adapted)


def test_plain_weights():
    model = small_model("CCT")
    arrays = plain_weights(model)
    assert {path: array.shape for path, array in arrays.items()} == {
        weight.path: tuple(weight.shape) for weight in model.weights
    }
    adapted = with_adapters()
    merged = cct_keras.merge_lora(adapted)
    arrays = plain_weights(adapted)
    assert arrays.keys() == {weight.path for weight in merged.weights}
    for weight in merged.weights:
        np.testing.assert_array_equal(arrays[weight.path], weight.numpy())
    qkv = adapted.get_layer("block_0").attention.qkv
    kernel, a, b = (w.numpy() for w in (qkv.kernel, qkv.lora_a, qkv.lora_b))
    np.testing.assert_allclose(arrays[qkv.kernel.path], kernel + 2 * a @ b, atol=1e-6)


def test_plain_weights_of_a_model_around_ours():
    body = with_adapters()
    model = keras.Sequential([body, keras.layers.Dense(3, name="mine")])
    arrays = plain_weights(model)
    assert set(plain_weights(body)) < set(arrays)
    assert len(arrays) == len(plain_weights(body)) + 2


def test_another_size_keeps_the_adapters():
    model, x = with_adapters(), images(2, 24, 16, 3)
    larger = cct_keras.with_input_shape(model, (24, 16, 3))
    merged = cct_keras.with_input_shape(cct_keras.merge_lora(model), (24, 16, 3))
    np.testing.assert_allclose(predict(larger, x), predict(merged, x), atol=1e-5)


def test_merging_nothing():
    model = small_model("CCT")
    assert cct_keras.merge_lora(model) is model


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"targets": ["qvk"]}, "no layer for an adapter: qvk.*qkv, proj, linear1"),
        ({"targets": ["block_2/qkv"]}, r"block_2/qkv.*block_0 to block_1"),
        ({"targets": []}, "no layer for an adapter"),
        ({"rank": 0}, "`rank` must be a positive integer"),
        ({"alpha": -1.0}, "`alpha` must be a number above 0"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        cct_keras.add_lora(small_model("CCT"), **arguments)


def test_twice():
    with pytest.raises(ValueError, match="has adapters already"):
        cct_keras.add_lora(with_adapters(), 2)


def test_a_model_without_blocks():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(2)(inputs))
    with pytest.raises(ValueError, match="there are no blocks"):
        cct_keras.add_lora(model)


def test_freeze_a_model_around_ours():
    body = small_model("CCT", include_top=False, pooling="avg")
    model = keras.Sequential([body, keras.layers.Dense(3)])
    with pytest.raises(ValueError, match="freeze the model inside it"):
        cct_keras.freeze(model, "body")


def test_a_layer_wants_complete_settings():
    with pytest.raises(ValueError, match="must have rank, alpha and targets"):
        LoRAMultiHeadSelfAttention(num_heads=2, lora={"rank": 2})
    with pytest.raises(ValueError, match="must be among"):
        LoRAMultiHeadSelfAttention(
            num_heads=2, lora={"rank": 2, "alpha": 1, "targets": ["x"]}
        )


# === Freezing ===


@pytest.mark.parametrize(
    ("blocks", "frozen"),
    [
        (0, ()),
        (1, ("tokenizer", "class_token", "position_embedding", "block_0")),
        (2, ("tokenizer", "class_token", "position_embedding", "block_")),
    ],
)
def test_freeze(blocks, frozen, tmp_path):
    model = small_model("ViTLite")
    cct_keras.freeze(model, blocks)
    model.save(tmp_path / "model.keras")
    for it in (model, keras.models.load_model(tmp_path / "model.keras")):
        for weight in it.weights:
            assert weight.path.startswith(frozen) != (
                weight.path in {w.path for w in it.trainable_weights}
            ), weight.path


def test_freeze_the_body():
    model = small_model("CVT")
    cct_keras.freeze(model, "body")
    assert [w.path for w in model.trainable_weights] == ["head/kernel", "head/bias"]


@pytest.mark.parametrize("blocks", [3, -1, "all", True, 1.5])
def test_freeze_what_is_not_there(blocks):
    with pytest.raises(ValueError, match=f"freeze: .*Received: {blocks!r}"):
        cct_keras.freeze(small_model("CCT"), blocks)
