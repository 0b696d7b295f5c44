"""Figures of a training run and of what was measured."""

import math
from collections.abc import Sequence

import numpy as np

from cct_keras.drawing.style import BLUE
from cct_keras.drawing.style import GRAY
from cct_keras.drawing.style import INK
from cct_keras.drawing.style import SKY
from cct_keras.drawing.style import VERMILION
from cct_keras.drawing.style import NothingToDraw
from cct_keras.drawing.style import new_figure
from cct_keras.drawing.style import percent
from cct_keras.drawing.style import percent_axis
from cct_keras.drawing.style import shortened
from cct_keras.drawing.style import styled
from cct_keras.inference.metrics import wilson_interval

# Classes of a confusion matrix with counts in its cells, with names at its edges, and
# with a cell of their own.
MOST_ANNOTATED = 20
MOST_LABELED = 120
MOST_CELLS = 250
# Classes in one panel of bars.
MOST_BARS = 40


@styled
def learning_curves(history: Sequence[dict], best_epoch: int | None = None):
    """Loss, accuracy and learning rate over the epochs.

    Args:
        history: A dictionary for each epoch: `epoch` from 1, and any of `loss`,
            `accuracy`, `val_loss`, `val_accuracy`, `learning_rate`. Missing,
            `None` and NaN values are left out.
        best_epoch: Epoch to mark, the one whose weights were kept.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    from matplotlib.ticker import MaxNLocator

    panels = [
        ("Loss", {"loss": "training", "val_loss": "validation"}),
        ("Accuracy", {"accuracy": "training", "val_accuracy": "validation"}),
        ("Learning rate", {"learning_rate": None}),
    ]
    panels = [
        (title, keys)
        for title, keys in panels
        if any(_series(history, key)[0] for key in keys)
    ]
    if not panels:
        raise NothingToDraw("the history has no values to draw")
    figure = new_figure(3.7 * len(panels), 3.4)
    entries = {}
    for axes, (title, keys) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        for key, label in keys.items():
            epochs, values = _series(history, key)
            if not epochs:
                continue
            color = VERMILION if key.startswith("val_") else BLUE
            marker = "o" if len(epochs) <= 15 else None
            lines = axes.plot(epochs, values, color=color, marker=marker)
            if label:
                entries.setdefault(label, lines[0])
            if key == "val_accuracy" and best_epoch in epochs:
                value = values[epochs.index(best_epoch)]
                rings = axes.plot(
                    [best_epoch],
                    [value],
                    linestyle="none",
                    marker="o",
                    markersize=8,
                    markerfacecolor="none",
                    markeredgecolor=INK,
                )
                entries[f"best: epoch {best_epoch}, {percent(value, 2)}"] = rings[0]
        if best_epoch is not None:
            axes.axvline(best_epoch, color=GRAY, linewidth=0.8, linestyle=":")
        axes.set_title(title)
        axes.set_xlabel("epoch")
        axes.grid(axis="y")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
        if title == "Accuracy":
            axes.yaxis.set_major_formatter(percent_axis())
        if title == "Learning rate":
            _rate_axis(axes)
        if len(history) == 1:
            axes.set_xlim(history[0]["epoch"] - 0.9, history[0]["epoch"] + 0.9)
    if entries:
        figure.legend(
            entries.values(), entries, loc="outside lower center", ncols=len(entries)
        )
    return figure


@styled
def confusion_matrix(confusion: Sequence[Sequence[int]], class_names: Sequence[str]):
    """How many images of each class were predicted as which class.

    The color is the share of the true class, on a square-root scale on which rare
    mistakes are visible. Up to 20 classes have their counts in the cells, and up to
    120 have their names at the edges. With still more classes, neighbors share a
    cell, which shows the largest of their shares. The row of a class without images
    is gray.

    Args:
        confusion: Square matrix of counts; rows are the truth.
        class_names: Name of every class.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    import matplotlib
    from matplotlib.colors import PowerNorm

    counts = np.asarray(confusion)
    classes = len(class_names)
    if counts.shape != (classes, classes):
        raise ValueError(
            f"{classes} class names need a {classes} x {classes} matrix. "
            f"Received: {counts.shape}"
        )
    annotated, labeled = classes <= MOST_ANNOTATED, classes <= MOST_LABELED
    side = float(np.clip(0.52 * classes, 2.2, 6.6)) if annotated else 9.0
    longest = min(max(len(str(name)) for name in class_names), 24)
    margin = 0.7 + (0.07 * longest if labeled else 0)
    figure = new_figure(side + margin + 0.8, side + margin, layout="compressed")
    axes = figure.subplots()
    total = counts.sum(axis=1, keepdims=True)
    share = np.full(counts.shape, np.nan)
    np.divide(counts, total, out=share, where=total > 0)
    step = 1 if labeled else math.ceil(classes / MOST_CELLS)
    edges = np.arange(0, classes, step)
    cells = np.fmax.reduceat(np.fmax.reduceat(share, edges, axis=0), edges, axis=1)
    image = axes.imshow(
        np.ma.masked_invalid(cells),
        extent=(-0.5, step * len(edges) - 0.5, step * len(edges) - 0.5, -0.5),
        cmap=matplotlib.colormaps["Blues"].with_extremes(bad="#bbbbbb"),
        norm=PowerNorm(0.5, 0, 1),
        interpolation="nearest",
    )
    axes.set_xlabel("predicted")
    axes.set_ylabel("truth")
    axes.spines[:].set_visible(False)
    if labeled:
        size = 9 if annotated else float(np.clip(0.8 * 72 * side / classes, 4.5, 8))
        names = [shortened(name, 24) for name in class_names]
        text = {"fontsize": size, "parse_math": False}
        slant = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        if not annotated:
            slant = {"rotation": 90}
        elif 0.08 * longest < side / classes:
            slant = {}
        axes.set_yticks(range(classes), names, **text)
        axes.set_xticks(range(classes), names, **text, **slant)
    axes.tick_params(length=0, pad=2)
    if annotated:
        _grid_between_cells(axes, classes)
        for row, column in zip(*np.nonzero(counts), strict=True):
            axes.text(
                column,
                row,
                f"{counts[row, column]}",
                ha="center",
                va="center",
                fontsize=8,
                color="white" if share[row, column] > 0.45 else INK,
            )
    bar = figure.colorbar(image, ax=axes, shrink=0.6, aspect=25, pad=0.02)
    bar.set_ticks([0, 0.05, 0.2, 0.5, 1])
    bar.formatter = percent_axis()
    bar.minorticks_off()
    bar.outline.set_visible(False)
    bar.set_label(
        "share of the true class"
        + (f", largest of {step} x {step} classes" if step > 1 else "")
    )
    return figure


