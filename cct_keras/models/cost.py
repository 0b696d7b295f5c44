"""What a model costs, counted from its layers' settings without building it."""

import math
from typing import NamedTuple

from cct_keras.layers.checks import check_positive
from cct_keras.models.variants import VARIANTS
from cct_keras.models.variants import constructor_arguments


class Cost(NamedTuple):
    """Cost of one image.

    Attributes:
        tokens: Length of the sequence, the class token included.
        parameters: Number of weights, positions included.
        macs: Multiply-accumulates of convolutions and linear layers, which is
            what the paper counts.
        attention_macs: Those of the two products inside the attention.
        activation_bytes: float32 tensors that one image keeps for the backward
            pass.
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
    row = VARIANTS[variant]
    classes = row.num_classes if num_classes is None else num_classes
    height, width = image_size or (row.image_size, row.image_size)
    check_positive(variant, num_classes=classes, height=height, width=width)
    if row.family != "CCT" and (height % row.kernel or width % row.kernel):
        raise ValueError(
            f"{variant}: height and width must be divisible by the patch size "
            f"{row.kernel}. Received: {height} x {width}"
        )
    size = constructor_arguments(row)
    dim, layers, heads = size["embedding_dim"], size["num_layers"], size["num_heads"]
    hidden = dim * size["mlp_ratio"]

    conv_parameters = conv_macs = activations = 0
    for stage in range(row.stages):
        filters = dim if stage == row.stages - 1 else 64
        height, width = _conv_size(row, height), _conv_size(row, width)
        kernel = row.kernel**2 * channels * filters
        conv_parameters += kernel
        conv_macs += kernel * height * width
        activations += filters * height * width
        if row.family == "CCT":
            height, width = (height - 1) // 2 + 1, (width - 1) // 2 + 1
            activations += filters * height * width
        channels = filters
    if row.family != "CCT":
        conv_parameters += dim

    textbook = row.family in ("ViT", "DeiT")
    prefix = 1 + row.distilled if textbook or row.family == "ViTLite" else 0
    tokens = height * width + prefix
    linear = 4 * dim**2 + 2 * dim * hidden
    block = linear + dim + (hidden + dim) + 4 * dim + (3 * dim if textbook else 0)
    pool = 0 if prefix else dim
    heads_on_top = 1 + row.distilled
    # Of a block stay: both norms, q, k, v, the attention before and after its
    # dropout, its product with v, both residual sums; both hidden tensors.
    block_activations = tokens * (8 * dim + 2 * hidden + 2 * heads * tokens)
    activations += layers * block_activations + tokens * dim
    return Cost(
        tokens=tokens,
        parameters=conv_parameters
        + prefix * dim
        + tokens * dim
        + layers * block
        + 2 * dim
        + (pool + 1 if pool else 0)
        + heads_on_top * (dim + 1) * classes,
        macs=conv_macs
        + tokens * (layers * linear + pool)
        + heads_on_top * dim * classes,
        attention_macs=2 * layers * dim * tokens**2,
        activation_bytes=4 * activations,
    )


def _conv_size(row, size):
    if row.family != "CCT":
        return size // row.kernel
    stride, padding = max(1, row.kernel // 2 - 1), max(1, row.kernel // 2)
    return math.floor((size + 2 * padding - row.kernel) / stride) + 1
