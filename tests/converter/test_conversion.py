"""A checkpoint becomes a model of the same function, and back."""

import importlib.util

import keras
import numpy as np
import pytest
import reference
from small import ORIGINAL
from small import images
from small import predict

import cct_keras
from cct_keras.converter.reference import forward
from cct_keras.errors import CheckpointError
from cct_keras.models.variants import VARIANTS
from cct_keras.models.variants import constructor_arguments

ARCHITECTURE = {"num_layers": 2, "embedding_dim": 128, "mlp_ratio": 1}
KERNELS = {"CCT": 3, "CVT": 4, "ViTLite": 4}


def checkpoint(family="CCT", tokens=64, **changes):
    """CCT-2/3x2 or its CVT and ViT-Lite counterpart, for 32x32 images."""
    arguments = {
        **ARCHITECTURE,
        "kernel_size": KERNELS[family],
        "num_conv_layers": 2 if family == "CCT" else 1,
        **changes,
    }
    return reference.random_state(family=family, tokens=tokens, **arguments)


def assert_same_logits(model, state, heads=2, x=None):
    x = images(2, *model.input_shape[1:]) if x is None else x
    expected = forward(state, x, num_heads=heads)
    difference = np.abs(predict(model, x) - expected).max() / np.abs(expected).max()
    assert difference < 1e-5


@pytest.mark.backend
@pytest.mark.parametrize("family", ORIGINAL)
@pytest.mark.parametrize("positions", ["learnable", "sine", None])
def test_family_and_positions_are_inferred(family, positions):
    state = checkpoint(family, positional_embedding=positions)
    model = cct_keras.convert(state, classifier_activation=None)
    name = {"CCT": "cct_2_3x2_32", "CVT": "cvt_2_4_32", "ViTLite": "vit_2_4_32"}[family]
    suffix = "_sine" if positions == "sine" else ""
    assert model.name == (f"{name}{suffix}" if positions else model.name)
    assert_same_logits(model, state)


def large_ones_later():
    names = [name for name, row in VARIANTS.items() if row.family in ORIGINAL]
    return [
        pytest.param(
            name, marks=pytest.mark.integration if VARIANTS[name].layers > 4 else ()
        )
        for name in names
    ]


@pytest.mark.parametrize("name", large_ones_later())
def test_every_variant_is_recognized(name):
    """Shapes decide; `_c100` and `_fl` differ from their base in the classes."""
    row = VARIANTS[name]
    if row.size == 14 and row.image_size == 384 and row.num_classes == 1000:
        pytest.skip("as cct_14_7x2_384_fl, at a third of a gigabyte less")
    arguments = constructor_arguments(row)
    kernel = arguments.pop("patch_size", None) or arguments.pop("kernel_size")
    side = row.image_size // {3: 2**row.stages, 4: 4, 7: 16, 8: 8}[kernel]
    del arguments["input_shape"], arguments["num_heads"]
    arguments.setdefault("num_conv_layers", 1)
    state = reference.random_state(
        family=row.family, tokens=side**2, kernel_size=kernel, **arguments
    )
    model = cct_keras.convert(state)
    assert model.name == name
    assert model.count_params() == sum(array.size for array in state.values())


@pytest.mark.parametrize("wrap", [lambda s: s, reference.mirror_names])
def test_mirror_and_low_precision(wrap):
    state = checkpoint()
    half = {name: array.astype("float16") for name, array in wrap(state).items()}
    model = cct_keras.convert(half, classifier_activation=None)
    widened = {name: array.astype("float16") for name, array in state.items()}
    assert_same_logits(model, widened)


def test_another_resolution_resizes_positions_as_a_saved_model_does():
    state = checkpoint()
    model = cct_keras.convert(state)
    resized = cct_keras.convert(state, input_shape=(48, 64, 3))
    expected = cct_keras.with_input_shape(model, (48, 64, 3))
    x = images(2, 48, 64, 3)
    np.testing.assert_allclose(predict(resized, x), predict(expected, x), atol=1e-6)
    sine = checkpoint(positional_embedding="sine")
    resized = cct_keras.convert(sine, input_shape=(48, 64, 3))
    table = resized.get_layer("position_embedding").embeddings.numpy()
    np.testing.assert_allclose(table, reference.sinusoid(12 * 16, 128), atol=1e-6)


