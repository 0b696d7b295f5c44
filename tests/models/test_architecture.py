"""One record of the architecture, wherever it is made from."""

import importlib.util

import keras
import numpy as np
import pytest
import reference
from small import FAMILIES
from small import PLAIN_VITS
from small import first_of_all
from small import images
from small import predict
from small import small_model

import cct_keras
from cct_keras.models.architecture import Architecture
from cct_keras.models.cost import architecture_cost
from cct_keras.models.factory import build_architecture
from cct_keras.models.inspection import architecture_of
from cct_keras.models.inspection import layer_depths
from cct_keras.models.inspection import undecayed_weights
from cct_keras.pretrained.source import open_weights

CASES = {
    "CCT": ("CCT", {}),
    "CCT of other strides": (
        "CCT",
        {"stride": 2, "padding": 2, "pooling_kernel_size": 2, "pooling_padding": 0},
    ),
    "CCT of another activation": ("CCT", {"activation": "relu"}),
    "CVT of four heads": ("CVT", {"num_heads": 4, "positional_embedding": "sine"}),
    "CVT without positions": ("CVT", {"patch_size": 8, "positional_embedding": None}),
    "ViTLite": ("ViTLite", {"mlp_ratio": 1.7}),
    "ViT": ("ViT", {"epsilon": 1e-12}),
    "ViT without class token": ("ViT", {"top_pooling": "avg"}),
    **{name: ("ViT", arguments) for name, arguments in PLAIN_VITS.items()},
    "plain DeiT": ("DeiT", {"distilled": False}),
    "DeiT": ("DeiT", {}),
    "DeiT of one head": ("DeiT", {"distillation_head": False}),
    "DeiT of another activation": ("DeiT", {"activation": "gelu_tanh"}),
}
# The others have the same parts, one at a time.
FIRST = {"DINOv2 with classes", "CLIP", "SigLIP"} | (CASES.keys() - PLAIN_VITS.keys())
cases = pytest.mark.parametrize("case", first_of_all(CASES, *FIRST))


def build(case, **changes):
    family, arguments = CASES[case]
    shape = {"input_shape": (16, 24, 3)}
    return small_model(family, **{**shape, **arguments, **changes})


@cases
def test_every_weight_is_known_before_a_model_is_built(case):
    model = build(case)
    shapes = architecture_of(model).weight_shapes()
    assert shapes == {w.path: tuple(w.shape) for w in model.weights}
    cost = architecture_cost(architecture_of(model))
    assert cost.parameters == model.count_params()


def write(model, path):
    if path.suffix == ".keras":
        model.save(path)
    elif path.suffix == ".h5":
        model.save_weights(path)
    else:
        cct_keras.to_torch(model, path)
    return path


@cases
@pytest.mark.parametrize("suffix", [".keras", ".weights.h5", ".safetensors"])
def test_the_record_comes_back_from_every_file(case, suffix, tmp_path):
    """Heads, strides, epsilon and a grid that is no square included."""
    model = build(case)
    found = open_weights(write(model, tmp_path / f"a{suffix}"))
    expected = architecture_of(model)
    assert found.states_settings
    assert found.architecture.body == expected.body
    assert found.architecture.heads == expected.heads
    for name in ("num_classes", "positional_embedding"):
        assert found.architecture.get(name) == expected.get(name)
    if suffix != ".weights.h5":
        assert found.architecture.get("input_shape") == (16, 24, 3)
    if expected.get("positional_embedding"):
        assert found.architecture.grid == expected.token_grid


@pytest.mark.parametrize("case", first_of_all(PLAIN_VITS, *FIRST))
@pytest.mark.parametrize("suffix", [".keras", ".weights.h5", ".safetensors"])
def test_the_same_outputs_from_every_file(case, suffix, tmp_path):
    model = build(case)
    found = open_weights(write(model, tmp_path / f"a{suffix}"))
    shape = {"input_shape": (16, 24, 3)}
    again = build_architecture(found.architecture, weights=found, **shape)
    x = images(2, 16, 24, 3)
    expected = predict(model, x)
    np.testing.assert_array_equal(predict(again, x), expected)
    if suffix == ".keras":
        loaded = keras.models.load_model(tmp_path / "a.keras")
        np.testing.assert_array_equal(predict(loaded, x), expected)
    if suffix == ".safetensors":
        converted = cct_keras.convert(tmp_path / "a.safetensors")
        np.testing.assert_array_equal(predict(converted, x), expected)


@cases
def test_json(case):
    record = architecture_of(build(case))
    assert Architecture.from_json(record.to_json()) == record
    assert Architecture.from_json(record.to_json()).body == record.body
    for text in ("", "{}", "[]", '{"family": "X", "arguments": {}, "grid": null}'):
        with pytest.raises(ValueError, match="record"):
            Architecture.from_json(text)


@pytest.mark.parametrize("name", ["cct_2_3x2_32", "vit_2_4_32_sine", "cvt_7_8_32"])
def test_a_variant_is_found_by_its_model(name):
    model = cct_keras.create_model(name)
    assert architecture_of(model).variant == name
    other = cct_keras.create_model(name, num_classes=3, input_shape=(48, 48, 1))
    assert architecture_of(other).variant is None
    assert architecture_of(other).nearest_variant() == name


