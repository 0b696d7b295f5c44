"""The plain ViTs that came after ViT: what their authors' code computes.

`plain_vits.json` holds outputs of `transformers`, `plain_vits_original.json` those of
timm and of the authors' own classes; see `tests/golden/README.md`.
"""

import logging
import re

import keras
import numpy as np
import pytest
import reference
from plain_vits import HUGGING_FACE
from plain_vits import ORIGINAL
from plain_vits import as_version_4
from plain_vits import state_of
from small import predict

import cct_keras
from cct_keras.converter.conversion import arrays_by_path
from cct_keras.converter.formats import open_checkpoint
from cct_keras.converter.infer import infer
from cct_keras.errors import CheckpointError

# What the names and shapes of a file cannot tell.
TOLD = {
    "dino_resized": {"position_interpolation": "bicubic_offset"},
    "timm_clip": {"activation": "quick_gelu"},
}


def by_name(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case["name"])


def outputs_of(case, state):
    wanted = dict(TOLD.get(case["name"], {}))
    if case["name"].endswith("resized"):
        wanted["input_shape"] = tuple(case["input_shape"])
    model = cct_keras.convert(state, num_heads=case["num_heads"], **wanted)
    if "predictions" in [layer.name for layer in model.layers]:
        model = keras.Model(model.input, model.get_layer("predictions").input)
    elif len(case["shape"]) == 1 and len(model.output_shape) == 3:
        model = keras.Model(model.input, model.output[:, 0])
    x = reference.random_images(case["name"], (1, *case["input_shape"]))
    return predict(model, x)[0]


def assert_same_outputs(case, state):
    expected = np.array(case["output"]).reshape(case["shape"])
    difference = np.abs(outputs_of(case, state) - expected).max()
    assert difference < 1e-5 * np.abs(expected).max()


@pytest.mark.backend
@by_name(HUGGING_FACE)
def test_same_outputs_as_transformers(case):
    assert_same_outputs(case, state_of(case))


@pytest.mark.integration
@by_name(HUGGING_FACE)
def test_names_of_transformers_4(case):
    assert_same_outputs(case, as_version_4(state_of(case)))


@pytest.mark.backend
@by_name(ORIGINAL)
def test_same_outputs_as_the_authors(case):
    assert_same_outputs(case, state_of(case))


def golden(name):
    return next(case for case in ORIGINAL if case["name"] == name)


def test_a_tower_of_open_clip(caplog):
    """timm's tower inside open_clip's model for images and texts."""
    case = golden("timm_siglip")
    state = {f"visual.trunk.{k}": v for k, v in state_of(case).items()}
    text = ("text.transformer.resblocks.0.ln_1.weight", "text.positional_embedding")
    state |= {name: np.ones(8) for name in text} | {"logit_scale": np.ones(())}
    with caplog.at_level(logging.INFO, "cct_keras"):
        assert_same_outputs(case, state)
    assert f"not needed: {text[0]}, {text[1]}, logit_scale" in caplog.text


@pytest.mark.parametrize("prefix", ["model.", "module.", "_orig_mod.", "model.module."])
def test_wrapped_by_training(prefix):
    case = golden("deit3")
    state = {f"{prefix}{k}": v for k, v in state_of(case).items()}
    assert_same_outputs(case, {"state_dict": state, "epoch": 3})


# Parts without which there is another model, by timm's names.
OPTIONAL = {"cls_token", "pos_embed", "reg_token", "register_tokens", "mask_token"}
OPTIONAL |= {
    f"embeddings.{name}"
    for name in ("mask_token", "register_tokens", "distillation_token")
}
# A classifier of `transformers` does not read these.
UNREAD = ("post_layernorm.", "head.")


@pytest.mark.parametrize(
    "case",
    [
        case
        for case in (*HUGGING_FACE, *ORIGINAL)
        if case["name"] not in ("clip_whole", "siglip_whole", "openai_clip")
    ],
    ids=lambda case: case["name"],
)
def test_every_tensor_is_needed(case):
    """A file that lacks one is refused, and so is one with another."""
    state = state_of(case)
    classifies = any(name.startswith("classifier") for name in state)
    accepted = []
    for name in state:
        left = {k: v for k, v in state.items() if k != name}
        own = re.sub(r"^(dinov2|dinov2_with_registers|vision_model)\.", "", name)
        unread = classifies and own.startswith(UNREAD)
        if own in OPTIONAL or unread or own.startswith("pooler."):
            continue
        try:
            architecture_of_file(left)
        except CheckpointError:
            continue
        accepted.append(name)
    assert accepted in ([], ["visual_projection.weight"])
    body = "dinov2." if "dinov2.embeddings.cls_token" in state else ""
    other = f"{body}encoder.layer.0.attention.attention.strange.weight"
    with pytest.raises(CheckpointError, match="strange"):
        architecture_of_file({**state, other: np.ones(8)})


def architecture_of_file(state):
    checkpoint = open_checkpoint(state)
    architecture = infer(checkpoint)
    arrays_by_path(checkpoint, architecture)
    return architecture
