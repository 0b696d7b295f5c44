"""Same weights, same logits as the original, on every backend."""

import json
import math
import pathlib

import numpy as np
import pytest
import reference
from small import FAMILIES
from small import predict

import cct_keras
from cct_keras.converter.reference import forward

pytestmark = pytest.mark.backend

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
CASES = json.loads((GOLDEN / "cct.json").read_text())
ARCHITECTURE = (
    "num_layers",
    "num_heads",
    "mlp_ratio",
    "embedding_dim",
    "num_conv_layers",
    "kernel_size",
    "positional_embedding",
)


def assert_close(logits, expected):
    """Within 1e-5 of the largest logit."""
    expected = np.asarray(expected)
    difference = np.abs(logits - expected).max() / np.abs(expected).max()
    assert difference < 1e-5


def state_for(model, family, num_classes, channels=3, **architecture):
    shape = model.get_layer("tokenizer").output.shape
    architecture.pop("num_heads")
    if "patch_size" in architecture:
        architecture["kernel_size"] = architecture.pop("patch_size")
    return reference.random_state(
        family=family,
        tokens=shape[1],
        num_classes=num_classes,
        channels=channels,
        **architecture,
    )


def large_ones_later(cases, pixels):
    """The cases of large images are left to the integration tests."""
    return [
        pytest.param(
            case,
            marks=pytest.mark.integration
            if math.prod(case["input_shape"]) > pixels
            else (),
            id=case["name"],
        )
        for case in cases
    ]


@pytest.mark.parametrize("case", large_ones_later(CASES, 10_000))
def test_golden_outputs(case):
    architecture = {key: case[key] for key in ARCHITECTURE}
    shape = tuple(case["input_shape"])
    model = cct_keras.CCT(10, shape, classifier_activation=None, **architecture)
    state = state_for(model, "CCT", 10, **architecture)
    reference.assign(model, state)
    images = reference.random_images(case["name"], (1, *shape))
    assert_close(predict(model, images)[0], case["logits"])


@pytest.mark.integration
@pytest.mark.parametrize(
    "case",
    [c for c in CASES if math.prod(c["input_shape"]) < 10_000],
    ids=lambda case: case["name"],
)
def test_reference_agrees_with_the_golden_outputs(case):
    architecture = {key: case[key] for key in ARCHITECTURE}
    shape = tuple(case["input_shape"])
    model = cct_keras.CCT(10, shape, **architecture)
    state = state_for(model, "CCT", 10, **architecture)
    images = reference.random_images(case["name"], (1, *shape))
    logits = forward(state, images, num_heads=case["num_heads"])
    assert_close(logits[0], case["logits"])


SETTINGS = [
    ("CVT", (32, 32, 3), {}),
    ("CVT", (24, 40, 1), {"positional_embedding": "sine"}),
    ("CVT", (12, 18, 3), {"patch_size": 6, "positional_embedding": None}),
    ("ViTLite", (32, 32, 3), {}),
    ("ViTLite", (8, 20, 5), {"positional_embedding": "sine", "num_heads": 4}),
    ("ViTLite", (16, 16, 3), {"patch_size": 8, "positional_embedding": None}),
    ("CCT", (21, 30, 1), {"kernel_size": 5, "num_conv_layers": 3}),
    ("CCT", (30, 30, 4), {"kernel_size": 2, "mlp_ratio": 2.5, "num_layers": 3}),
]


@pytest.mark.parametrize(("family", "shape", "changes"), SETTINGS)
def test_every_family_agrees_with_the_reference(family, shape, changes):
    constructor, own = FAMILIES[family]
    architecture = {
        "num_layers": 2,
        "num_heads": 2,
        "mlp_ratio": 2,
        "embedding_dim": 64,
        "positional_embedding": "learnable",
        **own,
        **changes,
    }
    model = constructor(7, shape, classifier_activation=None, **architecture)
    state = state_for(model, family, 7, shape[-1], **architecture)
    reference.assign(model, state)
    images = reference.random_images("images", (2, *shape))
    expected = forward(state, images, num_heads=architecture["num_heads"])
    assert_close(predict(model, images), expected)


def test_own_strides_and_pools_agree_with_the_reference():
    tokenizer = {"stride": 3, "padding": 0}
    pool = {"pooling_kernel_size": 2, "pooling_stride": 1, "pooling_padding": 1}
    architecture = {
        "num_layers": 1,
        "num_heads": 2,
        "mlp_ratio": 1,
        "embedding_dim": 32,
        "num_conv_layers": 2,
        "kernel_size": 3,
    }
    shape = (32, 41, 3)
    model = cct_keras.CCT(
        4, shape, classifier_activation=None, **architecture, **tokenizer, **pool
    )
    state = state_for(model, "CCT", 4, **architecture)
    reference.assign(model, state)
    images = reference.random_images("images", (2, *shape))
    expected = forward(
        state, images, num_heads=2, **tokenizer, pool=tuple(pool.values())
    )
    assert_close(predict(model, images), expected)
