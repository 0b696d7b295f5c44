"""Plain ViTs of Hugging Face `transformers`, in timm's names.

ViT, DeiT, MAE, DINOv2 with and without registers, and the image towers of CLIP and
SigLIP; bare, or inside a larger model; as version 4 names them, and version 5.
"""

import re
from collections.abc import Mapping

import numpy as np

from cct_keras.converter.timm import check_has
from cct_keras.errors import CheckpointError

# What a larger model calls the body.
BODY = r"(?:(?:vit|deit|dinov2|dinov2_with_registers|vision_model)\.)?"
LAYER = r"(?:encoder\.)?layers?\.(\d+)\."
NAMES = (
    (r"embeddings\.(?:cls_token|class_embedding)", "cls_token"),
    (r"embeddings\.distillation_token", "dist_token"),
    (r"embeddings\.register_tokens", "reg_token"),
    (r"embeddings\.position_embeddings", "pos_embed"),
    (r"embeddings\.position_embedding\.weight", "pos_embed"),
    (r"embeddings\.patch_embeddings\.projection\.(\w+)", r"patch_embed.proj.\1"),
    (r"embeddings\.patch_embedding\.(\w+)", r"patch_embed.proj.\1"),
    # The misspelling is theirs.
    (r"pre_layrnorm\.(\w+)", r"norm_pre.\1"),
    (LAYER + r"(?:layernorm_before|norm1|layer_norm1)\.(\w+)", r"blocks.\1.norm1.\2"),
    (LAYER + r"(?:layernorm_after|norm2|layer_norm2)\.(\w+)", r"blocks.\1.norm2.\2"),
    (
        LAYER + r"attention\.attention\.(query|key|value)\.(\w+)",
        r"blocks.\1.\2.\3",
    ),
    (LAYER + r"(?:attention|self_attn)\.([qkv])_proj\.(\w+)", r"blocks.\1.\2.\3"),
    (
        LAYER + r"(?:attention\.output\.dense|attention\.o_proj|self_attn\.out_proj)"
        r"\.(\w+)",
        r"blocks.\1.attn.proj.\2",
    ),
    (LAYER + r"layer_scale([12])\.lambda1", r"blocks.\1.ls\2.gamma"),
    (LAYER + r"(?:intermediate\.dense|mlp\.fc1)\.(\w+)", r"blocks.\1.mlp.fc1.\2"),
    (LAYER + r"(?:output\.dense|mlp\.fc2)\.(\w+)", r"blocks.\1.mlp.fc2.\2"),
    (LAYER + r"mlp\.weights_in\.(\w+)", r"blocks.\1.mlp.fc1.\2"),
    (LAYER + r"mlp\.(gate|up)_proj\.(\w+)", r"blocks.\1.\2.\3"),
    (LAYER + r"mlp\.(?:weights_out|down_proj)\.(\w+)", r"blocks.\1.mlp.fc2.\2"),
    (r"(?:layernorm|post_layernorm)\.(\w+)", r"norm.\1"),
    (r"head\.probe", "attn_pool.latent"),
    (r"head\.attention\.in_proj_(weight|bias)", r"attn_pool.qkv.\1"),
    (r"head\.attention\.out_proj\.(\w+)", r"attn_pool.proj.\1"),
    (r"head\.layernorm\.(\w+)", r"attn_pool.norm.\1"),
    (r"head\.mlp\.(fc[12])\.(\w+)", r"attn_pool.mlp.\1.\2"),
)
HEADS = (
    (r"(?:cls_)?classifier\.(\w+)", r"head.\1"),
    (r"distillation_classifier\.(\w+)", r"head_dist.\1"),
    (r"visual_projection\.weight", "projection.weight"),
)
# Masked images, MAE's decoder, a pooler that no classifier reads, a count of positions,
# and CLIP's and SigLIP's tower for texts.
UNNEEDED = (
    BODY + r"embeddings\.(?:mask_token|position_ids)",
    BODY + r"pooler\..*",
    r"decoder\..*",
    r"text_model\..*",
    r"text_projection\..*",
    r"logit_scale|logit_bias",
)
# The pooling of SigLIP and the last normalization of CLIP, which a classifier of
# `transformers` does not read.
UNREAD_BY_SIGLIP, UNREAD_BY_CLIP = r"attn_pool\..*", r"norm\.(?:weight|bias)"
# Parts that timm keeps as one tensor, in the order in which they stand there.
PARTS = (
    (re.compile(r"(blocks\.\d+)\.([qkv])(?:uery|ey|alue)?\.(\w+)"), "attn.qkv", "qkv"),
    (re.compile(r"(blocks\.\d+)\.(gate|up)\.(\w+)"), "mlp.fc1", ("gate", "up")),
)


