"""Figures of maps: pictures beside what a method says about them."""

import math
import numbers

from cct_keras.drawing.style import INK
from cct_keras.drawing.style import PALE
from cct_keras.drawing.style import SKY
from cct_keras.drawing.style import new_figure
from cct_keras.drawing.style import percent
from cct_keras.drawing.style import shortened
from cct_keras.drawing.style import styled
from cct_keras.errors import ModelError
from cct_keras.explaining.overlays import COLORMAP
from cct_keras.explaining.overlays import SIGNED_COLORMAP
from cct_keras.explaining.overlays import color_limits
from cct_keras.explaining.overlays import overlay

# Pairs of picture and map in a row.
PAIRS = 3
SIDE_INCHES = 1.7
# Up to this side pictures show their pixels instead of a blur.
SMALL_PICTURE = 128


@styled
def maps_beside_pictures(explanation, strength: float, most: int):
    """Pictures, each beside its map and the legend of its colors.

    Args:
        explanation: An `Explanation`.
        strength: How much the colors cover the pictures.
        most: How many pictures to draw.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    check_strength(strength)
    if not isinstance(most, numbers.Integral) or most < 1:
        raise ModelError(f"`most` must be 1 or more. Received: most={most}")
    count = min(len(explanation), most)
    pairs = min(count, PAIRS)
    rows = math.ceil(count / pairs)
    figure = new_figure(
        pairs * (2 * SIDE_INCHES + 0.75), rows * (SIDE_INCHES + 0.45) + 0.3
    )
    # Picture, map and legend.
    grid = figure.subplots(
        rows,
        3 * pairs,
        squeeze=False,
        width_ratios=[1, 1, 0.06] * pairs,
    )
    for axes in grid.ravel():
        axes.axis("off")
    for index in range(count):
        row, pair = divmod(index, pairs)
        left, right, bar = grid[row, 3 * pair : 3 * pair + 3]
        _draw_pair(explanation, index, left, right, bar, strength)
    figure.suptitle(
        f"{explanation.method}: {explanation.meaning}", fontsize=10, x=0.01, ha="left"
    )
    return figure


def _draw_pair(explanation, index, left, right, bar, strength):
    picture, tokens = explanation.pictures[index], explanation.token_maps[index]
    pixels = picture.pixels()
    _show(left, pixels)
    _show(
        right,
        overlay(picture, pixels, tokens, signed=explanation.signed, strength=strength),
    )
    predicted = explanation.probabilities[index].argmax()
    target = explanation.targets[index]
    probabilities = explanation.probabilities[index]
    _caption(
        left,
        f"{shortened(explanation.class_names[predicted], 16)} "
        f"{percent(probabilities[predicted])}",
    )
    if target != predicted:
        _caption(
            right,
            f"for {shortened(explanation.class_names[target], 14)} "
            f"{percent(probabilities[target])}",
        )
    legend(bar, color_limits(tokens, explanation.signed), explanation.signed)


@styled
def attention_heads(explanation, index: int, strength: float):
    """The attention of every block and head over one picture.

    Args:
        explanation: An `Explanation` by method `"attention"`.
        index: Which picture.
        strength: How much the colors cover the picture.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    check_strength(strength)
    if explanation.attention_maps is None:
        raise ModelError("the heads of an explanation need method='attention'")
    count = len(explanation)
    if not isinstance(index, numbers.Integral) or not -count <= index < count:
        raise ModelError(
            f"`index` must be one of the {count} pictures. Received: index={index}"
        )
    picture = explanation.pictures[index]
    pixels, maps = picture.pixels(), explanation.attention_maps[index]
    blocks, heads = maps.shape[:2]
    side = min(1.3, 12 / (heads + 1))
    figure = new_figure(side * (heads + 1) + 0.6, side * blocks + 0.6)
    grid = figure.subplots(
        blocks, heads + 2, squeeze=False, width_ratios=[1] * (heads + 1) + [0.06]
    )
    for block in range(blocks):
        for axes in grid[block]:
            axes.axis("off")
        if block == 0:
            _show(grid[0, 0], pixels)
        for head in range(heads):
            axes = grid[block, head + 1]
            shown = overlay(
                picture,
                pixels,
                maps[block, head],
                limits=color_limits(maps[block], signed=False),
                strength=strength,
            )
            _show(axes, shown)
            if block == 0:
                _caption(axes, f"head {head}")
        grid[block, 1].text(
            -0.04,
            0.5,
            f"block {block}",
            rotation=90,
            ha="right",
            va="center",
            fontsize=8,
            transform=grid[block, 1].transAxes,
        )
        legend(
            grid[block, -1],
            color_limits(maps[block], signed=False),
            signed=False,
            digits=2,
        )
    return figure


def legend(axes, limits: tuple[float, float], signed: bool, digits: int = 3) -> None:
    """Draws the colors from the lowest to the highest value, with numbers.

    Args:
        axes: Narrow axes beside the map.
        limits: Values of the first and the last color.
        signed: Whether the colors are those of negative and positive values.
        digits: Significant digits of the numbers.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    mappable = ScalarMappable(
        Normalize(*limits), SIGNED_COLORMAP if signed else COLORMAP
    )
    axes.axis("on")
    low, high = limits
    middle = 0.0 if signed else high / 2
    bar = axes.figure.colorbar(mappable, cax=axes, ticks=[low, middle, high])
    bar.ax.set_yticklabels(
        [f"{value:.{digits}g}" for value in (low, middle, high)], fontsize=7
    )
    bar.ax.tick_params(length=0, pad=2)
    bar.outline.set_visible(False)


def check_strength(strength: float) -> None:
    """Refuses a strength outside of 0 to 1."""
    if not isinstance(strength, numbers.Real) or not 0 <= strength <= 1:
        raise ModelError(
            f"`strength` must be from 0 to 1. Received: strength={strength}"
        )


def _show(axes, pixels):
    small = max(pixels.shape[:2]) <= SMALL_PICTURE
    axes.imshow(
        pixels[..., 0] if pixels.shape[2] == 1 else pixels,
        cmap="gray",
        vmin=0,
        vmax=255,
        interpolation="nearest" if small else "antialiased",
    )


def _caption(axes, text):
    axes.set_title(
        text, fontsize=8, fontweight="normal", loc="center", pad=3, parse_math=False
    )


@styled
def judgement_bars(judgement):
    """The columns of a judgement as bars, one panel each.

    Args:
        judgement: A `Judgement`.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    panels = {
        "deletion": "deletion: less is better",
        "insertion": "insertion: more is better",
        "pointing": "pointing: more is better",
        "apart": "two apart: more is better",
        "randomized": "like random weights: 1 is bad",
    }
    names = list(judgement.rows)
    figure = new_figure(2.6 * len(panels), 0.28 * len(names) + 0.9)
    grid = figure.subplots(1, len(panels), sharey=True)
    for axes, (column, title) in zip(grid, panels.items(), strict=True):
        axes.set_title(title, fontsize=8)
        axes.grid(axis="x")
        axes.tick_params(axis="y", length=0)
        for place, name in enumerate(names):
            value = judgement.rows[name][column]
            if value is None:
                continue
            baseline = name in ("random", "center")
            axes.barh(
                place,
                value,
                height=0.7,
                color=PALE if baseline else SKY,
                xerr=judgement.errors[name][column],
                error_kw={"elinewidth": 1, "ecolor": INK},
            )
    grid[0].set_yticks(range(len(names)), names)
    grid[0].invert_yaxis()
    return figure
