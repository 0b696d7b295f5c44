"""Figures of what a model learned: filters, positions, attention over data."""

import math

import numpy as np

from cct_keras.drawing.style import BLUE
from cct_keras.drawing.style import GRAY
from cct_keras.drawing.style import new_figure
from cct_keras.drawing.style import styled
from cct_keras.explaining.figures import legend
from cct_keras.explaining.overlays import COLORMAP

# Maps along a side of the figure of positions.
MOST_POSITIONS = 14
MOST_FILTERS = 128


def draw_all(inspection) -> dict:
    """All figures of an `Inspection`, by name."""
    drawn = {"filters": filters(inspection)}
    if inspection.position_similarity is not None:
        drawn["positions"] = positions(inspection)
    if inspection.images:
        drawn["distance"] = distance(inspection)
        drawn["heads"] = heads(inspection)
    if inspection.pool_weights is not None:
        drawn["pool"] = pool(inspection)
    return drawn


@styled
def filters(inspection):
    """The first filters, or the principal components of the patch embedding."""
    found = inspection.filters
    shown = found[:MOST_FILTERS]
    columns = min(16 if len(shown) > 28 else 14, len(shown))
    rows = math.ceil(len(shown) / columns)
    # Each filter from its own lowest to its highest value; gray is in the middle.
    scale = np.abs(shown).max(axis=(1, 2, 3), keepdims=True)
    pixels = 0.5 + 0.5 * shown / np.maximum(scale, 1e-12)
    if pixels.shape[-1] != 3:
        pixels = pixels.mean(axis=-1, keepdims=True)
    figure = new_figure(0.5 * columns, 0.5 * rows + 0.35)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid:
        axes.axis("off")
    for axes, picture in zip(grid, pixels, strict=False):
        axes.imshow(
            picture[..., 0] if picture.shape[-1] == 1 else picture,
            cmap="gray",
            vmin=0,
            vmax=1,
            interpolation="nearest",
        )
    if inspection.filters_are_components:
        share = inspection.explained_variance.sum()
        title = (
            f"first {len(shown)} principal components of the patch embedding, "
            f"{100 * share:.0f} % of its variance"
        )
    else:
        more = f" of {len(found)}" if len(found) > len(shown) else ""
        title = f"{len(shown)}{more} filters of the first convolution"
    figure.suptitle(title, fontsize=9, x=0.01, ha="left")
    return figure


@styled
def positions(inspection):
    """For each position, how similar all positions are to it."""
    similarity = inspection.position_similarity
    rows, columns = similarity.shape[:2]
    steps = [math.ceil(side / MOST_POSITIONS) for side in (rows, columns)]
    chosen = similarity[:: steps[0], :: steps[1]]
    down, across = chosen.shape[:2]
    gap = 1
    canvas = np.full(
        (down * (rows + gap) - gap, across * (columns + gap) - gap), np.nan
    )
    for i in range(down):
        for j in range(across):
            top, left = i * (rows + gap), j * (columns + gap)
            canvas[top : top + rows, left : left + columns] = chosen[i, j]
    side = 5.0
    figure = new_figure(side + 0.8, side * canvas.shape[0] / canvas.shape[1] + 0.7)
    axes = figure.subplots()
    low = float(np.nanmin(canvas))
    axes.imshow(canvas, cmap=COLORMAP, vmin=low, vmax=1, interpolation="nearest")
    axes.set_xticks(
        [j * (columns + gap) + (columns - 1) / 2 for j in range(across)],
        [str(1 + j * steps[1]) for j in range(across)],
    )
    axes.set_yticks(
        [i * (rows + gap) + (rows - 1) / 2 for i in range(down)],
        [str(1 + i * steps[0]) for i in range(down)],
    )
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("column of the token")
    axes.set_ylabel("row of the token")
    axes.set_title("similarity of the positions", fontsize=9)
    bar = figure.colorbar(axes.images[0], ax=axes, shrink=0.6, aspect=25, pad=0.02)
    bar.outline.set_visible(False)
    bar.set_label("cosine similarity")
    return figure


@styled
def distance(inspection):
    """How far each head looks, by depth: a dot is a head."""
    values = inspection.attention_distance
    blocks, heads = values.shape
    figure = new_figure(max(3.6, 1.6 + 0.3 * blocks), 3.0)
    axes = figure.subplots()
    for head in range(heads):
        axes.plot(
            range(blocks),
            values[:, head],
            linestyle="none",
            marker="o",
            markersize=5,
            color=BLUE,
            alpha=0.75,
            markeredgewidth=0,
        )
    axes.plot(range(blocks), values.mean(axis=1), color=GRAY, label="mean of the heads")
    # Otherwise a low dot says nothing of whether it is low.
    uniform = inspection.uniform_distance
    axes.axhline(
        uniform, color=GRAY, linestyle="--", linewidth=1, label="all tokens alike"
    )
    axes.set_xlabel("block")
    height, width = inspection.image_size
    axes.set_ylabel(f"mean distance, pixels of {height} x {width}")
    axes.set_xticks(range(0, blocks, max(1, blocks // 12)))
    axes.set_xlim(-0.5, blocks - 0.5)
    axes.set_ylim(0, 1.1 * max(float(values.max()), uniform))
    axes.grid(axis="y")
    axes.legend(loc="lower right")
    axes.set_title(f"{inspection.images} images, a dot a head", fontsize=9)
    return figure


@styled
def heads(inspection):
    """What is read through each attention head, the mean of all images."""
    maps = inspection.head_attention
    blocks, count = maps.shape[:2]
    side = min(1.0, 11 / count)
    figure = new_figure(side * count + 0.9, side * blocks + 0.6)
    grid = figure.subplots(
        blocks, count + 1, squeeze=False, width_ratios=[1] * count + [0.08]
    )
    for block in range(blocks):
        # One scale a block, so that its heads can be compared.
        high = max(float(maps[block].max()), 1e-12)
        for head in range(count):
            axes = grid[block, head]
            axes.imshow(
                maps[block, head],
                cmap=COLORMAP,
                vmin=0,
                vmax=high,
                interpolation="nearest",
            )
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_visible(False)
            if block == 0:
                axes.set_title(
                    f"head {head}", fontsize=8, fontweight="normal", loc="center", pad=3
                )
        grid[block, 0].set_ylabel(f"block {block}", fontsize=8)
        legend(grid[block, -1], (0.0, high), signed=False, digits=2)
    figure.suptitle(
        f"attention by head, mean of {inspection.images} images",
        fontsize=9,
        x=0.01,
        ha="left",
    )
    return figure


@styled
def pool(inspection):
    """What the pooling favors on average, and how much it varies."""
    panels = {
        "mean weight of a token": inspection.pool_weights,
        "standard deviation": inspection.pool_deviation,
    }
    rows, columns = inspection.pool_weights.shape
    figure = new_figure(6.2, 2.6 * min(1.6, rows / columns) + 0.5)
    grid = figure.subplots(1, 4, width_ratios=[1, 0.05, 1, 0.05])
    for index, (title, values) in enumerate(panels.items()):
        axes, bar = grid[2 * index : 2 * index + 2]
        high = max(float(values.max()), 1e-12)
        axes.imshow(values, cmap=COLORMAP, vmin=0, vmax=high, interpolation="nearest")
        axes.axis("off")
        axes.set_title(title, fontsize=9)
        legend(bar, (0.0, high), signed=False)
    equal = 1 / (rows * columns)
    figure.suptitle(
        f"what the pooling favors, over {inspection.images} images; equal weights "
        f"would be {equal:.3g}",
        fontsize=9,
        x=0.01,
        ha="left",
    )
    return figure
