"""One finished run of a study, from its folder or as it was just trained."""

import dataclasses
import pathlib

import numpy as np

from cct_keras.errors import RunError
from cct_keras.recipes.run_settings import recorded_split_seed
from cct_keras.run_files import METRICS
from cct_keras.run_files import PLAN
from cct_keras.run_files import SETTINGS
from cct_keras.run_files import read_history
from cct_keras.run_files import read_json
from cct_keras.run_files import read_predictions


@dataclasses.dataclass(frozen=True, eq=False)
class FinishedRun:
    """One run of a study or of a comparison.

    Attributes:
        name: What tells it from the others: its folder.
        settings: What it was trained with, as `run.json` holds it.
        metrics: What `metrics.json` holds; empty if it failed.
        history: A dictionary for each epoch.
        correct: Whether each test image was classified correctly, where it is known.
        folder: Its folder, if there is one.
        failure: Why it has no result, if it has none.
    """

    name: str
    settings: dict
    metrics: dict
    history: list[dict]
    correct: np.ndarray | None = None
    folder: pathlib.Path | None = None
    failure: str | None = None

    @property
    def top1(self) -> float:
        """Accuracy on the test images."""
        return self.metrics["test"]["top1"]

    @property
    def validation(self) -> float:
        """Accuracy of the best epoch on the validation images."""
        return self.metrics["validation"]["top1"]

    @property
    def repeat(self) -> tuple:
        """What pairs it with a run of other settings: its fold and its seed."""
        return self.settings.get("fold"), self.settings.get("seed")

    @property
    def splits(self) -> tuple:
        """By what its splits were cut off: the seed, and the fold if it is one."""
        settings = self.settings
        return (
            recorded_split_seed(settings),
            settings.get("folds"),
            settings.get("fold"),
        )

    def has_test_images_of(self, other: "FinishedRun") -> bool:
        """Whether both were measured on the same images."""
        for name in ("test_fingerprint", "fingerprint"):
            mine, theirs = self.metrics.get(name), other.metrics.get(name)
            if mine and theirs:
                return mine == theirs
        return False


def read_run(folder: pathlib.Path, name: str | None = None) -> FinishedRun:
    """Reads a finished run.

    Args:
        folder: Its folder.
        name: What to call it; by default its folder.

    Returns:
        A `FinishedRun`.

    Raises:
        RunError: There is no finished run in the folder, or its files are broken.
    """
    settings, metrics = read_json(folder / SETTINGS), read_json(folder / METRICS)
    if settings is None or metrics is None:
        raise RunError(f"{folder} holds no finished run")
    try:
        test, validation = metrics["test"], metrics["validation"]
        numbers = (test["top1"], validation["top1"], test["count"], metrics["seconds"])
        complete = all(isinstance(x, (int, float)) for x in numbers)
        history = read_history(folder)
    except (KeyError, TypeError, ValueError, OSError):
        complete = False
    if not complete or not isinstance(settings, dict):
        raise RunError(f"{folder} holds no finished run that can be read")
    # What a run decided by itself, such as its precision, is no setting.
    settings.pop(PLAN, None)
    found = read_predictions(folder)
    correct = None
    if found is not None and len(found[0]) == test["count"]:
        correct = found[0] == found[1]
    return FinishedRun(
        name or folder.as_posix(), settings, metrics, history, correct, folder
    )
