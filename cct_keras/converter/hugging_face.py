"""ViT, DeiT and MAE of Hugging Face `transformers`, in timm's names."""

import re

import numpy as np

from cct_keras.errors import CheckpointError

# Of the layer normalizations; the authors of ViT and DeiT have 1e-6.
EPSILON = 1e-12
# As files on the hub are named, and as version 5 names the same tensors.
NAMES = (
    (r"embeddings\.cls_token", "cls_token"),
    (r"embeddings\.distillation_token", "dist_token"),
    (r"embeddings\.position_embeddings", "pos_embed"),
    (r"embeddings\.patch_embeddings\.projection\.(\w+)", r"patch_embed.proj.\1"),
    (
        r"(?:encoder\.layer|layers)\.(\d+)\.layernorm_before\.(\w+)",
        r"blocks.\1.norm1.\2",
    ),
    (
        r"(?:encoder\.layer|layers)\.(\d+)\.layernorm_after\.(\w+)",
        r"blocks.\1.norm2.\2",
    ),
    (
        r"encoder\.layer\.(\d+)\.attention\.attention\.(query|key|value)\.(\w+)",
        r"blocks.\1.\2.\3",
    ),
    (r"layers\.(\d+)\.attention\.([qkv])_proj\.(\w+)", r"blocks.\1.\2.\3"),
    (
        r"encoder\.layer\.(\d+)\.attention\.output\.dense\.(\w+)",
        r"blocks.\1.attn.proj.\2",
    ),
    (r"layers\.(\d+)\.attention\.o_proj\.(\w+)", r"blocks.\1.attn.proj.\2"),
    (r"encoder\.layer\.(\d+)\.intermediate\.dense\.(\w+)", r"blocks.\1.mlp.fc1.\2"),
    (r"encoder\.layer\.(\d+)\.output\.dense\.(\w+)", r"blocks.\1.mlp.fc2.\2"),
    (r"layers\.(\d+)\.mlp\.(fc[12])\.(\w+)", r"blocks.\1.mlp.\2.\3"),
    (r"layernorm\.(\w+)", r"norm.\1"),
)
HEADS = (
    (r"(?:cls_)?classifier\.(\w+)", r"head.\1"),
    (r"distillation_classifier\.(\w+)", r"head_dist.\1"),
)
# Masked images, MAE's decoder, and a pooler that no classifier reads.
UNNEEDED = (
    r"(?:(?:vit|deit)\.)?embeddings\.mask_token",
    r"(?:(?:vit|deit)\.)?pooler\..*",
    r"decoder\..*",
)
PART = re.compile(r"(blocks\.\d+)\.(q|k|v|query|key|value)\.(weight|bias)")


def is_hugging_face(state: dict[str, np.ndarray]) -> bool:
    """Whether the names are those of `transformers`, with or without a head."""
    return any(re.match(r"(?:(?:vit|deit)\.)?embeddings\.", name) for name in state)


def timm_names(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same tensors by timm's names; query, key and value become one."""
    renamed, parts = {}, {}
    for name, array in state.items():
        new = _renamed(name)
        part = PART.fullmatch(new)
        if part:
            place = f"{part[1]}.attn.qkv.{part[3]}"
            parts.setdefault(place, {})[part[2][0]] = array
        elif new in renamed:
            raise CheckpointError(f"two of its names stand for {new}")
        else:
            renamed[new] = array
    for place, found in parts.items():
        missing = [letter for letter in "qkv" if letter not in found]
        if missing:
            raise CheckpointError(f"missing: {', '.join(missing)} of {place}")
        arrays = [np.asarray(found[letter]) for letter in "qkv"]
        if len({array.shape[1:] for array in arrays}) > 1 or not arrays[0].ndim:
            shapes = ", ".join(str(array.shape) for array in arrays)
            raise CheckpointError(f"{place} is made of {shapes}")
        renamed[place] = np.concatenate(arrays)
    return renamed


def _renamed(name):
    for pattern, replacement in NAMES:
        match = re.fullmatch(rf"(?:(?:vit|deit)\.)?{pattern}", name)
        if match:
            return match.expand(replacement)
    for pattern, replacement in HEADS:
        match = re.fullmatch(pattern, name)
        if match:
            return match.expand(replacement)
    return name
