"""ViT and DeiT: outputs of `transformers`, checkpoints, tokens and heads."""

import json
import pathlib

import keras
import numpy as np
import pytest
import reference
from small import images
from small import predict
from small import small_model

import cct_keras
from cct_keras.converter.conversion import to_checkpoint
from cct_keras.errors import CheckpointError

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
CASES = json.loads((GOLDEN / "vit.json").read_text())
TINY = {
    "num_layers": 2,
    "embedding_dim": 192,
    "mlp_ratio": 4,
    "patch_size": 16,
    "tokens": 16,
}


def state_of(case):
    height, width, _ = case["input_shape"]
    patch = case["patch_size"]
    return reference.random_vit_state(
        tokens=(height // patch) * (width // patch),
        **{k: case[k] for k in ("num_layers", "embedding_dim", "mlp_ratio")},
        patch_size=patch,
        distilled=case["distilled"],
        distillation_head=case["distillation_head"],
    )


@pytest.mark.backend
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
@pytest.mark.parametrize(
    "old",
    [False, pytest.param(True, marks=pytest.mark.integration)],
    ids=["new names", "hub names"],
)
def test_golden_outputs_of_transformers(case, old):
    """Through the converter, by the names of the files."""
    state = reference.hugging_face_names(state_of(case), old)
    height, width, _ = case["input_shape"]
    patch = case["patch_size"]
    model = cct_keras.convert(
        state, grid=(height // patch, width // patch), classifier_activation=None
    )
    assert model.get_layer("block_0").epsilon == 1e-12
    x = reference.random_images(case["name"], (1, *case["input_shape"]))
    expected = np.array(case["logits"])
    difference = np.abs(predict(model, x)[0] - expected).max()
    assert difference < 1e-5 * np.abs(expected).max()


@pytest.mark.backend
@pytest.mark.parametrize("distilled", [False, True])
def test_timm_names_and_back(distilled, tmp_path):
    state = reference.random_vit_state(**TINY, distilled=distilled)
    model = cct_keras.convert({"model": state}, classifier_activation=None)
    assert model.get_layer("block_0").epsilon == 1e-6
    cct_keras.to_torch(model, tmp_path / "a.safetensors")
    again = cct_keras.convert(tmp_path / "a.safetensors", classifier_activation=None)
    x = images(2, 64, 64, 3)
    np.testing.assert_array_equal(predict(again, x), predict(model, x))
    stored = to_checkpoint(model)[0].tensors
    assert set(stored) == set(state)
    for name, array in state.items():
        np.testing.assert_array_equal(stored[name], array)


def test_a_mean_of_tokens_goes_there_and_back(tmp_path):
    model = small_model("ViT", top_pooling="avg", classifier_activation=None)
    assert "class_token" not in [layer.name for layer in model.layers]
    cct_keras.to_torch(model, tmp_path / "a.safetensors")
    again = cct_keras.convert(
        tmp_path / "a.safetensors", num_heads=2, classifier_activation=None
    )
    x = images(2, 16, 16, 3)
    np.testing.assert_array_equal(predict(again, x), predict(model, x))
    tokens = cct_keras.feature_extractor(model, "norm")(x)["norm"]
    tokens = keras.ops.convert_to_numpy(tokens)
    head = model.get_layer("head")
    expected = tokens.mean(1) @ head.kernel.numpy() + head.bias.numpy()
    np.testing.assert_allclose(predict(model, x), expected, atol=1e-5)


def test_both_heads_are_averaged():
    model = small_model("DeiT", classifier_activation=None)
    both = cct_keras.distillation_outputs(model)
    x = images(3, 16, 16, 3)
    heads = {k: keras.ops.convert_to_numpy(v) for k, v in both(x).items()}
    assert set(heads) == {"head", "head_dist"}
    assert not np.allclose(heads["head"], heads["head_dist"])
    mean = (heads["head"] + heads["head_dist"]) / 2
    np.testing.assert_allclose(predict(model, x), mean, atol=1e-6)
    both.get_layer("head").bias.assign(np.full(5, 7.0))
    assert np.all(model.get_layer("head").bias.numpy() == 7)


@pytest.mark.parametrize("layer_scale", ["x", True, False, float("nan"), [1e-5]])
def test_a_layer_scale_that_is_no_number(layer_scale):
    with pytest.raises(ValueError, match="ViT: `layer_scale` must be a finite number"):
        small_model("ViT", layer_scale=layer_scale)
    with pytest.raises(ValueError, match="EncoderBlock: `layer_scale` must be"):
        cct_keras.layers.EncoderBlock(2, 8, layer_scale=layer_scale)


def test_a_model_without_two_heads():
    with pytest.raises(ValueError, match="'head_dist'.*Received: 'vit'"):
        cct_keras.distillation_outputs(small_model("ViT"))


def test_positions_are_resized_and_tokens_left_alone():
    state = reference.random_vit_state(**TINY, distilled=True)
    model = cct_keras.convert(state, input_shape=(96, 48, 3))
    table = model.get_layer("position_embedding").embeddings.numpy()
    assert table.shape == (1, 2 + 6 * 3, 192)
    np.testing.assert_array_equal(table[:, :2], state["pos_embed"][:, :2])


def test_another_head_for_both_tokens():
    state = reference.random_vit_state(**TINY, distilled=True)
    with pytest.warns(UserWarning, match="10 classes, the model 3"):
        model = cct_keras.convert(state, num_classes=3)
    assert model.output_shape == (None, 3)


def test_a_distilled_file_into_a_plain_model():
    state = reference.random_vit_state(**TINY, distilled=True)
    with pytest.raises(CheckpointError, match="left over: dist_token"):
        cct_keras.create_model(
            "vit_tiny_patch16_224", num_layers=2, input_shape=(64, 64, 3), weights=state
        )


@pytest.mark.parametrize("change", ["missing", "left over", "shapes"])
def test_strict(change):
    state = reference.random_vit_state(**TINY)
    if change == "missing":
        del state["blocks.1.attn.qkv.bias"]
    elif change == "left over":
        state["fc_norm.weight"] = np.ones(192)
    else:
        state["blocks.1.mlp.fc2.bias"] = np.ones(191)
    with pytest.raises(CheckpointError, match=change):
        cct_keras.convert(state)


def test_a_part_of_query_key_and_value():
    state = reference.hugging_face_names(reference.random_vit_state(**TINY))
    del state["vit.layers.1.attention.k_proj.weight"]
    with pytest.raises(CheckpointError, match="missing: k of blocks.1.attn.qkv.weight"):
        cct_keras.convert(state)