def test_depths_and_weight_decay_are_asked_of_the_family():
    model = small_model("DeiT")
    depths = layer_depths(model)
    stem = ("tokenizer", "class_token", "distillation_token", "position_embedding")
    assert all(depths[name] == 0 for name in stem)
    assert (depths["block_0"], depths["block_1"]) == (1, 2)
    assert depths["norm"] == depths["head"] == depths["head_dist"] == 3
    assert {weight.path for weight in undecayed_weights(model)} == {
        "class_token/token",
        "distillation_token/token",
        "position_embedding/embeddings",
    }


def test_other_models_are_refused():
    other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="no ConvTokenizer"):
        architecture_of(other)


# === Files that leave something open ===


@pytest.mark.integration
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_the_model_tells_what_a_pickle_does_not(tmp_path):
    shape = {"patch_size": 8, "positional_embedding": None}
    model = cct_keras.CVT(10, (32, 32, 3), **shape)
    for suffix in (".pth", ".safetensors"):
        path = tmp_path / f"a{suffix}"
        cct_keras.to_torch(model, path)
        again = cct_keras.CVT(10, (32, 32, 3), **shape, weights=path)
        x = images(2, 32, 32, 3)
        np.testing.assert_array_equal(predict(again, x), predict(model, x))


def test_the_epsilon_of_hugging_face_reaches_every_constructor():
    tiny = {"num_layers": 2, "embedding_dim": 192, "mlp_ratio": 4, "patch_size": 16}
    state = reference.random_vit_state(tokens=16, num_classes=5, **tiny)
    state = reference.hugging_face_names(state)
    converted = cct_keras.convert(state)
    shape = {"num_classes": 5, "input_shape": (64, 64, 3)}
    built = cct_keras.ViT(**shape, num_heads=3, **tiny, weights=state)
    named = cct_keras.create_model(
        "vit_tiny_patch16_224", **shape, num_layers=2, weights=state
    )
    x = images(2, 64, 64, 3)
    for model in (built, named):
        assert model.get_layer("block_1").epsilon == 1e-12
        np.testing.assert_array_equal(predict(model, x), predict(converted, x))
    own = cct_keras.ViT(**shape, num_heads=3, **tiny, weights=state, epsilon=1e-6)
    assert own.get_layer("block_1").epsilon == 1e-6


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_of_other_settings_are_refused(family, tmp_path):
    """Also where all shapes agree, and in files of weights."""
    path = tmp_path / "a.weights.h5"
    small_model(family, num_heads=4).save_weights(path)
    with pytest.raises(ValueError, match="num_heads"):
        small_model(family, weights=path)
    with pytest.raises(ValueError, match="num_heads"):
        small_model(family).load_weights(path)


@pytest.mark.parametrize("target", ["qkv", "proj", "linear1", "linear2"])
def test_adapters_in_a_file_of_weights_are_refused(target, tmp_path):
    adapted = cct_keras.add_lora(small_model("CCT"), 2, targets=[target])
    adapted.save_weights(tmp_path / "a.weights.h5")
    with pytest.raises(ValueError, match="merge_lora"):
        small_model("CCT", weights=tmp_path / "a.weights.h5")


def test_weights_of_another_family_are_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    cct_keras.to_torch(small_model("ViT"), path)
    with pytest.raises(ValueError, match="another architecture"):
        cct_keras.create_model("cct_2_3x2_32", weights=path)


def test_the_file_decides_how_a_vit_is_read(tmp_path):
    """Without a class token; and a distilled DeiT that reads its class token alone."""
    tiny = {"num_layers": 1, "input_shape": (32, 32, 3), "num_classes": 5}
    path = tmp_path / "a.safetensors"
    for variant, option in (
        ("vit_tiny_patch16_224", {"top_pooling": "avg"}),
        ("deit_tiny_distilled_patch16_224", {"distillation_head": False}),
    ):
        model = cct_keras.create_model(variant, **tiny, **option)
        cct_keras.to_torch(model, path)
        again = cct_keras.create_model(variant, num_layers=1, weights=path)
        x = images(2, 32, 32, 3)
        np.testing.assert_array_equal(predict(again, x), predict(model, x))


def test_a_broken_record_leaves_the_tensors_to_decide(tmp_path):
    from cct_keras.converter.conversion import to_checkpoint
    from cct_keras.converter.safetensors_file import write_safetensors

    model = cct_keras.create_model("cct_2_3x2_32")
    tensors = to_checkpoint(model)[0].tensors
    for text in ("{", '{"family": "Later", "arguments": {}, "grid": null}'):
        with (tmp_path / "a.safetensors").open("wb") as file:
            write_safetensors(file, tensors, {"cct_keras": text})
        assert cct_keras.convert(tmp_path / "a.safetensors").name == "cct_2_3x2_32"


def test_other_keras_files_are_named(tmp_path):
    other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    other.save(tmp_path / "other.keras")
    with pytest.raises(ValueError, match=r"other\.keras.*ConvTokenizer"):
        small_model("CCT", weights=tmp_path / "other.keras")
