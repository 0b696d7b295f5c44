"""The files that a run leaves, and how they are read; nothing here needs Keras."""

import csv
import json
import pathlib
import zipfile

import numpy as np

from cct_keras.errors import RunError

SETTINGS = "run.json"
# Entry of the settings with what a run decided at its beginning, such as its precision.
PLAN = "plan"
METRICS = "metrics.json"
HISTORY = "history.csv"
PREDICTIONS = "predictions.npz"
REPORT = "report.html"


def read_json(path: pathlib.Path) -> dict | None:
    """Reads a JSON file of a run.

    Args:
        path: The file.

    Returns:
        Its values; `None` if there is no such file.

    Raises:
        RunError: The file cannot be read.
    """
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise RunError(
            f"{path} cannot be read ({error}); restart=True throws the run away"
        ) from error


def read_history(folder: pathlib.Path) -> list[dict]:
    """Reads the history of a run, a dictionary for each epoch.

    Args:
        folder: The folder of the run.
    """
    with (folder / HISTORY).open(newline="") as file:
        return [
            {
                # Where minutes count, a row may be a part of an epoch.
                name: int(value)
                if name == "epoch" and "." not in value
                else float(value)
                for name, value in row.items()
                if value
            }
            for row in csv.DictReader(file)
        ]


def read_predictions(folder: pathlib.Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Reads which classes a run predicted for its test images.

    Args:
        folder: The folder of the run.

    Returns:
        The labels and the predicted classes; `None` if an earlier version wrote the
        run, which kept no predictions.
    """
    try:
        with np.load(folder / PREDICTIONS, allow_pickle=False) as arrays:
            labels, predictions = arrays["labels"], arrays["predictions"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    return (labels, predictions) if labels.shape == predictions.shape else None