def is_hugging_face(state: Mapping[str, np.ndarray]) -> bool:
    """Whether the names are those of `transformers`, with or without a head."""
    return any(re.match(BODY + r"embeddings\.", name) for name in state)


def arguments(state: Mapping[str, np.ndarray]) -> dict[str, object]:
    """Constructor arguments that the kind of model implies, by its own names."""
    names = {re.sub(f"^{BODY}", "", name) for name in state}
    classifies = "classifier.weight" in names
    if "pre_layrnorm.weight" in names:
        # A classifier made of CLIP reads the mean of tokens that are not normalized.
        read = {"top_pooling": "avg", "final_norm": None} if classifies else {}
        found = {"epsilon": 1e-5, "activation": "quick_gelu", **read}
    elif _is_siglip(state):
        read = {"top_pooling": "avg"} if classifies else {}
        found = {"epsilon": 1e-6, "activation": "gelu_tanh", **read}
    elif any(name.endswith("layer_scale1.lambda1") for name in names):
        found = {"epsilon": 1e-6}
    else:
        # The authors of ViT and DeiT have 1e-6.
        found = {"epsilon": 1e-12}
    registers = "embeddings.register_tokens" in names
    resized = "bicubic_antialias" if registers else "bicubic"
    return {**found, "position_interpolation": resized}


def unneeded(state: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Patterns of names that no model of this kind needs."""
    if "classifier.weight" not in state:
        return UNNEEDED
    if any(name.endswith("pre_layrnorm.weight") for name in state):
        return (*UNNEEDED, UNREAD_BY_CLIP)
    return (*UNNEEDED, UNREAD_BY_SIGLIP)


def timm_names(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same tensors by timm's names; query, key and value become one."""
    renamed, parts = {}, {}
    for name, array in state.items():
        new = _renamed(name)
        for pattern, whole, order in PARTS:
            part = pattern.fullmatch(new)
            if part:
                place = f"{part[1]}.{whole}.{part[3]}"
                parts.setdefault((place, order), {})[part[2]] = array
                break
        else:
            if new in renamed:
                raise CheckpointError(f"two of its names stand for {new}")
            renamed[new] = _in_timms_layout(new, array)
    for (place, order), found in parts.items():
        missing = [part for part in order if part not in found]
        if missing:
            raise CheckpointError(f"missing: {', '.join(missing)} of {place}")
        if place in renamed:
            raise CheckpointError(f"two of its names stand for {place}")
        renamed[place] = _joined([found[part] for part in order], place)
    check_has(renamed, "pos_embed")
    if not _is_siglip(state):
        check_has(renamed, "cls_token")
    return _with_divided_pool(renamed)


def _is_siglip(state):
    """Whether there is a convolution with a bias by the names that CLIP has, too."""
    pattern = BODY + r"embeddings\.patch_embedding\.bias"
    return any(re.fullmatch(pattern, name) for name in state)


def _joined(arrays, place):
    arrays = [np.asarray(array) for array in arrays]
    are_alike = len({array.shape[1:] for array in arrays}) == 1
    if not are_alike or not all(array.ndim for array in arrays):
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise CheckpointError(f"{place} is made of {shapes}")
    return np.concatenate(arrays)


def _with_divided_pool(state):
    """timm keeps the query of the pooling apart from key and value."""
    for leaf in ("weight", "bias"):
        whole = state.pop(f"attn_pool.qkv.{leaf}", None)
        if whole is not None:
            if not whole.ndim or len(whole) % 3:
                raise CheckpointError(
                    f"head.attention.in_proj_{leaf} has the impossible shape "
                    f"{whole.shape}"
                )
            third = len(whole) // 3
            state[f"attn_pool.q.{leaf}"] = whole[:third]
            state[f"attn_pool.kv.{leaf}"] = whole[third:]
    return state


def _in_timms_layout(name, array):
    if name == "cls_token" and array.ndim == 1:
        return array[None, None]
    return array[None] if name == "pos_embed" and array.ndim == 2 else array


def _renamed(name):
    for pattern, replacement in NAMES:
        match = re.fullmatch(BODY + pattern, name)
        if match:
            return match.expand(replacement)
    for pattern, replacement in HEADS:
        match = re.fullmatch(pattern, name)
        if match:
            return match.expand(replacement)
    return name
