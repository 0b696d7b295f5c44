"""Figures of several runs: accuracies, differences, and the curves side by side."""

import math

import numpy as np

from cct_keras.drawing.style import BLUE
from cct_keras.drawing.style import GRAY
from cct_keras.drawing.style import INK
from cct_keras.drawing.style import SKY
from cct_keras.drawing.style import NothingToDraw
from cct_keras.drawing.style import new_figure
from cct_keras.drawing.style import percent
from cct_keras.drawing.style import percent_axis
from cct_keras.drawing.style import shortened
from cct_keras.drawing.style import styled
from cct_keras.studies.statistics import interval_of_mean

CURVES = {
    "validation accuracy": "val_accuracy",
    "validation loss": "val_loss",
    "training loss": "loss",
}
# Panels of curves in a row, and in all; rows of dots.
PANELS_A_ROW = 4
MOST_PANELS = 24
MOST_ROWS = 60


def draw_all(comparison) -> dict:
    """Every figure that has something to show.

    Args:
        comparison: A `Comparison`.

    Returns:
        `{name: matplotlib.figure.Figure}`.
    """
    drawings = {
        "accuracy": lambda: accuracies(comparison),
        "differences": lambda: differences(comparison),
        **{
            name: lambda key=key, name=name: curves(comparison, key, name)
            for name, key in CURVES.items()
        },
    }
    found = {}
    for name, draw in drawings.items():
        try:
            found[name] = draw()
        except NothingToDraw:
            continue
    return found


@styled
def accuracies(comparison):
    """The test accuracy of every run, and the mean of each group with its interval.

    Args:
        comparison: A `Comparison`.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    groups = {
        name: [run.top1 for run in runs if run.metrics]
        for name, runs in comparison.groups.items()
    }
    figure = _dots(groups, percent, "test accuracy", "run")
    figure.axes[0].xaxis.set_major_formatter(percent_axis())
    return figure


@styled
def differences(comparison):
    """How each group differs from the first, pair by pair, in points.

    Args:
        comparison: A `Comparison`.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    names = list(comparison.groups)
    groups = {
        name: [100 * (b.top1 - a.top1) for a, b in comparison.pairs_with_first(name)]
        for name in names[1:]
    }
    if not any(groups.values()):
        raise NothingToDraw("there are no pairs")
    label = f"difference of test accuracy from {shortened(names[0], 40)}, in points"
    figure = _dots(groups, lambda value, _: f"{value:+.2f}", label, "pair of runs")
    figure.axes[0].axvline(0, color=INK, linewidth=0.8, linestyle="--")
    return figure


@styled
def curves(comparison, key: str, title: str):
    """A panel of curves for each group, over the mean of the first group.

    Args:
        comparison: A `Comparison`.
        key: What of the history to draw.
        title: What it is, in words.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    from matplotlib.ticker import MaxNLocator

    groups = {
        name: [x for x in (_series(run.history, key) for run in runs) if len(x[0])]
        for name, runs in comparison.groups.items()
    }
    groups = {name: lines for name, lines in groups.items() if lines}
    if not groups:
        raise NothingToDraw(f"no run has a {title}")
    first = next(iter(groups))
    shown = list(groups)[:MOST_PANELS]
    rows = math.ceil(len(shown) / PANELS_A_ROW)
    columns = math.ceil(len(shown) / rows)
    figure = new_figure(max(4.6, 2.9 * columns), 2.5 * rows + 0.5)
    panels = figure.subplots(
        rows, columns, squeeze=False, sharex=True, sharey=True
    ).ravel()
    short = max(len(x) for lines in groups.values() for x, _ in lines) <= 15
    marker = {"marker": "o", "markersize": 3} if short else {}
    handles = {}
    for axes, name in zip(panels, shown, strict=False):
        if name != first:
            (handles[f"mean of {shortened(first, 40)}"],) = axes.plot(
                *_mean_line(groups[first]), color=GRAY, linestyle="--", linewidth=1.4
            )
        for x, y in groups[name]:
            (handles["one run"],) = axes.plot(
                x, y, color=SKY, linewidth=1, alpha=0.9, **marker
            )
        (handles["mean"],) = axes.plot(
            *_mean_line(groups[name]), color=BLUE, linewidth=1.8, **marker
        )
        axes.set_title(shortened(name, 36), parse_math=False, fontsize=9)
        axes.grid(axis="y")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
        axes.tick_params(labelbottom=True)
        if "accuracy" in key:
            axes.yaxis.set_major_formatter(percent_axis())
        if max(len(x) for lines in groups.values() for x, _ in lines) == 1:
            axes.set_xlim(0.1, 1.9)
    for axes in panels[len(shown) :]:
        axes.set_visible(False)
    # The lowest panel of each column.
    for axes in panels[max(0, len(shown) - columns) : len(shown)]:
        axes.set_xlabel("epoch")
    missing = len(groups) - len(shown)
    if missing:
        figure.suptitle(f"not shown: {missing} further", fontsize=9)
    figure.supylabel(title, fontsize=9)
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=len(handles)
    )
    return figure


def _dots(groups, text, label, dot):
    """A row of dots for each group, with the mean and its interval in another color."""
    if not any(groups.values()):
        raise NothingToDraw("no run has a result")
    shown = dict(list(groups.items())[:MOST_ROWS])
    figure = new_figure(7.2, 0.42 * len(shown) + 1.3)
    axes = figure.subplots()
    handles = {}
    for place, values in enumerate(shown.values()):
        if not values:
            continue
        (handles[f"one {dot}"],) = axes.plot(
            values,
            [place] * len(values),
            linestyle="none",
            marker="o",
            markersize=5,
            markerfacecolor="none",
            markeredgecolor=SKY,
            markeredgewidth=1.3,
        )
        mean, interval = float(np.mean(values)), interval_of_mean(values)
        (handles["mean"],) = axes.plot(
            [mean], [place], linestyle="none", marker="D", markersize=5, color=BLUE
        )
        if interval is not None:
            handles["95 % interval of the mean"] = axes.hlines(
                place, *interval, color=BLUE, linewidth=1.6
            )
        axes.annotate(
            text(mean, 2),
            (1, place),
            (48, 0),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=8.5,
        )
    names = [shortened(name, 40) for name in shown]
    axes.set_yticks(range(len(shown)), names, parse_math=False)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    missing = len(groups) - len(shown)
    axes.set_xlabel(
        label + (f"; not shown: {missing} further" if missing else ""),
        parse_math=False,
    )
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=len(handles)
    )
    return figure


def _series(history, key):
    rows = [(row["epoch"], row.get(key)) for row in history]
    rows = [(x, y) for x, y in rows if y is not None and math.isfinite(y)]
    return [x for x, _ in rows], [y for _, y in rows]


def _mean_line(lines):
    """The mean of several curves, at the epochs that all of them have."""
    epochs = sorted(set.intersection(*(set(x) for x, _ in lines)))
    values = [
        np.mean([dict(zip(x, y, strict=True))[epoch] for x, y in lines])
        for epoch in epochs
    ]
    return epochs, values
