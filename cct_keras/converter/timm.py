"""ViT and DeiT checkpoints by timm's names, which the authors of DeiT use too."""

import numpy as np

from cct_keras.converter.shapes import check_strictly
from cct_keras.converter.shapes import count
from cct_keras.converter.shapes import find_grid
from cct_keras.converter.shapes import find_heads
from cct_keras.converter.shapes import find_mlp_ratio
from cct_keras.converter.shapes import shape_of
from cct_keras.converter.shapes import told_size
from cct_keras.converter.table import Architecture
from cct_keras.converter.table import Table
from cct_keras.converter.torch_file import CheckpointError
from cct_keras.layers.position_embedding import kind_of_table

TABLE = Table(
    names=(
        ("tokenizer/conv_0", "patch_embed.proj"),
        ("block_{i}/norm1", "blocks.{i}.norm1"),
        ("block_{i}/attention/qkv", "blocks.{i}.attn.qkv"),
        ("block_{i}/attention/proj", "blocks.{i}.attn.proj"),
        ("block_{i}/norm2", "blocks.{i}.norm2"),
        ("block_{i}/feed_forward/linear1", "blocks.{i}.mlp.fc1"),
        ("block_{i}/feed_forward/linear2", "blocks.{i}.mlp.fc2"),
        ("norm", "norm"),
        ("head", "head"),
        ("head_dist", "head_dist"),
    ),
    tensors={
        "position_embedding/embeddings": "pos_embed",
        "class_token/token": "cls_token",
        "distillation_token/token": "dist_token",
    },
    positions="pos_embed",
    first_kernel="patch_embed.proj.weight",
    heads=("head.weight", "head_dist.weight"),
    top=("head.", "head_dist."),
)


def infer(
    state: dict[str, np.ndarray], grid=None, *, epsilon: float = 1e-6, **told
) -> Architecture:
    """The architecture of a checkpoint, from names and shapes.

    Args:
        state: Weights by timm's names.
        grid: `(rows, columns)` of the positions, if not a square.
        epsilon: Of the normalisations, which no tensor tells.
        **told: Constructor arguments that the caller knows.

    Returns:
        An `Architecture` whose every tensor is in `state`, and no other.
    """
    layers = count(state, "blocks.{}.mlp.fc1.weight")
    if not layers:
        raise CheckpointError("there are no blocks in it")
    dim, channels, patch, _ = shape_of(state, "patch_embed.proj.weight", 4)
    hidden, _ = shape_of(state, "blocks.0.mlp.fc1.weight", 2)
    classes, _ = shape_of(state, "head.weight", 2)
    distilled, token = "dist_token" in state, "cls_token" in state
    arguments = {
        "num_classes": classes,
        "num_layers": layers,
        "num_heads": told.get("num_heads") or find_heads(dim),
        "mlp_ratio": find_mlp_ratio(hidden, dim),
        "embedding_dim": dim,
        "patch_size": patch,
        "positional_embedding": None,
        "epsilon": epsilon,
    }
    if distilled:
        arguments |= {
            "distilled": True,
            "distillation_head": "head_dist.weight" in state,
        }
    elif not token:
        arguments["top_pooling"] = "avg"
    if "pos_embed" in state:
        _, length, _ = shape_of(state, "pos_embed", 3)
        table = np.asarray(state["pos_embed"], "float32")
        arguments["positional_embedding"] = kind_of_table(table)
        grid = find_grid(length - token - distilled, grid)
        size = tuple(side * patch for side in grid)
    else:
        grid, size = None, told_size(**told) or (224, 224)
    arguments["input_shape"] = (*size, channels)
    family = "DeiT" if distilled else "ViT"
    expected = _expected_shapes(arguments, channels, hidden)
    check_strictly(state, family, expected, "pos_embed", dim)
    return Architecture(family, arguments, grid)


def _expected_shapes(arguments, channels, hidden):
    dim, classes = arguments["embedding_dim"], arguments["num_classes"]
    patch = arguments["patch_size"]
    distilled = arguments.get("distilled", False)
    shapes = {"patch_embed.proj": (dim, channels, patch, patch), "norm": (dim,)}
    shapes["head"] = (classes, dim)
    if distilled and arguments["distillation_head"]:
        shapes["head_dist"] = (classes, dim)
    for j in range(arguments["num_layers"]):
        shapes |= {
            f"blocks.{j}.norm1": (dim,),
            f"blocks.{j}.attn.qkv": (3 * dim, dim),
            f"blocks.{j}.attn.proj": (dim, dim),
            f"blocks.{j}.norm2": (dim,),
            f"blocks.{j}.mlp.fc1": (hidden, dim),
            f"blocks.{j}.mlp.fc2": (dim, hidden),
        }
    tensors = {f"{name}.weight": shape for name, shape in shapes.items()}
    tensors |= {f"{name}.bias": shape[:1] for name, shape in shapes.items()}
    if "top_pooling" not in arguments:
        tensors["cls_token"] = (1, 1, dim)
    if distilled:
        tensors["dist_token"] = (1, 1, dim)
    return tensors