def test_another_number_of_classes_leaves_the_head_fresh():
    state = checkpoint()
    with pytest.warns(
        UserWarning, match=r"10 classes.*5.*left as initialized"
    ) as caught:
        model = cct_keras.convert(state, num_classes=5)
    assert len(caught) == 1
    assert model.output_shape == (None, 5)
    kernel = model.get_layer("block_1").attention.qkv.kernel.numpy()
    expected = state["classifier.blocks.1.self_attn.qkv.weight"].T
    np.testing.assert_array_equal(kernel, expected)


@pytest.mark.parametrize("channels", [1, 2, 4, 6])
def test_other_channels_adapt_the_first_convolution(channels):
    """A gray image, as many times as there are channels, gives the same tokens."""
    state = checkpoint()
    with pytest.warns(UserWarning, match=f"from 3 to {channels} channels"):
        model = cct_keras.convert(state, input_shape=(32, 32, channels))
    kernel = model.get_layer("tokenizer").convs[0].kernel.numpy()
    original = state["tokenizer.conv_layers.0.0.weight"].transpose(2, 3, 1, 0)
    if channels in (1, 6):
        np.testing.assert_allclose(kernel.sum(axis=2), original.sum(axis=2), atol=1e-6)
    if channels != 1:
        np.testing.assert_allclose(kernel[:, :, 1], original[:, :, 1] * 3 / channels)


def test_what_the_mirror_names_twice_is_refused():
    state = reference.mirror_names(checkpoint())
    kernel = state["cct.embedder.embedding_layers.0.weight"]
    state["cct.embedder.embedding_layers.1.weight"] = kernel
    with pytest.raises(CheckpointError, match="left over"):
        cct_keras.convert(state)


def test_positions_are_never_resized_without_being_asked():
    """An even kernel: 32 pixels give 17 x 17 tokens, not 16 x 16."""
    state = checkpoint(kernel_size=4, num_conv_layers=1, tokens=17**2)
    with pytest.raises(CheckpointError, match="input_shape="):
        cct_keras.convert(state)
    model = cct_keras.convert(state, input_shape=(32, 32, 3))
    table = model.get_layer("position_embedding").embeddings.numpy()
    np.testing.assert_array_equal(table, state["classifier.positional_emb"])


def test_without_top_and_with_arguments_of_the_constructor():
    model = cct_keras.convert(
        checkpoint(), include_top=False, pooling="seq", name="body", dropout_rate=0.2
    )
    assert (model.name, model.output_shape) == ("body", (None, 128))
    with pytest.raises(TypeError, match=r"drop_rate.*dropout_rate"):
        cct_keras.convert(checkpoint(), drop_rate=0.2)


def test_what_the_file_does_not_tell_is_an_argument():
    state = checkpoint(embedding_dim=96)
    with pytest.raises(CheckpointError, match="num_heads="):
        cct_keras.convert(state)
    model = cct_keras.convert(state, num_heads=3, classifier_activation=None)
    assert_same_logits(model, state, heads=3)

    state = checkpoint(tokens=8 * 6)
    with pytest.raises(CheckpointError, match="grid="):
        cct_keras.convert(state)
    model = cct_keras.convert(state, grid=(8, 6), classifier_activation=None)
    assert model.input_shape == (None, 32, 24, 3)
    assert_same_logits(model, state)
    with pytest.raises(CheckpointError, match=r"grid.*48 positions"):
        cct_keras.convert(state, grid=(5, 5))

    state = checkpoint(kernel_size=5, positional_embedding=None)
    with pytest.raises(CheckpointError, match="input_shape="):
        cct_keras.convert(state)
    assert cct_keras.convert(state, input_shape=(20, 24, 3)).output_shape == (None, 10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("classifier.norm.bias"), "missing: classifier.norm.bias"),
        (lambda s: s.pop("classifier.fc.weight"), "missing: classifier.fc.weight"),
        (lambda s: s.update({"extra": np.zeros(3)}), "left over: extra"),
        (
            lambda s: s.update({"classifier.blocks.7.norm1.bias": np.zeros(128)}),
            "left over: classifier.blocks.7",
        ),
        (
            lambda s: s.update({"classifier.norm.bias": np.zeros(64)}),
            r"classifier.norm.bias \(64,\) for \(128,\)",
        ),
        (lambda s: s.update({"classifier.norm.bias": "text"}), "something else"),
        (lambda s: s.clear(), "no weights"),
    ],
)
def test_strict_on_both_sides(change, message):
    state = checkpoint()
    change(state)
    with pytest.raises(CheckpointError, match=message):
        cct_keras.convert(state)