@styled
def per_class_accuracy(per_class: Sequence[dict]):
    """Accuracy of every class with its 95 % interval, the lowest first.

    Classes without images are left out and counted below. More than 40 classes
    become two panels, the 20 lowest and the 20 highest.

    Args:
        per_class: Dictionaries with `name`, `count` and `accuracy`.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    seen = [row for row in per_class if row["accuracy"] is not None]
    if not seen:
        raise NothingToDraw("no class has an image")
    seen.sort(key=lambda row: row["accuracy"])
    half = MOST_BARS // 2
    if len(seen) > MOST_BARS:
        panels = {
            f"The {half} lowest": seen[:half],
            f"The {half} highest": seen[-half:],
        }
    else:
        panels = {"": seen}
    bars = max(len(rows) for rows in panels.values())
    figure = new_figure(5.4 * len(panels) + (len(panels) == 1), 0.21 * bars + 1.1)
    mean = sum(row["accuracy"] for row in seen) / len(seen)
    for axes, (title, rows) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        _bars(axes, rows)
        axes.axvline(mean, color=INK, linewidth=0.8, linestyle="--")
        axes.set_title(title)
        axes.set_ylim(bars - 0.4, -0.6)
    missing = len(per_class) - len(seen)
    figure.supxlabel(
        f"accuracy; dashed: mean of the classes, {percent(mean, 1)}"
        + (f"; not shown: {missing} without images" if missing else ""),
        fontsize=9,
    )
    return figure


@styled
def calibration(bins: Sequence[dict], ece: float):
    """Reliability diagram: accuracy by confidence, and how many images are there.

    Args:
        bins: Dictionaries with `low`, `high`, `count`, `confidence`, `accuracy`.
        ece: Expected calibration error.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    figure = new_figure(5.6, 5.6)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    rows = [row for row in bins if row["count"]]
    confidence = np.array([row["confidence"] for row in rows])
    accuracy = np.array([row["accuracy"] for row in rows])
    top.plot([0, 1], [0, 1], color=GRAY, linestyle="--", linewidth=1, label="perfect")
    top.errorbar(
        confidence,
        accuracy,
        yerr=_error_bars(rows),
        color=BLUE,
        marker="o",
        elinewidth=1,
        label="model, with 95 % intervals",
    )
    top.set_title(f"Expected calibration error {percent(ece, 2)}")
    top.set_ylabel("accuracy")
    top.set_ylim(-0.03, 1.03)
    top.set_xlim(-0.03, 1.03)
    top.grid()
    top.legend(loc="upper left")
    top.yaxis.set_major_formatter(percent_axis())

    bottom.bar(
        [(row["low"] + row["high"]) / 2 for row in bins],
        [row["count"] for row in bins],
        width=[0.9 * (row["high"] - row["low"]) for row in bins],
        color=BLUE,
    )
    for row in rows:
        bottom.annotate(
            _compact(row["count"]),
            ((row["low"] + row["high"]) / 2, row["count"]),
            (0, 1.5),
            textcoords="offset points",
            ha="center",
            fontsize=7,
        )
    bottom.margins(y=0.2)
    bottom.set_yticks([])
    bottom.spines["left"].set_visible(False)
    bottom.set_ylabel("images")
    bottom.set_xlabel("confidence")
    bottom.xaxis.set_major_formatter(percent_axis())
    return figure


