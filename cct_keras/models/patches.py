"""The patch embedding that CVT and ViT-Lite begin with."""

from cct_keras.layers import ConvTokenizer
from cct_keras.layers.checks import check_positive


def patch_tokenizer(
    owner: str, images, embedding_dim: int, patch_size: int, data_format: str, dtype
):
    """Tokens and their grid, one token a patch.

    Returns:
        `(tokens, (rows, columns))`
    """
    check_positive(owner, patch_size=patch_size)
    tokenizer = ConvTokenizer(
        embedding_dim,
        kernel_size=patch_size,
        stride=patch_size,
        padding=0,
        activation=None,
        use_bias=True,
        pooling_kernel_size=None,
        data_format=data_format,
        dtype=dtype,
        name="tokenizer",
    )
    check_divisible_by_patch(owner, images.shape, tokenizer)
    return tokenizer(images), tokenizer.compute_grid(images.shape)


def check_divisible_by_patch(owner: str, shape: tuple, tokenizer: ConvTokenizer):
    """Refuses images whose border no patch would see.

    Args:
        owner: What the error begins with.
        shape: Shape of the images with the batch axis.
        tokenizer: A tokenizer; only those of patches are bound by the rule.
    """
    patch = tokenizer.kernel_size
    pads = tokenizer.padding or tokenizer.pooling_kernel_size is not None
    if pads or tokenizer.stride != patch:
        return
    axes = (1, 2) if tokenizer.data_format == "channels_last" else (2, 3)
    if any(shape[axis] is not None and shape[axis] % patch for axis in axes):
        raise ValueError(
            f"{owner}: height and width of `input_shape` must be divisible by "
            f"`patch_size`. Received: input_shape={tuple(shape[1:])}, "
            f"patch_size={patch}"
        )
