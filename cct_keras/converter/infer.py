"""The architecture of a checkpoint, from the names and shapes of its tensors."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from cct_keras.converter.formats import Checkpoint
from cct_keras.errors import CheckpointError
from cct_keras.layers.position_embedding import kind_of_table
from cct_keras.layers.position_embedding import square_grid
from cct_keras.models.architecture import Architecture
from cct_keras.models.architecture import recognize_family
from cct_keras.models.families import known_prefix_tokens
from cct_keras.models.families import order_prefix_tokens
from cct_keras.models.inspection import find_mlp_ratio
from cct_keras.models.transfer import POSITIONS
from cct_keras.models.transfer import list_problems
from cct_keras.models.variants import SIZES
from cct_keras.models.variants import VARIANTS

# A checkpoint tells that branches are scaled, not how the factors began.
LAYER_SCALE = 1e-5
# Tokens with a position, of a class and of a teacher.
MOST_PREFIX_TOKENS = 2
# Sides of images have not so many pixels.
LARGEST_SIDE = 2**20
# Arguments that change no shape, so that only the caller or a record can tell them.
INVISIBLE = (
    "num_heads",
    "epsilon",
    "position_interpolation",
    "stride",
    "padding",
    "pooling_kernel_size",
    "pooling_stride",
    "pooling_padding",
)


def infer(
    checkpoint: Checkpoint, grid: tuple | None = None, known: Mapping | None = None
) -> Architecture:
    """The architecture whose every weight is in the checkpoint, and no other.

    What the file does not tell stays open: `num_heads` or the image size may be `None`,
    see `check_complete`.

    Args:
        checkpoint: The checkpoint.
        grid: `(rows, columns)` of its positions, if these are not a square.
        known: Constructor arguments that the caller knows: what no shape tells, and
            the `input_shape` of files without positions.
    """
    tensors, table = checkpoint.tensors, checkpoint.table
    known = {k: v for k, v in (known or {}).items() if v is not None}
    record = checkpoint.record
    if record is not None:
        asked, activation = known.get("activation"), record.activation
        if asked not in (None, activation):
            raise CheckpointError(
                f"the file records activation={activation!r}; with {asked!r} its "
                "weights would compute something else"
            )
        known = {**record.arguments, **known}
        grid = grid or record.grid
    grid = grid or _told_grid(checkpoint)

    def has(path):
        return table.name_of(path) in tensors

    stages = _count(has, "tokenizer/conv_{}/kernel")
    layers = _count(has, "block_{}/feed_forward/linear1/kernel")
    if not stages or not layers or not has("block_0/norm1/gamma"):
        raise CheckpointError(
            f"these are not the weights of {table.description}; some names are: "
            + ", ".join(_some_names(tensors))
        )
    prefix = order_prefix_tokens(
        {name for name in known_prefix_tokens() if has(f"{name}/token")}
    )
    try:
        family, arguments = recognize_family(
            tokenizer=table.tokenizer
            or ("patches" if has("tokenizer/conv_0/bias") else "convolutions"),
            block_order=table.block_order,
            prefix_tokens=prefix,
        )
    except ValueError as error:
        raise CheckpointError(str(error)) from error

    def shape_of(path, rank):
        return _shape_of(tensors, table.name_of(path), rank)

    _, channels, kernel, _ = shape_of("tokenizer/conv_0/kernel", 4)
    dim, hidden = shape_of("block_0/feed_forward/linear2/kernel", 2)
    # A body alone has no head.
    has_head = has("head/kernel") or has("head/bias")
    classes = shape_of("head/kernel", 2)[0] if has_head else 0
    arguments |= {
        "num_classes": classes,
        "num_layers": layers,
        "num_heads": known.get("num_heads")
        or checkpoint.arguments.get("num_heads")
        or published_heads(dim),
        "mlp_ratio": find_mlp_ratio(hidden, dim),
        "embedding_dim": dim,
        "positional_embedding": None,
    }
    draft = Architecture(family, arguments)
    if draft.row.tokenizer == "patches":
        arguments["patch_size"] = kernel
    else:
        arguments |= {"kernel_size": kernel, "num_conv_layers": stages}
    told = {**draft.row.defaults, **checkpoint.arguments}
    for name in INVISIBLE:
        if name in draft.row.defaults:
            arguments[name] = known.get(name, told[name])
    if "distillation_token" in prefix:
        arguments["distillation_head"] = has("head_dist/kernel") or not classes
    activation = known.get("activation", told.get("activation") or "gelu")
    gated = shape_of("block_0/feed_forward/linear1/kernel", 2)[0] == 2 * hidden
    # What is not there stays at its default.
    parts = {
        "activation": "swiglu" if gated else activation,
        # Only where there is another normalization can it be missing.
        "patch_bias": has("tokenizer/conv_0/bias")
        or (told.get("patch_bias", True) and not has("norm_pre/gamma")),
        "num_registers": shape_of("registers/tokens", 3)[1]
        if has("registers/tokens")
        else 0,
        "norm_before_blocks": has("norm_pre/gamma"),
        "layer_scale": LAYER_SCALE if has("block_0/scale1/scale") else None,
        "final_norm": _find_final_norm(has, told),
        "representation_size": shape_of("pre_logits/kernel", 2)[0]
        if has("pre_logits/kernel")
        else None,
        "projection_dim": shape_of("projection/kernel", 2)[0]
        if has("projection/kernel") and not classes
        else None,
    }
    if "top_pooling" in draft.row.defaults:
        read = "pre_logits/kernel" if has("pre_logits/kernel") else "head/kernel"
        width = shape_of(read, 2)[1] if has_head else dim
        parts["top_pooling"] = known.get("top_pooling") or _find_top_pooling(
            has, told, prefix, width == 2 * dim, parts["final_norm"]
        )
    arguments |= {
        name: value
        for name, value in parts.items()
        if draft.row.defaults.get(name, value) != value
    }
    arguments = draft.row.arguments_for_tokens(prefix, arguments)

    if has(POSITIONS):
        _, length, _ = shape_of(POSITIONS, 3)
        with np.errstate(all="ignore"):
            positions = np.asarray(tensors[table.name_of(POSITIONS)], "float32")
        arguments["positional_embedding"] = kind_of_table(positions)
        own = len(prefix)
        if "class_token_position" in draft.row.defaults and own:
            # Tables without a row for the class token are a grid by themselves.
            rows = math.prod(grid) if grid is not None else None
            if rows == length or (rows is None and square_grid(length)):
                arguments["class_token_position"] = False
                own = 0
        grid = _find_grid(length - own, grid)
        size = (None, None)
        if grid is not None:
            size = tuple(side * draft.pixels_per_token for side in grid)
        if record is not None and grid == record.grid:
            size = record.arguments["input_shape"][:2]
    else:
        grid, size = None, _find_size(draft, known)
    arguments["input_shape"] = (*size, channels)
    architecture = Architecture(family, arguments, grid)
    _check_strictly(architecture, checkpoint)
    if record is not None:
        _check_record(architecture, record)
    if any(side is not None and side > LARGEST_SIDE for side in size):
        raise CheckpointError(
            f"the tensors are those of images of {size[0]} x {size[1]} pixels"
        )
    return architecture


def _some_names(tensors):
    """A few names, and first of all one of each part that the file has."""
    names, of_parts = sorted(tensors), {}
    for name in names:
        of_parts.setdefault(name.partition(".")[0], name)
    return list(dict.fromkeys((*of_parts.values(), *names)))[:4]


def _told_grid(checkpoint):
    """The grid of the positions, as the config of a repository tells it."""
    told, name_of = checkpoint.told.arguments, checkpoint.table.name_of
    kernel = checkpoint.tensors.get(name_of("tokenizer/conv_0/kernel"))
    positions = checkpoint.tensors.get(name_of(POSITIONS))
    if "image_size" not in told or np.ndim(kernel) != 4 or np.ndim(positions) != 3:
        return None
    height, width = told["image_size"]
    patch = kernel.shape[-1]
    if told.get("patch_size", patch) != patch:
        raise CheckpointError(
            f"config.json has patch_size={told['patch_size']}, and the tensors have "
            f"patches of {patch}"
        )
    grid = height // patch, width // patch
    if 0 <= positions.shape[1] - math.prod(grid) <= MOST_PREFIX_TOKENS:
        return grid
    if checkpoint.told.settings_are_known:
        raise CheckpointError(
            f"config.json has image_size={told['image_size']}, for {math.prod(grid)} "
            f"patches, and the tensors have {positions.shape[1]} positions"
        )
    return None


def _check_record(architecture, record):
    """Refuses what a record says of the function, if it cannot be."""
    dim, heads = architecture.arguments["embedding_dim"], record.get("num_heads")
    if heads is not None and dim % heads:
        raise CheckpointError(
            f"the file records num_heads={heads}, which do not divide "
            f"embedding_dim={dim}"
        )
    sides = record.arguments["input_shape"][:2]
    if architecture.arguments["input_shape"][:2] != sides or None in sides:
        return
    if not architecture.size_fits_grid:
        raise CheckpointError(
            f"the file records images of {sides[0]} x {sides[1]} pixels, of which its "
            "tokenizer does not make its positions"
        )


def _find_final_norm(has, told):
    if has("norm/gamma"):
        return "tokens"
    return "pooled" if has("fc_norm/gamma") else told.get("final_norm")


def _find_top_pooling(has, told, prefix, reads_two, final_norm):
    """What the head reads, or a head would."""
    if has("pool/probe"):
        return "map"
    if not prefix:
        return "avg"
    if reads_two:
        return "token_avg"
    return "avg" if final_norm == "pooled" else told["top_pooling"]


def check_complete(architecture: Architecture) -> None:
    """Refuses an architecture that lacks something, and says what to pass."""
    arguments = architecture.arguments
    if arguments["num_heads"] is None:
        raise CheckpointError(
            "the file does not tell the heads of "
            f"embedding_dim={arguments['embedding_dim']}: pass num_heads=..."
        )
    if None in arguments["input_shape"]:
        if arguments["positional_embedding"] is not None:
            raise CheckpointError(
                "the positions of the file are not a square: pass grid=(rows, columns)"
            )
        raise CheckpointError(
            "the file has no positions that tell the image size: pass "
            "input_shape=(height, width, channels)"
        )


def expected_weights(
    architecture: Architecture, checkpoint: Checkpoint
) -> dict[str, tuple]:
    """`{path: shape}` of what a checkpoint of this architecture has to hold.

    A body may come with the pooling and the layers that stood before its head.
    """
    shapes = weight_shapes(architecture)
    if not architecture.num_classes:
        arguments = {**architecture.arguments, "num_classes": 1}
        with_head = dataclasses.replace(architecture, arguments=arguments)
        shapes |= {
            path: shape
            for path, shape in weight_shapes(with_head).items()
            if path.startswith(("pool/", "fc_norm/", "pre_logits/"))
            and checkpoint.table.name_of(path) in checkpoint.tensors
        }
    return shapes


def _check_strictly(architecture, checkpoint):
    tensors, table = checkpoint.tensors, checkpoint.table
    expected = {
        table.name_of(path): to_torch_shape(shape)
        for path, shape in expected_weights(architecture, checkpoint).items()
    }
    positions = table.name_of(POSITIONS)
    if positions in expected:
        _, _, dim = expected[positions]
        expected[positions] = (1, tensors[positions].shape[1], dim)
    problems = list_problems(
        [name for name in expected if name not in tensors],
        [name for name in tensors if name not in expected],
        [
            f"{name} {tuple(tensors[name].shape)} for {shape}"
            for name, shape in expected.items()
            if name in tensors and tuple(tensors[name].shape) != shape
        ],
    )
    if problems:
        raise CheckpointError(
            f"the tensors are not those of a {architecture.family}: {problems}"
        )


def weight_shapes(architecture: Architecture) -> dict[str, tuple]:
    """As `Architecture.weight_shapes`, also where the number of tokens is not known."""
    known = dataclasses.replace(architecture, grid=architecture.grid or (1, 1))
    return known.weight_shapes()


def to_torch_shape(shape: tuple) -> tuple:
    """The shape in torch of a weight of a linear or convolution layer of Keras."""
    if len(shape) == 4:
        return shape[3], shape[2], shape[0], shape[1]
    return shape[::-1] if len(shape) == 2 else shape


def _count(has, pattern):
    number = 0
    while has(pattern.format(number)):
        number += 1
    return number


def _shape_of(tensors, name, rank):
    """The shape of a tensor that has to be there."""
    if name not in tensors:
        raise CheckpointError(f"missing: {name}")
    shape = tuple(tensors[name].shape)
    if len(shape) != rank or 0 in shape:
        raise CheckpointError(f"{name} has the impossible shape {shape}")
    return shape


def published_heads(dim: int) -> int | None:
    """The heads that published models of this width have."""
    sizes = (size for size in SIZES.values() if size.embedding_dim == dim)
    return next((size.num_heads for size in sizes), None)


def _find_grid(length, grid):
    """The grid of so many positions: as given, or a square if they are one."""
    if grid is not None:
        is_pair = isinstance(grid, (tuple, list)) and len(grid) == 2
        if not is_pair or math.prod(grid) != length:
            raise CheckpointError(
                f"`grid` must be (rows, columns) of {length} positions. "
                f"Received: grid={grid!r}"
            )
        return tuple(grid)
    return square_grid(length)


def _find_size(draft, known):
    """Height and width of the images of a file without positions."""
    shape = known.get("input_shape")
    if shape is not None and len(shape) == 3 and None not in shape:
        return tuple(shape[:2])
    for row in VARIANTS.values():
        if row.family == draft.family and row.kernel == draft.kernel_size:
            return row.image_size, row.image_size
    return None, None
