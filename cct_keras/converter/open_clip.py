"""Image towers of CLIP and SigLIP by the names of OpenAI and open_clip, in timm's."""

import re

import numpy as np

from cct_keras.converter.timm import check_has
from cct_keras.converter.timm import plain_names
from cct_keras.errors import CheckpointError

# The tower that reads texts, and what compares the two.
UNNEEDED = (
    r"text\..*",
    r"transformer\..*",
    r"token_embedding\..*",
    r"ln_final\..*",
    r"positional_embedding",
    r"text_projection(?:\..*)?",
    r"logit_scale|logit_bias",
    r"input_resolution|context_length|vocab_size",
)
TOWER, TRUNK = "visual.", "visual.trunk."
NAMES = (
    (r"class_embedding", "cls_token"),
    (r"positional_embedding", "pos_embed"),
    (r"conv1\.(\w+)", r"patch_embed.proj.\1"),
    (r"ln_pre\.(\w+)", r"norm_pre.\1"),
    (r"ln_post\.(\w+)", r"norm.\1"),
    (r"transformer\.resblocks\.(\d+)\.ln_([12])\.(\w+)", r"blocks.\1.norm\2.\3"),
    (
        r"transformer\.resblocks\.(\d+)\.attn\.in_proj_(weight|bias)",
        r"blocks.\1.attn.qkv.\2",
    ),
    (
        r"transformer\.resblocks\.(\d+)\.attn\.out_proj\.(\w+)",
        r"blocks.\1.attn.proj.\2",
    ),
    (r"transformer\.resblocks\.(\d+)\.mlp\.c_fc\.(\w+)", r"blocks.\1.mlp.fc1.\2"),
    (r"transformer\.resblocks\.(\d+)\.mlp\.c_proj\.(\w+)", r"blocks.\1.mlp.fc2.\2"),
    (r"proj", "projection.weight"),
)


def is_open_clip(state: dict[str, np.ndarray]) -> bool:
    """Whether there is an image tower by these names."""
    first = (f"{TOWER}conv1.weight", f"{TRUNK}patch_embed.proj.weight")
    return not state.keys().isdisjoint(first)


def timm_names(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same tensors by timm's names; those of texts keep theirs."""
    if f"{TRUNK}patch_embed.proj.weight" in state:
        head = {"visual.head.proj.weight": "projection.weight"}
        return plain_names(
            {head.get(k, k.removeprefix(TRUNK)): x for k, x in state.items()}
        )
    renamed = {}
    for name, array in state.items():
        own = name.removeprefix(TOWER)
        new = _renamed(own) if own != name else name
        if new in renamed:
            raise CheckpointError(f"two of its names stand for {new}")
        renamed[new] = _in_timms_layout(new, array) if own != name else array
    check_has(renamed, "pos_embed", "cls_token")
    return renamed


def arguments(state: dict[str, np.ndarray]) -> dict[str, object]:
    """Constructor arguments that the origin implies."""
    if f"{TRUNK}patch_embed.proj.weight" in state:
        found = {"position_interpolation": "bicubic_antialias"}
        if f"{TRUNK}attn_pool.latent" in state:
            found["activation"] = "gelu_tanh"
        return found
    return {
        "epsilon": 1e-5,
        "activation": "quick_gelu",
        "position_interpolation": "bicubic_antialias",
    }


def _renamed(name):
    for pattern, replacement in NAMES:
        match = re.fullmatch(pattern, name)
        if match:
            return match.expand(replacement)
    return TOWER + name


def _in_timms_layout(name, array):
    if name == "cls_token" and array.ndim == 1:
        return array[None, None]
    if name == "pos_embed" and array.ndim == 2:
        return array[None]
    return array.T if name == "projection.weight" else array
