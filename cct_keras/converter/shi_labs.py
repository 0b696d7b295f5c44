"""The official Compact-Transformers checkpoints: names, shapes, architecture."""

import itertools
import math
import re
from typing import NamedTuple

import numpy as np

from cct_keras.converter.torch_file import CheckpointError
from cct_keras.layers.position_embedding import kind_of_table
from cct_keras.layers.position_embedding import square_grid
from cct_keras.models.transfer import list_problems
from cct_keras.models.variants import SIZES
from cct_keras.models.variants import VARIANTS
from cct_keras.models.variants import constructor_arguments

# Layer of this package, `{i}` a number -> prefix in the checkpoint.
NAMES = (
    ("tokenizer/conv_{i}", "tokenizer.conv_layers.{i}.0"),
    ("block_{i}/norm1", "classifier.blocks.{i}.pre_norm"),
    ("block_{i}/attention/qkv", "classifier.blocks.{i}.self_attn.qkv"),
    ("block_{i}/attention/proj", "classifier.blocks.{i}.self_attn.proj"),
    ("block_{i}/norm2", "classifier.blocks.{i}.norm1"),
    ("block_{i}/feed_forward/linear1", "classifier.blocks.{i}.linear1"),
    ("block_{i}/feed_forward/linear2", "classifier.blocks.{i}.linear2"),
    ("norm", "classifier.norm"),
    ("pool/attention", "classifier.attention_pool"),
    ("head", "classifier.fc"),
)
HEAD = "classifier.fc.weight"
POSITIONS, CLASS_TOKEN = "classifier.positional_emb", "classifier.class_emb"
TENSORS = {
    "position_embedding/embeddings": POSITIONS,
    "class_token/token": CLASS_TOKEN,
}
# Parts that a model without top, or with another head, does without.
TOP = ("classifier.attention_pool", "classifier.fc")

# The Hugging Face mirror renames the keys.
MIRROR = (
    (r"^cct\.embedder\.embedding_layers\.(\d+)\.", None),
    (r"^classifier\.(weight|bias)$", r"classifier.fc.\1"),
    (r"^cct\.encoder\.", "classifier."),
)
# Image sizes of the published models, for files without positions.
IMAGE_SIZES = {
    ("CCT", 3): (32, 32),
    ("CCT", 7): (224, 224),
    ("CVT", 4): (32, 32),
    ("ViTLite", 4): (32, 32),
}


class Architecture(NamedTuple):
    """What the tensors tell of a model.

    Attributes:
        family: `"CCT"`, `"CVT"` or `"ViTLite"`.
        arguments: Arguments of its constructor.
        grid: `(rows, columns)` of its positions; `None` without positions.
    """

    family: str
    arguments: dict
    grid: tuple | None


