"""Plain ViTs by timm's names, which the authors of DeiT, MAE and DINO use too."""

import logging
import math
import re

import numpy as np

from cct_keras.converter.name_table import NameTable
from cct_keras.errors import CheckpointError

logger = logging.getLogger("cct_keras")

# MAE's decoder, the projections of DINO, and a mask that only its training lays on.
UNNEEDED = (
    r"mask_token",
    r"decoder_(?:pos_embed|embed\..*|blocks\..*|norm\..*|pred\..*)",
    r"(?:head|dino_head|ibot_head)\.(?:mlp|last_layer)\..*",
)
BODY = "backbone."
# Where the authors' own names are others than timm's.
AUTHORS = (
    # DINOv2 with registers.
    (r"register_tokens", "reg_token"),
    # DINOv2 in training keeps its blocks in chunks, and counts through.
    (r"blocks\.\d+\.(\d+)\.(.+)", r"blocks.\1.\2"),
    # The gated layers of DINOv2's largest model.
    (r"(blocks\.\d+)\.mlp\.w12\.(\w+)", r"\1.mlp.fc1.\2"),
    (r"(blocks\.\d+)\.mlp\.w3\.(\w+)", r"\1.mlp.fc2.\2"),
    # DeiT III.
    (r"(blocks\.\d+)\.gamma_([12])", r"\1.ls\2.gamma"),
)

TABLE = NameTable(
    layers=(
        ("tokenizer/conv_0", "patch_embed.proj"),
        ("norm_pre", "norm_pre"),
        ("block_{i}/norm1", "blocks.{i}.norm1"),
        ("block_{i}/attention/qkv", "blocks.{i}.attn.qkv"),
        ("block_{i}/attention/proj", "blocks.{i}.attn.proj"),
        ("block_{i}/scale1", "blocks.{i}.ls1"),
        ("block_{i}/norm2", "blocks.{i}.norm2"),
        ("block_{i}/feed_forward/linear1", "blocks.{i}.mlp.fc1"),
        ("block_{i}/feed_forward/linear2", "blocks.{i}.mlp.fc2"),
        ("block_{i}/scale2", "blocks.{i}.ls2"),
        ("norm", "norm"),
        ("pool/query", "attn_pool.q"),
        ("pool/key_value", "attn_pool.kv"),
        ("pool/proj", "attn_pool.proj"),
        ("pool/norm", "attn_pool.norm"),
        ("pool/feed_forward/linear1", "attn_pool.mlp.fc1"),
        ("pool/feed_forward/linear2", "attn_pool.mlp.fc2"),
        ("fc_norm", "fc_norm"),
        ("pre_logits", "pre_logits.fc"),
        ("head", "head"),
        ("head_dist", "head_dist"),
        ("projection", "projection"),
    ),
    tensors={
        "position_embedding/embeddings": "pos_embed",
        "class_token/token": "cls_token",
        "distillation_token/token": "dist_token",
        "registers/tokens": "reg_token",
        "pool/probe": "attn_pool.latent",
    },
    block_order="pre_norm",
    tokenizer="patches",
    description="a vision transformer",
    has_bodies=True,
)


def is_timm(state: dict[str, np.ndarray]) -> bool:
    """Whether the names are timm's, those of a body in a larger model included."""
    name = "patch_embed.proj.weight"
    return name in state or BODY + name in state


def plain_names(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The names of a body by themselves, as timm has them."""
    renamed = {}
    for name, array in state.items():
        name = name.removeprefix(BODY)
        for pattern, replacement in AUTHORS:
            match = re.fullmatch(pattern, name)
            if match:
                name = match.expand(replacement)
        renamed[name] = array
    return _with_free_registers(_without_a_head_of_clip(renamed))


def check_has(renamed: dict[str, np.ndarray], *names: str) -> None:
    """Refuses a file without tensors that every file of its kind has.

    Without them it would pass for another model: one without positions, say.

    Args:
        renamed: The tensors by timm's names.
        *names: What must be there.
    """
    missing = [name for name in names if name not in renamed]
    if missing:
        raise CheckpointError(f"missing: {', '.join(missing)}")


def arguments(state: dict[str, np.ndarray]) -> dict[str, object]:
    """Constructor arguments that an origin implies."""
    names = {name.removeprefix(BODY) for name in state}
    found = {"position_interpolation": _interpolation(names, names != set(state))}
    if "norm_pre.weight" in names:
        found["epsilon"] = 1e-5
        logger.info(
            "the file does not tell its activation, which is taken for 'gelu'; the "
            "CLIP of OpenAI has activation='quick_gelu'"
        )
    if "attn_pool.latent" in names:
        found["activation"] = "gelu_tanh"
    return found


def _interpolation(names, is_part_of_dino):
    if "register_tokens" in names:
        return "bicubic_antialias"
    scales = "blocks.0.ls1.gamma" in names or "blocks.0.0.ls1.gamma" in names
    if is_part_of_dino or ("mask_token" in names and scales):
        return "bicubic_offset"
    of_the_authors = ("mask_token", "blocks.0.gamma_1", "decoder_pos_embed")
    return "bicubic_antialias" if names.isdisjoint(of_the_authors) else "bicubic"


def _without_a_head_of_clip(state):
    """timm keeps the projection of CLIP as a head, and its bias is zero."""
    bias, is_clip = state.get("head.bias"), "norm_pre.weight" in state
    if not is_clip or bias is None or "head.weight" not in state or np.any(bias):
        return state
    rest = {k: x for k, x in state.items() if k not in ("head.bias", "head.weight")}
    return {**rest, "projection.weight": state["head.weight"]}


def _with_free_registers(state):
    """Positions of registers, which some models of timm have, become part of these."""
    registers, positions = state.get("reg_token"), state.get("pos_embed")
    if registers is None or positions is None:
        return state
    if registers.ndim != 3 or positions.ndim != 3:
        return state
    own, count = registers.shape[1], positions.shape[1]
    # The class token stands first.
    rest = count - 1 - own
    grids = [math.isqrt(max(n, 0)) ** 2 == n for n in (count, count - 1, rest)]
    if grids != [False, False, True] or registers.shape[2] != positions.shape[2]:
        return state
    before, between, after = np.split(positions, [1, 1 + own], axis=1)
    with np.errstate(all="ignore"):
        registers = registers + between
    return {
        **state,
        "reg_token": registers,
        "pos_embed": np.concatenate([before, after], axis=1),
    }