def test_other_networks_are_refused():
    other = {"conv1.weight": np.zeros((64, 3, 7, 7))}
    with pytest.raises(CheckpointError, match="not the weights of a compact"):
        cct_keras.convert(other)
    with pytest.raises(CheckpointError, match="not the weights of a compact"):
        cct_keras.create_model("cct_2_3x2_32", weights=other)
    with pytest.raises(CheckpointError, match="left over: classifier.positional_emb"):
        cct_keras.convert(checkpoint(), positional_embedding=None)


# === Back ===


@pytest.mark.backend
@pytest.mark.parametrize("family", ORIGINAL)
def test_safetensors_round_trip(family, tmp_path):
    state = checkpoint(family)
    model = cct_keras.convert(state)
    path = tmp_path / "model.safetensors"
    cct_keras.to_torch(model, path)
    assert list(tmp_path.iterdir()) == [path]
    again = cct_keras.convert(path)
    for ours, theirs in zip(again.weights, model.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.backend
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_torch_reads_what_was_written(tmp_path):
    import torch

    state = checkpoint()
    model = cct_keras.convert(state)
    cct_keras.to_torch(model, tmp_path / "model.pth")
    loaded = torch.load(tmp_path / "model.pth", weights_only=True)
    assert set(loaded) == set(state)
    for name, tensor in loaded.items():
        np.testing.assert_array_equal(tensor.numpy(), state[name])
    tensors = {name: torch.nn.Parameter(tensor) for name, tensor in loaded.items()}
    from_tensors = cct_keras.convert(tensors)
    x = images(2, 32, 32, 3)
    np.testing.assert_array_equal(predict(from_tensors, x), predict(model, x))


def test_to_torch_says_what_the_file_does_not_hold(tmp_path):
    scaled = keras.layers.Rescaling(1 / 255, name="scale")(keras.Input((32, 32, 3)))
    model = cct_keras.convert(checkpoint(), input_tensor=scaled)
    with pytest.warns(UserWarning, match="scale before the tokenizer"):
        cct_keras.to_torch(model, tmp_path / "a.safetensors")


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_a_grid_that_is_no_square(tmp_path):
    model = cct_keras.convert(checkpoint(), input_shape=(32, 48, 3))
    with pytest.warns(UserWarning, match=r"grid of \(8, 12\)"):
        cct_keras.to_torch(model, tmp_path / "a.pth")
    cct_keras.to_torch(model, tmp_path / "a.safetensors")
    pickled = cct_keras.convert(tmp_path / "a.pth", grid=(8, 12))
    recorded = cct_keras.convert(tmp_path / "a.safetensors")
    asked = cct_keras.create_model(
        "cct_2_3x2_32", input_shape=(32, 48, 3), weights=tmp_path / "a.pth"
    )
    x = images(2, 32, 48, 3)
    for again in (pickled, recorded, asked):
        assert again.input_shape == (None, 32, 48, 3)
        np.testing.assert_array_equal(predict(again, x), predict(model, x))


def test_to_torch_refuses(tmp_path):
    model = cct_keras.convert(checkpoint())
    with pytest.raises(CheckpointError, match=r"\.onnx"):
        cct_keras.to_torch(model, tmp_path / "model.onnx")
    with pytest.raises(FileNotFoundError, match="folder"):
        cct_keras.to_torch(model, tmp_path / "no" / "model.safetensors")
    body = cct_keras.convert(checkpoint(), include_top=False)
    with pytest.raises(CheckpointError, match="no top"):
        cct_keras.to_torch(body, tmp_path / "model.safetensors")
    other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.raises(CheckpointError, match="no counterpart"):
        cct_keras.to_torch(other, tmp_path / "model.safetensors")
    assert list(tmp_path.iterdir()) == []
