"""The page of several runs, as one HTML file that needs no other."""

import os
import pathlib
from urllib.parse import quote

from cct_keras.drawing.html import details
from cct_keras.drawing.html import escape
from cct_keras.drawing.html import facts_section
from cct_keras.drawing.html import figure_element
from cct_keras.drawing.html import notes_section
from cct_keras.drawing.html import section
from cct_keras.drawing.html import table
from cct_keras.drawing.html import write_page
from cct_keras.run_files import REPORT
from cct_keras.studies.plan import value_text
from cct_keras.studies.texts import HEADS
from cct_keras.studies.texts import cells

# What the figures show, above them.
HEADINGS = {
    "accuracy": "Test accuracy",
    "differences": "Differences from the first",
    "validation accuracy": "Validation accuracy",
    "validation loss": "Validation loss",
    "training loss": "Training loss",
}
STYLE = """.scroll { overflow-x: auto; }
.scroll th, .scroll td { overflow-wrap: normal; }
"""


def write_comparison(path: pathlib.Path, comparison) -> None:
    """Writes the page of a comparison, which appears complete or not at all.

    Args:
        path: The HTML file, in an existing folder.
        comparison: A `Comparison`.
    """
    figures = comparison.plot()
    write_page(
        path,
        comparison.title,
        [
            _table(comparison.table),
            *(
                section(
                    HEADINGS[name],
                    *_explanation(name),
                    figure_element(figure, "svg", HEADINGS[name]),
                )
                for name, figure in figures.items()
            ),
            _settings(comparison),
            _runs(comparison, path.parent),
            facts_section(comparison.facts),
            notes_section((*comparison.warnings, *comparison.notes)),
        ],
        style=STYLE,
    )


def _table(rows):
    heads, *lines = cells(rows)
    differ = len(heads) > len(HEADS)
    meaning = (
        "<p>Test and validation are means over the runs, the deviation is that of one "
        "run, and the interval is Student's, of the mean."
    )
    if differ:
        meaning += (
            " Differences are in points, from the first row, over pairs of runs of the "
            "same seed or fold; an interval without 0 tells that other seeds would "
            "agree. The last column tells how often chance over the test images "
            "alone makes such a difference."
        )
    text = table(heads, lines, numbers=len(heads) - 1)
    return f'<div class="scroll">\n{text}\n</div>\n{meaning}</p>'


def _explanation(name):
    if name.startswith(("validation", "training")):
        yield (
            "<p>A panel for each row of the table, all on the same axes; the dashed "
            "line is the mean of the first.</p>"
        )


def _settings(comparison):
    rows = [
        (name, *(value_text(value) for value in values))
        for name, values in comparison.settings.items()
    ]
    if not rows:
        return ""
    heads = ("Setting", *comparison.groups)
    text = table(heads, rows, numbers=0)
    return section("What differs", f'<div class="scroll">\n{text}\n</div>')


def _runs(comparison, folder):
    rows = []
    for group, runs in comparison.groups.items():
        for run in runs:
            if run.metrics:
                values = (
                    f"{run.validation:.2%}",
                    f"{run.top1:.2%}",
                    str(run.metrics["validation"].get("epoch", "-")),
                    str(len(run.history)),
                    f"{run.metrics['seconds'] / 60:.1f}",
                )
            else:
                values = (escape(run.failure or "failed"), "-", "-", "-", "-")
            numbers = "".join(f'<td class="number">{text}</td>' for text in values)
            rows.append(
                f"<tr><td>{_link(run, folder)}</td><td>{escape(group)}</td>{numbers}"
                "</tr>"
            )
    heads = ("Validation", "Test", "Best epoch", "Epochs", "Minutes")
    head = "".join(f'<th class="number">{name}</th>' for name in heads)
    body = "\n".join(rows)
    text = (
        f"<table>\n<thead><tr><th>Run</th><th></th>{head}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>"
    )
    return section("Runs", details("All runs", f'<div class="scroll">{text}</div>'))


def _link(run, folder):
    """The name of a run, which leads to its report if there is one."""
    if run.folder is None or not (run.folder / REPORT).is_file():
        return escape(run.name)
    try:
        address = os.path.relpath(run.folder / REPORT, folder)
    except ValueError:  # On another drive.
        return escape(run.name)
    address = escape(quote(pathlib.Path(address).as_posix()))
    return f'<a href="{address}">{escape(run.name)}</a>'
