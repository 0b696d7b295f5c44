"""Files without a head: bodies as `transformers`, DINO and MAE publish them."""

import json
import logging
import pathlib

import keras
import numpy as np
import pytest
import reference
from small import predict

import cct_keras
from cct_keras.errors import CheckpointError

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
CASES = json.loads((GOLDEN / "bodies.json").read_text())
TINY = {
    "num_layers": 2,
    "embedding_dim": 192,
    "mlp_ratio": 4,
    "patch_size": 16,
    "tokens": 16,
}


@pytest.mark.backend
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_same_tokens_as_transformers(case, caplog):
    state = {
        name: reference.random_tensor(name, tuple(shape))
        for name, shape in case["shapes"].items()
    }
    grid = tuple(side // 8 for side in case["input_shape"][:2])
    with caplog.at_level(logging.INFO, "cct_keras"):
        model = cct_keras.convert(state, grid=grid, num_heads=case["num_heads"])
    assert "not needed: " in caplog.text
    x = reference.random_images(case["name"], (1, *case["input_shape"]))
    expected = np.array(case["tokens"])
    difference = np.abs(predict(model, x)[0] - expected).max()
    assert difference < 1e-5 * np.abs(expected).max()


def bodies():
    vit = reference.random_vit_state(**TINY)
    body = {k: v for k, v in vit.items() if not k.startswith("head")}
    dino_head = {f"head.mlp.0.{k}": np.ones((4, 4)) for k in ("weight", "bias")}
    decoder = {
        "mask_token": np.ones((1, 1, 8)),
        "decoder_pos_embed": np.ones((1, 17, 8)),
        "decoder_blocks.0.attn.qkv.weight": np.ones((24, 8)),
        "decoder_pred.bias": np.ones(3),
    }
    teacher = {f"backbone.{k}": v for k, v in body.items()} | dino_head
    student = {f"module.backbone.{k}": v + 1 for k, v in body.items()}
    return body, {
        "bare": body,
        "MAE": {"model": body | decoder},
        "DINO": {"student": student, "teacher": teacher, "epoch": 3},
        "DINO student": {"student": {f"module.{k}": v for k, v in teacher.items()}},
    }


@pytest.mark.parametrize("kind", list(bodies()[1]))
def test_bodies_by_timms_names(kind):
    body, files = bodies()
    expected = cct_keras.convert(body)
    model = cct_keras.convert(files[kind])
    x = reference.random_images("body", (1, 64, 64, 3))
    assert model.output_shape == (None, 17, 192)
    np.testing.assert_array_equal(predict(model, x), predict(expected, x))


def test_a_body_gets_a_fresh_head():
    body, _ = bodies()
    with pytest.warns(UserWarning, match="no weights for the head"):
        model = cct_keras.convert(body, num_classes=4)
    assert model.output_shape == (None, 4)
    with pytest.warns(UserWarning, match="no weights for the head"):
        model = cct_keras.create_model(
            "vit_tiny_patch16_224",
            num_layers=2,
            input_shape=(64, 64, 3),
            num_classes=3,
            weights=body,
        )
    assert model.output_shape == (None, 3)


@pytest.mark.parametrize("pooled", [True, False])
def test_a_body_of_a_compact_transformer(pooled):
    """The pooling before the missing head is used where there is one."""
    state = reference.random_state(**reference.TINY)
    body = {k: v for k, v in state.items() if not k.startswith("classifier.fc")}
    if not pooled:
        body = {k: v for k, v in body.items() if "attention_pool" not in k}
    whole = cct_keras.convert(state, num_heads=2)
    tokens = keras.Model(whole.input, whole.get_layer("norm").output)
    x = reference.random_images("body", (1, *whole.input_shape[1:]))
    model = cct_keras.convert(body, num_heads=2)
    np.testing.assert_array_equal(predict(model, x), predict(tokens, x))
    fresh = "head" if pooled else "pool and head"
    with pytest.warns(UserWarning, match=f"no weights for the {fresh} of"):
        model = cct_keras.convert(body, num_heads=2, num_classes=4)
    if pooled:
        np.testing.assert_array_equal(
            model.get_layer("pool").get_weights()[0],
            whole.get_layer("pool").get_weights()[0],
        )


def test_half_a_head_is_refused():
    state = reference.random_vit_state(**TINY)
    del state["head.weight"]
    with pytest.raises(CheckpointError, match=r"missing: head\.weight"):
        cct_keras.convert(state)
