"""The report of a training run, as one HTML file that needs no other."""

import os
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from cct_keras.drawing.html import details
from cct_keras.drawing.html import escape
from cct_keras.drawing.html import facts_section
from cct_keras.drawing.html import figure_element
from cct_keras.drawing.html import notes_section
from cct_keras.drawing.html import section
from cct_keras.drawing.html import table
from cct_keras.drawing.html import write_page
from cct_keras.drawing.style import NothingToDraw
from cct_keras.explaining.cards import card_style
from cct_keras.explaining.explanation import Explanation
from cct_keras.inference.evaluate import Mistake
from cct_keras.report import figures
from cct_keras.report.mistakes_page import MISTAKES_PAGE
from cct_keras.report.mistakes_page import mistake_cards

FREQUENT_CONFUSIONS = 10


def write_report(
    path: str | os.PathLike,
    *,
    title: str,
    metrics: Mapping,
    history: Sequence[Mapping],
    class_names: Sequence[str],
    mistakes: Sequence[Mistake] = (),
    explanation: Explanation | None = None,
    lesson: tuple[Mapping, Sequence[Mapping]] | None = None,
    facts: Mapping[str, str],
    notes: Sequence[str],
) -> None:
    """Writes the report of a training run.

    The file holds everything it shows and refers to nothing outside. It appears
    complete or not at all.

    Args:
        path: The HTML file, in an existing folder.
        title: Heading.
        metrics: `test`, and possibly `validation`, as of
            `classification_metrics`, and any of `seconds`, `images_per_second`,
            `parameters`, `macs`.
        history: As for `figures.learning_curves`; empty if nothing was trained.
        class_names: Name of every class.
        mistakes: Mistakes to show.
        explanation: Where the model looked in them, in the same order; needed if there
            are any.
        lesson: Metrics and history of the teacher, if one was trained for the run.
        facts: How the run can be repeated: command, versions, recipe.
        notes: Paragraphs at the end of the report.
    """
    test = metrics["test"]
    sections = [
        _curves(history, (metrics.get("validation") or {}).get("epoch")),
        _teacher(lesson),
        _confusion(test, class_names),
        _per_class(test),
        _calibration(test),
        _mistakes(test, mistakes, explanation),
        facts_section(facts),
        notes_section(notes),
    ]
    write_page(
        path,
        title,
        [_headline(test), _tiles(metrics), *sections],
        style=card_style(),
    )


def _headline(test):
    low, high = test["top1_ci95"]
    count = test["count"]
    return (
        f'<p class="headline"><strong>{_percent(test["top1"])}</strong>'
        f"top-1 accuracy on {count:,} test {'image' if count == 1 else 'images'}; "
        f"95 % interval {_percent(low)} to {_percent(high)}</p>"
    )


def _tiles(metrics):
    test, validation = metrics["test"], metrics.get("validation") or {}
    tiles = {
        "Top-5": (test["top5"], _percent),
        "Validation top-1": (validation.get("top1"), _percent),
        "Loss": (test["loss"], "{:.4f}".format),
        "Calibration error": (test["ece"], _percent),
        "Parameters": (metrics.get("parameters"), _quantity),
        "MACs per image": (metrics.get("macs"), _quantity),
        "Images / s": (metrics.get("images_per_second"), _rate),
        "Wall time": (metrics.get("seconds"), _duration),
    }
    rows = "\n".join(
        f"<div><dt>{label}</dt><dd>{show(value)}</dd></div>"
        for label, (value, show) in tiles.items()
        if value is not None
    )
    return f'<dl class="tiles">\n{rows}\n</dl>'


def _curves(history, best_epoch):
    figure = _curves_figure(history, best_epoch, "Learning curves")
    return figure and section("Learning curves", figure)


def _curves_figure(history, best_epoch, label):
    try:
        figure = figures.learning_curves(history, best_epoch)
    except NothingToDraw:
        return ""
    return figure_element(figure, "svg", label)


def _teacher(lesson):
    if lesson is None:
        return ""
    metrics, history = lesson
    validation = metrics["validation"]
    return section(
        "Teacher",
        f"<p>A convnet of {_quantity(metrics['parameters'])} parameters was trained "
        f"first, on the same images: {metrics['epochs']} "
        f"{'epoch' if metrics['epochs'] == 1 else 'epochs'} in "
        f"{_duration(metrics['seconds'])}. It is right for "
        f"{_percent(metrics['test']['top1'])} of the test images and "
        f"{_percent(validation['top1'])} of the validation images.</p>",
        _curves_figure(history, validation["epoch"], "Learning curves of the teacher"),
    )


def _confusion(test, class_names):
    counts = np.array(test["confusion"])
    picture = figure_element(
        figures.confusion_matrix(counts, class_names), "png", "Confusion matrix"
    )
    np.fill_diagonal(counts, 0)
    order = np.argsort(-counts, axis=None, kind="stable")[:FREQUENT_CONFUSIONS]
    pairs = [divmod(int(cell), len(class_names)) for cell in order]
    rows = [
        (class_names[truth], class_names[predicted], f"{counts[truth, predicted]:,}")
        for truth, predicted in pairs
        if counts[truth, predicted]
    ]
    if rows:
        picture += details(
            "The most frequent confusions",
            table(("Truth", "Predicted", "Images"), rows, numbers=1),
        )
    return section("Confusion", picture)


def _per_class(test):
    rows = [
        (
            row["name"],
            f"{row['count']:,}",
            "no image" if row["accuracy"] is None else _percent(row["accuracy"]),
        )
        for row in test["per_class"]
    ]
    return section(
        "Accuracy by class",
        figure_element(
            figures.per_class_accuracy(test["per_class"]), "svg", "Accuracy by class"
        ),
        details("All classes", table(("Class", "Images", "Accuracy"), rows, numbers=2)),
    )


def _calibration(test):
    return section(
        "Calibration",
        "<p>Above the dashed line the model is right more often than it claims, "
        "below it less often.</p>",
        figure_element(
            figures.calibration(test["calibration"], test["ece"]),
            "svg",
            "Accuracy by confidence",
        ),
    )


def _mistakes(test, mistakes, explanation):
    wrong = test["count"] - int(np.trace(np.array(test["confusion"])))
    if mistakes:
        cards = mistake_cards(mistakes, explanation)
        body = (
            "<p>The mistakes of which the model was most confident, each beside where "
            f"it looked for its answer ({escape(explanation.method)}: a value is the "
            f"{escape(explanation.meaning)}). Those of the training and validation "
            f'images are on <a href="{MISTAKES_PAGE}">another page</a>: pictures there '
            "are probably mislabelled.</p>\n"
            f"{cards}"
        )
    elif wrong:
        body = f"<p>No pictures of the {wrong:,} mistakes were kept.</p>"
    else:
        body = "<p>There was no mistake: every test image was classified correctly.</p>"
    return section("Mistakes", body)


def _percent(share):
    return f"{100 * share:.2f} %"


def _rate(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _quantity(value):
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.2f} {unit}"
    return f"{value:g}"


def _duration(seconds):
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{seconds:.1f} s"
