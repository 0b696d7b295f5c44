"""The official Compact-Transformers checkpoints: names, shapes, architecture."""

import itertools
import re

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

HEAD = "classifier.fc.weight"
POSITIONS, CLASS_TOKEN = "classifier.positional_emb", "classifier.class_emb"
TABLE = Table(
    names=(
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
    ),
    tensors={
        "position_embedding/embeddings": POSITIONS,
        "class_token/token": CLASS_TOKEN,
    },
    positions=POSITIONS,
    first_kernel="tokenizer.conv_layers.0.0.weight",
    heads=(HEAD,),
    top=("classifier.attention_pool", "classifier.fc"),
)

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


def original_names(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The names of the original, from those of the mirror."""
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
    stages = count(state, "tokenizer.conv_layers.{}.0.weight")
    layers = count(state, "classifier.blocks.{}.linear1.weight")
    if not stages or not layers or "classifier.norm.weight" not in state:
        raise CheckpointError(
            "these are not the weights of a compact transformer; it begins with: "
            + ", ".join(sorted(state)[:4])
        )
    patches = "tokenizer.conv_layers.0.0.bias" in state
    token = CLASS_TOKEN in state
    family = "ViTLite" if token else "CVT" if patches else "CCT"
    kernel = shape_of(state, "tokenizer.conv_layers.0.0.weight", 4)
    hidden, dim = shape_of(state, "classifier.blocks.0.linear1.weight", 2)
    classes, _ = shape_of(state, HEAD, 2)
    arguments = {
        "num_classes": classes,
        "num_layers": layers,
        "num_heads": told.get("num_heads") or find_heads(dim),
        "mlp_ratio": find_mlp_ratio(hidden, dim),
        "embedding_dim": dim,
        "positional_embedding": None,
    }
    if family == "CCT":
        arguments |= {"kernel_size": kernel[-1], "num_conv_layers": stages}
    else:
        arguments["patch_size"] = kernel[-1]

    if POSITIONS in state:
        _, length, _ = shape_of(state, POSITIONS, 3)
        arguments["positional_embedding"] = kind_of_positions(state)
        grid = find_grid(length - token, grid)
        stride = total_stride(family, kernel[-1], stages, told.get("stride"))
        size = tuple(side * stride for side in grid)
    else:
        grid = None
        size = told_size(**told) or IMAGE_SIZES.get((family, kernel[-1]))
        if size is None:
            raise CheckpointError(
                "the file has no positions that tell the image size: pass "
                "input_shape=(height, width, channels) (--input-shape)"
            )
    arguments["input_shape"] = (*size, kernel[1])
    expected = expected_shapes(family, arguments, kernel[1], hidden)
    check_strictly(state, family, expected, POSITIONS, dim)
    return Architecture(family, arguments, grid)


def kind_of_positions(state: dict[str, np.ndarray]) -> str | None:
    """`"sine"`, `"learnable"`, or `None` where a checkpoint has none."""
    if POSITIONS not in state:
        return None
    shape_of(state, POSITIONS, 3)
    return kind_of_table(np.asarray(state[POSITIONS], "float32"))


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


def total_stride(family: str, kernel: int, stages: int, stride: int | None = None):
    """Pixels from a token to the next."""
    if family != "CCT":
        return kernel
    return (2 * (stride or max(1, kernel // 2 - 1))) ** stages
