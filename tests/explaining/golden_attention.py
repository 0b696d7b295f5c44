"""The golden attention weights, and the models that have them."""

import functools
import json
import math
import pathlib

import numpy as np
import reference

import cct_keras

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
ROWS = [
    row
    for name in ("attention.json", "attention_original.json")
    for row in json.loads((GOLDEN / name).read_text())
]


def state_of(row):
    """Weights by the names of timm, or of the authors' own code."""
    known = {k: row[k] for k in ("num_layers", "embedding_dim", "mlp_ratio")}
    known["tokens"] = math.prod(row["grid"])
    if "patch_size" in row:
        own = ("patch_size", "distilled", "distillation_head")
        return reference.random_vit_state(**known, **{k: row[k] for k in own})
    own = ("family", "kernel_size", "num_conv_layers", "positional_embedding")
    return reference.random_state(**known, **{k: row[k] for k in own})


@functools.cache
def _model_of(name):
    row = next(row for row in ROWS if row["name"] == name)
    state = state_of(row)
    if "patch_size" in row:
        # These names stand for the epsilon of `transformers`.
        state = reference.hugging_face_names(state)
    has_positions = row.get("positional_embedding", "learnable") is not None
    return cct_keras.convert(
        state,
        grid=tuple(row["grid"]) if has_positions else None,
        num_heads=row["num_heads"],
        input_shape=tuple(row["input_shape"]),
        classifier_activation=None,
    )


def model_of(row):
    """A model that tests share, and none of them changes."""
    return _model_of(row["name"])


def image_of(row):
    return reference.random_images(row["name"], (1, *row["input_shape"]))


def attention_of(row):
    """`(blocks, heads, tokens, tokens)`."""
    return np.array(row["attention"], "float64")


def reading_of(row):
    """How much the head reads of each token: what the architecture says."""
    tokens = attention_of(row).shape[-1]
    if row["pool"] is not None:
        return np.array(row["pool"], "float64").reshape(tokens)
    if row.get("distilled") and row["distillation_head"]:
        # Two heads, whose logits are averaged, read a token each.
        return np.eye(tokens)[:2].mean(axis=0)
    return np.eye(tokens)[0]


def on_grid(row, values):
    """Of values whose last axis are the tokens, those of the image in its plane."""
    image_tokens = values[..., -math.prod(row["grid"]) :]
    return image_tokens.reshape(*values.shape[:-1], *row["grid"])
