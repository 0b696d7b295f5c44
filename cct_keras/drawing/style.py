"""The look of all figures, which depends neither on pyplot nor on the user's style."""

import functools

# The colors of Okabe and Ito, which color-blind readers can tell apart.
BLUE, SKY, VERMILION = "#0072B2", "#56B4E9", "#D55E00"
INK, GRAY, PALE = "#222222", "#6b6b6b", "#d9d9d9"
STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GRAY,
    "axes.axisbelow": True,
    "grid.color": PALE,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor"), INK),
}


class NothingToDraw(ValueError):
    """A figure was asked for that would be empty."""


def styled(draw):
    """Lets a function draw with `STYLE`, whatever style the user has set.

    Args:
        draw: A function that returns a `matplotlib.figure.Figure`.

    Returns:
        The function, as a decorator has to return it.
    """

    @functools.wraps(draw)
    def draw_with_style(*args, **kwargs):
        import matplotlib.style

        with matplotlib.style.context(["default", STYLE]):
            figure = draw(*args, **kwargs)
            for axes in figure.axes:
                # Ticks are made later, outside the style.
                axes.tick_params(color=GRAY, labelcolor=INK)
        return figure

    return draw_with_style


def new_figure(width: float, height: float, layout: str = "constrained"):
    """An empty figure.

    Args:
        width: In inches.
        height: In inches.
        layout: Layout engine of matplotlib.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout=layout, facecolor="white")


def percent_axis():
    """A formatter for an axis of shares.

    Returns:
        A `matplotlib.ticker.Formatter`.
    """
    from matplotlib.ticker import PercentFormatter

    return PercentFormatter(1, symbol=" %")


def percent(share: float, digits: int = 0) -> str:
    """A share in percent.

    Args:
        share: From 0 to 1.
        digits: Digits after the point.

    Example:

    >>> percent(0.5)
    '50 %'
    """
    return f"{100 * share:.{digits}f} %"


def shortened(name, limit: int) -> str:
    """A name that is at most so long, with a gap in the middle.

    Args:
        name: The name.
        limit: Number of characters.

    Example:

    >>> shortened("a very long name of a class, 17", 15)
    'a very lo…s, 17'
    """
    # Names of folders need not be Unicode, and fonts refuse what is not.
    name = str(name).encode("utf-8", "replace").decode()
    name = " ".join(name.split())
    if len(name) <= limit:
        return name
    # Long names often differ at their ends.
    tail = limit // 3
    return f"{name[: limit - tail - 1].rstrip()}…{name[-tail:].lstrip()}"
