"""Occlusion (Zeiler and Fergus, 2014): what a model misses when a place is covered.

It asks the model and nothing else, so it is slow, and a referee for the other methods.
"""

from collections.abc import Callable

import numpy as np

# A covered window is about this share of a side: smaller ones hide too little of
# whatever spans several tokens.
WINDOWS_PER_SIDE = 7


def occlusion_maps(
    log_probability: Callable[[np.ndarray], np.ndarray],
    image: np.ndarray,
    grid: tuple[int, int],
    fill: np.ndarray,
) -> np.ndarray:
    """By how much the logarithm of the target's probability falls, token by token.

    A window is moved over the token grid. The value of a token is the mean over the
    windows that cover it; it is negative where the model gains by not seeing the place.

    Args:
        log_probability: Of the target, for a batch of inputs.
        image: `(height, width, channels)`, an input of the model.
        grid: Rows and columns of the tokens.
        fill: One value a channel to cover with.

    Returns:
        float32 array `(rows, columns)`.
    """
    windows = list(_windows(grid))
    covered = np.repeat(image[None], len(windows), axis=0)
    for picture, (top, left, bottom, right) in zip(covered, windows, strict=True):
        rows = _edges(image.shape[0], grid[0])
        columns = _edges(image.shape[1], grid[1])
        picture[rows[top] : rows[bottom], columns[left] : columns[right]] = fill
    before = log_probability(image[None])[0]
    falls = before - log_probability(covered)
    total, count = np.zeros(grid), np.zeros(grid)
    for fall, (top, left, bottom, right) in zip(falls, windows, strict=True):
        total[top:bottom, left:right] += fall
        count[top:bottom, left:right] += 1
    return (total / count).astype("float32")


def _windows(grid):
    """Top, left, bottom and right of every window, in tokens; they cover the grid."""
    sides = []
    for length in grid:
        side = max(1, round(length / WINDOWS_PER_SIDE))
        step = max(1, side // 2)
        starts = {*range(0, length - side + 1, step), length - side}
        sides.append([(start, start + side) for start in sorted(starts)])
    for top, bottom in sides[0]:
        for left, right in sides[1]:
            yield top, left, bottom, right


def _edges(length, count):
    """Where tokens begin and end, in pixels of the model's input."""
    return [round(index * length / count) for index in range(count + 1)]
