"""ViT and DeiT by timm's names, which the authors of DeiT use too."""

import numpy as np

from cct_keras.converter.name_table import NameTable

# MAE's decoder, and the projections of DINO.
UNNEEDED = (
    r"mask_token",
    r"decoder_(?:pos_embed|embed\..*|blocks\..*|norm\..*|pred\..*)",
    r"head\.(?:mlp|last_layer)\..*",
)
BODY = "backbone."

TABLE = NameTable(
    layers=(
        ("tokenizer/conv_0", "patch_embed.proj"),
        ("block_{i}/norm1", "blocks.{i}.norm1"),
        ("block_{i}/attention/qkv", "blocks.{i}.attn.qkv"),
        ("block_{i}/attention/proj", "blocks.{i}.attn.proj"),
        ("block_{i}/norm2", "blocks.{i}.norm2"),
        ("block_{i}/feed_forward/linear1", "blocks.{i}.mlp.fc1"),
        ("block_{i}/feed_forward/linear2", "blocks.{i}.mlp.fc2"),
        ("norm", "norm"),
        ("pre_logits", "pre_logits.fc"),
        ("head", "head"),
        ("head_dist", "head_dist"),
    ),
    tensors={
        "position_embedding/embeddings": "pos_embed",
        "class_token/token": "cls_token",
        "distillation_token/token": "dist_token",
    },
    block_order="pre_norm",
    description="a vision transformer",
)


def is_timm(state: dict[str, np.ndarray]) -> bool:
    """Whether the names are timm's, those of a body in a larger model included."""
    name = "patch_embed.proj.weight"
    return name in state or BODY + name in state


def body_names(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The names of a body by themselves, as DINO's student and teacher hold one."""
    return {name.removeprefix(BODY): array for name, array in state.items()}
