"""The report of a training run, as one HTML file that needs no other."""

import base64
import html
import io
import os
import pathlib
import string
import warnings
from collections.abc import Mapping
from collections.abc import Sequence
from importlib import resources

import numpy as np

from cct_keras.atomic_file import atomic_file
from cct_keras.report import figures
from cct_keras.report import pictures
from cct_keras.report.style import NothingToDraw

# Twice the pixels of a CSS inch, for sharp letters on screens with small pixels.
DOTS_PER_INCH = 192
WIDE_INCHES = 7
FREQUENT_CONFUSIONS = 10


def write_report(
    path: str | os.PathLike,
    *,
    title: str,
    metrics: Mapping,
    history: Sequence[Mapping],
    class_names: Sequence[str],
    examples: Mapping,
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
        examples: `images`, `truths`, `predictions` and `confidences` as for
            `pictures.mistakes`, or an empty dictionary.
        facts: How the run can be repeated: command, versions, recipe.
        notes: Paragraphs at the end of the report.
    """
    test = metrics["test"]
    sections = [
        _curves(history, (metrics.get("validation") or {}).get("epoch")),
        _confusion(test, class_names),
        _per_class(test),
        _calibration(test),
        _mistakes(test, examples),
        _facts(facts),
        _notes(notes),
    ]
    page = string.Template(
        resources.files("cct_keras.report").joinpath("template.html").read_text("utf-8")
    ).substitute(
        title=_escape(title),
        headline=_headline(test),
        tiles=_tiles(metrics),
        sections="\n".join(section for section in sections if section),
    )
    with atomic_file(pathlib.Path(path)) as temporary:
        # Names of files, and so names of classes, need not be Unicode.
        temporary.write_bytes(page.encode("utf-8", "backslashreplace"))


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
    try:
        figure = figures.learning_curves(history, best_epoch)
    except NothingToDraw:
        return ""
    return _section("Learning curves", _image(figure, "svg", "Learning curves"))


def _confusion(test, class_names):
    counts = np.array(test["confusion"])
    picture = _image(
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
        picture += _details(
            "The most frequent confusions",
            _table(("Truth", "Predicted", "Images"), rows, numbers=1),
        )
    return _section("Confusion", picture)


def _per_class(test):
    rows = [
        (
            row["name"],
            f"{row['count']:,}",
            "no image" if row["accuracy"] is None else _percent(row["accuracy"]),
        )
        for row in test["per_class"]
    ]
    return _section(
        "Accuracy by class",
        _image(
            figures.per_class_accuracy(test["per_class"]), "svg", "Accuracy by class"
        ),
        _details(
            "All classes", _table(("Class", "Images", "Accuracy"), rows, numbers=2)
        ),
    )


def _calibration(test):
    return _section(
        "Calibration",
        "<p>Above the dashed line the model is right more often than it claims, "
        "below it less often.</p>",
        _image(
            figures.calibration(test["calibration"], test["ece"]),
            "svg",
            "Accuracy by confidence",
        ),
    )


def _mistakes(test, examples):
    wrong = test["count"] - int(np.trace(np.array(test["confusion"])))
    if len(examples.get("images", ())):
        keys = ("images", "truths", "predictions", "confidences")
        figure = pictures.mistakes(*(examples[key] for key in keys))
        body = _image(figure, "png", "Misclassified pictures")
    elif wrong:
        body = f"<p>No pictures of the {wrong:,} mistakes were kept.</p>"
    else:
        body = "<p>There was no mistake: every test image was classified correctly.</p>"
    return _section("Mistakes", body)


def _facts(facts):
    rows = "\n".join(
        f'<tr><th scope="row">{_escape(key)}</th><td>{_escape(value)}</td></tr>'
        for key, value in facts.items()
    )
    return rows and _section("Facts", f'<table class="facts">\n{rows}\n</table>')


def _notes(notes):
    rows = "\n".join(f"<li>{_escape(note)}</li>" for note in notes)
    return rows and _section("Notes", f"<ul>\n{rows}\n</ul>")


def _section(heading, *parts):
    body = "\n".join(parts)
    return f"<section>\n<h2>{heading}</h2>\n{body}\n</section>"


def _details(summary, body):
    return f"<details>\n<summary>{summary}</summary>\n{body}\n</details>"


def _table(heads, rows, numbers):
    """A table whose last `numbers` columns are aligned to the right."""

    def line(tag, cells):
        classes = [""] * (len(cells) - numbers) + [' class="number"'] * numbers
        return "".join(
            f"<{tag}{kind}>{_escape(cell)}</{tag}>"
            for kind, cell in zip(classes, cells, strict=True)
        )

    body = "\n".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return (
        f"<table>\n<thead><tr>{line('th', heads)}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>"
    )


def _image(figure, kind, text):
    """A figure as an `img` element that holds its own data."""
    import matplotlib

    file = io.BytesIO()
    # No date and no random ids, so that the same run has the same report.
    metadata = {"Date": None} if kind == "svg" else {}
    style = {"svg.hashsalt": "cct_keras", "svg.fonttype": "path"}
    with warnings.catch_warnings(), matplotlib.rc_context(style):
        # Letters that the font of the figures lacks are readable in the tables.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(
            file, format=kind, dpi=DOTS_PER_INCH, facecolor="white", metadata=metadata
        )
    data = base64.b64encode(file.getvalue()).decode()
    media = "image/svg+xml" if kind == "svg" else "image/png"
    inches = figure.get_figwidth()
    wide = ' class="wide"' if inches > WIDE_INCHES else ""
    return (
        f'<figure><img{wide} alt="{_escape(text)}" style="width:{inches:.2f}in" '
        f'src="data:{media};base64,{data}"></figure>'
    )


def _escape(text):
    return html.escape(str(text))


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