def original_names(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The names of the original, from those of wrappers and mirrors."""
    if all(name.startswith("module.") for name in state):
        state = {name.removeprefix("module."): state[name] for name in state}
    if any(name.startswith("cct.embedder.") for name in state):
        renamed = {_mirrored_name(name): array for name, array in state.items()}
        if len(renamed) != len(state):
            raise CheckpointError("two of its names stand for the same tensor")
        state = renamed
    return state


def _mirrored_name(name):
    for pattern, replacement in MIRROR:
        match = re.search(pattern, name)
        if match and replacement is None:
            stage, rest = divmod(int(match[1]), 3)
            if rest:
                raise CheckpointError(f"left over: {name}")
            return f"tokenizer.conv_layers.{stage}.0.{name[match.end() :]}"
        if match:
            return re.sub(pattern, replacement, name)
    return name


def infer(state: dict[str, np.ndarray], grid=None, **told) -> Architecture:
    """The architecture of a checkpoint, from names and shapes.

    Args:
        state: Weights by original name.
        grid: `(rows, columns)` of the positions, if not a square.
        **told: Constructor arguments that the caller knows.

    Returns:
        An `Architecture` whose every tensor is in `state`, and no other.
    """
    stages = _count(state, "tokenizer.conv_layers.{}.0.weight")
    layers = _count(state, "classifier.blocks.{}.linear1.weight")
    if not stages or not layers or "classifier.norm.weight" not in state:
        raise CheckpointError(
            "these are not the weights of a compact transformer; it begins with: "
            + ", ".join(sorted(state)[:4])
        )
    patches = "tokenizer.conv_layers.0.0.bias" in state
    token = CLASS_TOKEN in state
    family = "ViTLite" if token else "CVT" if patches else "CCT"
    kernel = _shape(state, "tokenizer.conv_layers.0.0.weight", 4)
    hidden, dim = _shape(state, "classifier.blocks.0.linear1.weight", 2)
    classes, _ = _shape(state, HEAD, 2)
    arguments = {
        "num_classes": classes,
        "num_layers": layers,
        "num_heads": told.get("num_heads") or _heads(dim),
        "mlp_ratio": _mlp_ratio(hidden, dim),
        "embedding_dim": dim,
        "positional_embedding": None,
    }
    if family == "CCT":
        arguments |= {"kernel_size": kernel[-1], "num_conv_layers": stages}
    else:
        arguments["patch_size"] = kernel[-1]

    if POSITIONS in state:
        _, length, _ = _shape(state, POSITIONS, 3)
        arguments["positional_embedding"] = kind_of_positions(state)
        grid = _grid(length - token, grid)
        stride = total_stride(family, kernel[-1], stages, told.get("stride"))
        size = tuple(side * stride for side in grid)
    else:
        grid = None
        size = _told_size(**told) or IMAGE_SIZES.get((family, kernel[-1]))
        if size is None:
            raise CheckpointError(
                "the file has no positions that tell the image size: pass "
                "input_shape=(height, width, channels) (--input-shape)"
            )
    arguments["input_shape"] = (*size, kernel[1])
    _check_strictly(state, family, kernel[1], arguments, hidden)
    return Architecture(family, arguments, grid)


def kind_of_positions(state: dict[str, np.ndarray]) -> str | None:
    """`"sine"`, `"learnable"`, or `None` where a checkpoint has none."""
    if POSITIONS not in state:
        return None
    _shape(state, POSITIONS, 3)
    return kind_of_table(np.asarray(state[POSITIONS], "float32"))


def variant_of(architecture: Architecture) -> str | None:
    """The name of an architecture, if it has one."""
    for name, row in VARIANTS.items():
        if row.family == architecture.family and all(
            architecture.arguments[key] == value
            for key, value in constructor_arguments(row).items()
        ):
            return name
    return None


def expected_shapes(
    family: str, arguments: dict, channels: int, hidden: int
) -> dict[str, tuple]:
    """Names and shapes of a checkpoint of this architecture, positions aside."""
    dim, layers = arguments["embedding_dim"], arguments["num_layers"]
    stages = arguments.get("num_conv_layers", 1)
    kernel = arguments.get("kernel_size") or arguments["patch_size"]
    widths = [channels, *[64] * (stages - 1), dim]
    shapes = {}
    for i, (given, filters) in enumerate(itertools.pairwise(widths)):
        name = f"tokenizer.conv_layers.{i}.0.weight"
        shapes[name] = (filters, given, kernel, kernel)
    if family != "CCT":
        shapes["tokenizer.conv_layers.0.0.bias"] = (dim,)
    if family == "ViTLite":
        shapes[CLASS_TOKEN] = (1, 1, dim)
    linears = {"norm": (dim,), "fc": (arguments["num_classes"], dim)}
    if family != "ViTLite":
        linears["attention_pool"] = (1, dim)
    for j in range(layers):
        linears |= {
            f"blocks.{j}.pre_norm": (dim,),
            f"blocks.{j}.self_attn.proj": (dim, dim),
            f"blocks.{j}.linear1": (hidden, dim),
            f"blocks.{j}.norm1": (dim,),
            f"blocks.{j}.linear2": (dim, hidden),
        }
        shapes[f"classifier.blocks.{j}.self_attn.qkv.weight"] = (3 * dim, dim)
    for name, shape in linears.items():
        shapes[f"classifier.{name}.weight"] = shape
        shapes[f"classifier.{name}.bias"] = shape[:1]
    return shapes


def _check_strictly(state, family, channels, arguments, hidden):
    """Every tensor of the file is one of the architecture's, and the reverse."""
    expected = expected_shapes(family, arguments, channels, hidden)
    if POSITIONS in state:
        dim = arguments["embedding_dim"]
        expected[POSITIONS] = (1, state[POSITIONS].shape[1], dim)
    problems = list_problems(
        [name for name in expected if name not in state],
        [name for name in state if name not in expected],
        [
            f"{name} {tuple(state[name].shape)} for {shape}"
            for name, shape in expected.items()
            if name in state and tuple(state[name].shape) != shape
        ],
    )
    if problems:
        raise CheckpointError(f"the tensors are not those of a {family}: {problems}")


def _shape(state, name, rank):
    if name not in state:
        raise CheckpointError(f"missing: {name}")
    shape = tuple(state[name].shape)
    if len(shape) != rank or 0 in shape:
        raise CheckpointError(f"{name} has the impossible shape {shape}")
    return shape


def _count(state, pattern):
    number = 0
    while pattern.format(number) in state:
        number += 1
    return number


def _told_size(input_shape=None, data_format=None, **others):
    if input_shape is None or len(input_shape) != 3 or None in input_shape:
        return None
    first = data_format == "channels_first"
    return tuple(input_shape[1:] if first else input_shape[:2])


def _heads(dim):
    for size in SIZES.values():
        if size.embedding_dim == dim:
            return size.num_heads
    raise CheckpointError(
        f"the file does not tell the heads of embedding_dim={dim}: pass num_heads=... "
        "(--num-heads)"
    )


def _mlp_ratio(hidden, dim):
    if hidden % dim == 0:
        return hidden // dim
    ratio = hidden / dim
    # The constructor rounds the product down, which may fall one short.
    return ratio if int(dim * ratio) == hidden else math.nextafter(ratio, math.inf)


def _grid(length, grid):
    if grid is not None:
        is_pair = isinstance(grid, (tuple, list)) and len(grid) == 2
        if not is_pair or math.prod(grid) != length:
            raise CheckpointError(
                f"`grid` must be (rows, columns) of {length} positions. "
                f"Received: grid={grid!r}"
            )
        return tuple(grid)
    grid = square_grid(length)
    if grid is None:
        raise CheckpointError(
            f"the file has {length} positions, not a square: pass "
            "grid=(rows, columns) (--grid)"
        )
    return grid


def total_stride(family: str, kernel: int, stages: int, stride: int | None = None):
    """Pixels from a token to the next."""
    if family != "CCT":
        return kernel
    return (2 * (stride or max(1, kernel // 2 - 1))) ** stages
