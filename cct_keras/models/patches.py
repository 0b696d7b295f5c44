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
    axes = (1, 2) if data_format == "channels_last" else (2, 3)
    size = [images.shape[axis] for axis in axes]
    if any(side is not None and side % patch_size for side in size):
        raise ValueError(
            f"{owner}: height and width of `input_shape` must be divisible by "
            f"`patch_size`. Received: input_shape={tuple(images.shape[1:])}, "
            f"patch_size={patch_size}"
        )
    return tokenizer(images), tokenizer.compute_grid(images.shape)
