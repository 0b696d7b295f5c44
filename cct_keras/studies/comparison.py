"""What `study` and `compare` return: runs in groups, and what they tell together."""

import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Mapping

import numpy as np

from cct_keras.atomic_file import atomic_file
from cct_keras.errors import RunError
from cct_keras.studies import figures
from cct_keras.studies.finished import FinishedRun
from cct_keras.studies.page import write_comparison
from cct_keras.studies.statistics import deviation_of
from cct_keras.studies.statistics import image_p_value
from cct_keras.studies.statistics import interval_of_mean
from cct_keras.studies.texts import text_lines


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """Runs side by side, in groups that differ in the seed or in the fold alone.

    `print` shows the table. The first group is the one that the others are compared
    with, run by run: those of the same seed, or of the same fold, are a pair.

    Attributes:
        title: What was compared, in words.
        groups: The runs by what tells their group from the others.
        settings: By the name of each setting that differs between the groups, its value
            in each of them.
        notes: What a user should know, a line each.
        warnings: Why the runs cannot be compared as they stand, a line each.
        facts: How it can be repeated.

    Example:

    >>> comparison = cct_keras.study("digits", seeds=2)  # minutes # doctest: +SKIP
    >>> comparison.table[0]["mean"], comparison.table[0]["ci95"]  # doctest: +SKIP
    (0.9958333333333333, (0.9781862023932632, 1.0134804642734035))
    """

    title: str
    groups: Mapping[str, list[FinishedRun]]
    settings: Mapping[str, list] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def runs(self) -> list[FinishedRun]:
        """All runs, group by group."""
        return [run for runs in self.groups.values() for run in runs]

    @functools.cached_property
    def table(self) -> list[dict]:
        """A row for each group, as plain values.

        - `name`: what tells the group from the others; `runs`: how many have a result;
          `failed`: how many have none.
        - `mean`: mean accuracy on the test images; `std`: its standard deviation over
          the runs; `ci95`: Student's 95 % interval of the mean.
        - `validation`: mean accuracy on the validation images, by which to choose.
        - `difference`: mean of the differences in accuracy from the first group, over
          the `pairs` of runs of the same seed or fold that were measured on the same
          images; `difference_ci95`: Student's 95 % interval of it.
        - `images_p`: how often such a difference comes about by chance, over the test
          images of these pairs; with one pair it is McNemar's exact test.
        - `seconds`: mean time of training; `epochs`: mean number of epochs.

        What cannot be known is `None`.
        """
        rows, first = [], None
        for name, runs in self.groups.items():
            done = _with_result(runs)
            first = done if first is None else first
            rows.append({**_describe(name, runs), **_differences(done, first)})
        if rows:
            # Nothing differs from itself.
            rows[0] |= dict.fromkeys(
                ("difference", "difference_ci95", "pairs", "images_p")
            )
        return rows

    def __str__(self):
        lines = text_lines(self.table)
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines + [f"warning: {warning}" for warning in self.warnings])

    def plot(self) -> dict:
        """Draws the accuracies, their differences and the curves.

        Returns:
            `{name: matplotlib.figure.Figure}` with `accuracy`, and any of
            `differences`, `validation accuracy`, `validation loss` and `training loss`.
        """
        return figures.draw_all(self)

    def pairs_with_first(self, name: str) -> list[tuple[FinishedRun, FinishedRun]]:
        """Runs of the first group and of another, of the same seed or fold.

        Args:
            name: The other group.
        """
        first = next(iter(self.groups.values()), [])
        return _pairs(_with_result(first), _with_result(self.groups[name]))

    def to_dict(self) -> dict:
        """Everything as plain values, which `json.dumps` takes."""
        return {
            "title": self.title,
            "table": self.table,
            "settings": dict(self.settings),
            "runs": [
                {
                    "name": run.name,
                    "group": group,
                    "seed": run.settings.get("seed"),
                    "fold": run.settings.get("fold"),
                    "top1": run.top1 if run.metrics else None,
                    "validation": run.validation if run.metrics else None,
                    "failure": run.failure,
                }
                for group, runs in self.groups.items()
                for run in runs
            ],
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            "facts": dict(self.facts),
        }

    def save(self, folder: str | os.PathLike, name: str = "comparison") -> pathlib.Path:
        """Writes the table and the page.

        Args:
            folder: Where to write; it is made if it does not exist.
            name: Of the two files, which end in `.json` and `.html`.

        Returns:
            The page.
        """
        folder = pathlib.Path(folder)
        page = folder / f"{name}.html"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.save_table(folder / f"{name}.json")
            write_comparison(page, self)
        except OSError as error:
            raise RunError(f"cannot write to {folder}: {error}") from error
        return page

    def save_table(self, path: pathlib.Path) -> None:
        """Writes the table alone, as JSON.

        Args:
            path: The file.
        """
        with atomic_file(path) as temporary:
            temporary.write_text(json.dumps(self.to_dict(), indent=2) + "\n")


# === Rows ===


def _with_result(runs):
    return [run for run in runs if run.metrics]


def _describe(name, runs):
    done = _with_result(runs)
    accuracies = [run.top1 for run in done]
    return {
        "name": name,
        "runs": len(done),
        "failed": len(runs) - len(done),
        "mean": _mean(accuracies),
        "std": deviation_of(accuracies),
        "ci95": interval_of_mean(accuracies),
        "validation": _mean([run.validation for run in done]),
        "seconds": _mean([run.metrics["seconds"] for run in done]),
        "epochs": _mean([len(run.history) for run in done]),
    }


def _mean(values):
    return float(np.mean(values)) if values else None


def _pairs(first, others):
    """Pairs of the same seed and fold that were measured on the same images."""
    by_repeat = {run.repeat: run for run in reversed(first)}
    pairs = [(by_repeat.get(run.repeat), run) for run in others]
    return [(a, b) for a, b in pairs if a is not None and a.has_test_images_of(b)]


def _differences(runs, first):
    pairs = _pairs(first, runs)
    values = [b.top1 - a.top1 for a, b in pairs]
    return {
        "difference": _mean(values),
        "difference_ci95": interval_of_mean(values),
        "pairs": len(pairs),
        "images_p": _images_p(pairs),
    }


def _images_p(pairs):
    """Of all images; the answers of several pairs to the same images are summed."""
    sums = {}
    for a, b in pairs:
        known = a.correct is not None and b.correct is not None
        if not known or len(a.correct) != len(b.correct):
            return None
        images = a.metrics.get("test_fingerprint") or a.metrics.get("fingerprint")
        gain = b.correct.astype("int64") - a.correct
        sums[images] = sums.get(images, 0) + gain
    return image_p_value(np.concatenate(list(sums.values()))) if sums else None
