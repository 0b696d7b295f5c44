"""Small models that build and run at once."""

import keras
import numpy as np
import pytest

import cct_keras

SMALL = {"num_layers": 2, "num_heads": 2, "mlp_ratio": 1, "embedding_dim": 32}
FAMILIES = {
    "CCT": (cct_keras.CCT, {"kernel_size": 3, "num_conv_layers": 2}),
    "CVT": (cct_keras.CVT, {"patch_size": 4}),
    "ViTLite": (cct_keras.ViTLite, {"patch_size": 4}),
}
# Those of the Compact-Transformers code.
ORIGINAL = tuple(FAMILIES)
FAMILIES |= {
    "ViT": (cct_keras.ViT, {"patch_size": 4}),
    "DeiT": (cct_keras.DeiT, {"patch_size": 4, "distilled": True}),
}

CLIP = {"patch_bias": False, "norm_before_blocks": True, "activation": "quick_gelu"}
# Arguments of `ViT` that make the plain ViTs which came after it.
PLAIN_VITS = {
    "DINOv2": {"layer_scale": 1e-5, "num_registers": 3, "include_top": False},
    "DINOv2 with classes": {
        "layer_scale": 1e-5,
        "num_registers": 3,
        "top_pooling": "token_avg",
        "activation": "swiglu",
    },
    "DeiT III": {"layer_scale": 1e-5, "class_token_position": False},
    "MAE fine-tuned": {
        "class_token": True,
        "top_pooling": "avg",
        "final_norm": "pooled",
    },
    "mean of tokens, normalized": {"top_pooling": "avg", "final_norm": "pooled"},
    "CLIP": {
        **CLIP,
        "epsilon": 1e-5,
        "include_top": False,
        "pooling": "token",
        "projection_dim": 12,
    },
    "CLIP with classes": {
        **CLIP,
        "class_token": True,
        "top_pooling": "avg",
        "final_norm": None,
    },
    "SigLIP": {
        "top_pooling": "map",
        "activation": "gelu_tanh",
        "include_top": False,
        "pooling": "map",
    },
    "SigLIP with classes": {"top_pooling": "map", "representation_size": 7},
}


def first_of_all(values, *first):
    """Values of a parametrization; all but the first are left to integration."""
    later = pytest.mark.integration
    return [pytest.param(x, marks=() if x in first else later) for x in values]


def small_model(family, num_classes=5, input_shape=(16, 16, 3), **arguments):
    constructor, own = FAMILIES[family]
    return constructor(num_classes, input_shape, **{**SMALL, **own, **arguments})


def images(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def predict(model, x):
    """Outputs in inference mode; eager, as compiling costs more than it saves."""
    return keras.ops.convert_to_numpy(model(x, training=False))


def stripes(count, seed=0):
    """Two classes that a model tells apart at once: stripes across or down."""
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    wave = 127 * (np.arange(16) // 2 % 2)
    images = np.stack([np.tile(wave, (16, 1)), np.tile(wave[:, None], (1, 16))])
    noise = generator.integers(0, 100, (count, 16, 16))
    return (images[labels] + noise).astype("uint8"), labels