def _compact(count):
    return f"{count}" if count < 10_000 else f"{count / 1000:.0f}k"


def _series(history, key):
    rows = [(row["epoch"], row.get(key)) for row in history]
    rows = [row for row in rows if row[1] is not None and math.isfinite(row[1])]
    return [epoch for epoch, _ in rows], [value for _, value in rows]


def _rate_axis(axes):
    """Puts the power of ten into the title, because rates are small."""
    highest = max(axes.lines[0].get_ydata())
    power = math.floor(math.log10(highest)) if highest > 0 else 0
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda rate, _: f"{rate / 10.0**power:g}")
    if power:
        axes.set_title(f"Learning rate / 1e{power}")


def _grid_between_cells(axes, classes):
    edges = np.arange(1, classes) - 0.5
    axes.set_xticks(edges, minor=True)
    axes.set_yticks(edges, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.2)
    axes.tick_params(which="minor", length=0)


def _error_bars(rows):
    """Distances from the accuracies to the ends of their intervals."""
    ends = [
        wilson_interval(round(row["accuracy"] * row["count"]), row["count"])
        for row in rows
    ]
    accuracy = np.array([row["accuracy"] for row in rows])
    low, high = np.array(ends).T
    return np.clip([accuracy - low, high - accuracy], 0, None)


def _bars(axes, rows):
    accuracy = [row["accuracy"] for row in rows]
    names = [f"{shortened(row['name'], 28)} ({_compact(row['count'])})" for row in rows]
    places = range(len(rows))
    axes.barh(places, accuracy, height=0.72, color=SKY)
    axes.errorbar(
        accuracy,
        places,
        xerr=_error_bars(rows),
        linestyle="none",
        ecolor=INK,
        elinewidth=1,
    )
    axes.set_yticks(places, names, fontsize=8, parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(percent_axis())
    axes.grid(axis="x")
    for place, value in zip(places, accuracy, strict=True):
        axes.annotate(
            percent(value, 1),
            (1, place),
            (38, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=8,
        )
