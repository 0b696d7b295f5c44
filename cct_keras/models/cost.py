"""What a model costs, counted from its architecture without building it."""

import math
from typing import NamedTuple

from cct_keras.checks import check_positive
from cct_keras.models.architecture import Architecture

# Layers that see one vector an image.
POOLED = ("pre_logits", "projection", "pool/query", "pool/proj", "pool/feed_forward")


class Cost(NamedTuple):
    """Cost of one image.

    Attributes:
        tokens: Length of the sequence, prefix tokens included.
        parameters: Number of weights, positions included.
        macs: Multiply-accumulates of convolutions and linear layers, which is what the
            paper counts.
        attention_macs: Those of the two products inside the attention.
        activation_bytes: float32 tensors that one image keeps for the backward pass.
    """

    tokens: int
    parameters: int
    macs: int
    attention_macs: int
    activation_bytes: int


def variant_cost(
    variant: str,
    num_classes: int | None = None,
    image_size: tuple[int, int] | None = None,
    channels: int = 3,
) -> Cost:
    """Cost of a named variant.

    Args:
        variant: Name of the variant.
        num_classes: Classes, if not the variant's own.
        image_size: `(height, width)`, if not the variant's own.
        channels: Channels of the image.

    Returns:
        A `Cost`.

    Example:

    >>> variant_cost("cct_14_7x2_224").parameters
    22367273
    """
    record = Architecture.from_variant(variant)
    changes = {} if num_classes is None else {"num_classes": num_classes}
    height, width = image_size or record.arguments["input_shape"][:2]
    check_positive(variant, height=height, width=width, **changes)
    patch = record.kernel_size
    if record.row.tokenizer == "patches" and (height % patch or width % patch):
        raise ValueError(
            f"{variant}: height and width must be divisible by the patch size "
            f"{patch}. Received: {height} x {width}"
        )
    changes["input_shape"] = (height, width, channels)
    return architecture_cost(Architecture.from_variant(variant, **changes))


def architecture_cost(architecture: Architecture) -> Cost:
    """Cost of an architecture.

    Args:
        architecture: The architecture, with a known `input_shape`.

    Returns:
        A `Cost`.
    """
    shapes = architecture.weight_shapes()
    height, width, _ = architecture.arguments["input_shape"]
    sizes = zip(
        architecture.stage_sizes(height), architecture.stage_sizes(width), strict=True
    )
    tokens, dim = architecture.tokens, architecture.arguments["embedding_dim"]
    macs = activations = 0
    for stage, ((rows, pooled_rows), (columns, pooled_columns)) in enumerate(sizes):
        kernel = shapes[f"tokenizer/conv_{stage}/kernel"]
        macs += math.prod(kernel) * rows * columns
        activations += kernel[-1] * rows * columns
        if architecture.pooling is not None:
            activations += kernel[-1] * pooled_rows * pooled_columns
    once_an_image = tuple(f"{name}/" for name in (*architecture.heads, *POOLED))
    for path, shape in shapes.items():
        if path.endswith("/kernel") and not path.startswith("tokenizer/"):
            once = path.startswith(once_an_image)
            macs += math.prod(shape) * (1 if once else tokens)
    layers, heads = (architecture.arguments[k] for k in ("num_layers", "num_heads"))
    # A block keeps: both norms, q, k, v, the attention before and after its dropout,
    # its product with v, both residual sums; both hidden tensors.
    block = tokens * (8 * dim + 2 * architecture.hidden_dim + 2 * heads * tokens)
    activations += layers * block + tokens * dim
    return Cost(
        tokens=tokens,
        parameters=sum(math.prod(shape) for shape in shapes.values()),
        macs=macs,
        attention_macs=2 * layers * dim * tokens**2,
        activation_bytes=4 * activations,
    )
