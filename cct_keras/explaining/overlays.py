"""A map laid over a picture, in colors that color-blind readers can tell apart."""

import math

import numpy as np

from cct_keras.explaining.pictures import Picture

# How much of a color covers the picture, from 0 to 1.
STRENGTH = 0.6
# What the model does not see is this much paler.
PALE = 0.6
COLORMAP, SIGNED_COLORMAP = "viridis", "PuOr_r"


def color_limits(token_map: np.ndarray, signed: bool) -> tuple[float, float]:
    """The values of the first and the last color.

    Args:
        token_map: `(rows, columns)`.
        signed: Whether the colors are those of negative and positive values.

    Example:

    >>> color_limits(np.array([[0.0, 0.5]]), signed=False)
    (0.0, 0.5)
    >>> color_limits(np.array([[-0.25, 0.5]]), signed=True)
    (-0.5, 0.5)
    """
    largest = float(np.abs(token_map).max())
    if not math.isfinite(largest) or largest == 0:
        largest = 1.0
    return (-largest if signed else 0.0), largest


def color_map(
    token_map: np.ndarray, signed: bool, limits: tuple[float, float] | None = None
) -> np.ndarray:
    """The colors of a map, uint8 `(rows, columns, 3)`.

    Args:
        token_map: `(rows, columns)`.
        signed: Whether values may be negative.
        limits: Values of the first and the last color; by default `color_limits`.
    """
    low, high = limits or color_limits(token_map, signed)
    shares = (np.nan_to_num(token_map) - low) / (high - low)
    return colors(signed)[np.rint(255 * shares.clip(0, 1)).astype(int)]


def colors(signed: bool) -> np.ndarray:
    """The 256 colors of a legend, uint8 `(256, 3)`."""
    import matplotlib

    table = matplotlib.colormaps[SIGNED_COLORMAP if signed else COLORMAP]
    return np.rint(255 * table(np.arange(256))[:, :3]).astype(np.uint8)


def overlay(
    picture: Picture,
    pixels: np.ndarray,
    token_map: np.ndarray,
    *,
    signed: bool = False,
    limits: tuple[float, float] | None = None,
    strength: float = STRENGTH,
) -> np.ndarray:
    """The picture in gray under its map, each token a flat rectangle.

    Args:
        picture: The picture.
        pixels: Its pixels as they are drawn, which may be fewer than it has.
        token_map: `(rows, columns)`.
        signed: Whether values may be negative.
        limits: Values of the first and the last color; by default those of this map.
        strength: How much the colors cover the picture, from 0 to 1.

    Returns:
        uint8 array like `pixels`, with three channels.
    """
    gray = pixels.astype("float32").mean(axis=-1, keepdims=True)
    rows, columns = (
        ((np.arange(drawn) + 0.5) * size / drawn).astype(int)
        for drawn, size in zip(pixels.shape[:2], picture.size, strict=True)
    )
    top, left, bottom, right = picture.box
    inside = np.outer(
        (rows >= top) & (rows < bottom), (columns >= left) & (columns < right)
    )[..., None]
    row_of = ((rows - top) * token_map.shape[0] // max(bottom - top, 1)).clip(
        0, token_map.shape[0] - 1
    )
    column_of = ((columns - left) * token_map.shape[1] // max(right - left, 1)).clip(
        0, token_map.shape[1] - 1
    )
    tint = color_map(token_map, signed, limits)[row_of][:, column_of].astype("float32")
    pale = (1 - PALE) * gray + PALE * 255
    covered = np.where(inside, (1 - strength) * gray + strength * tint, pale)
    return np.rint(covered).clip(0, 255).astype(np.uint8)
