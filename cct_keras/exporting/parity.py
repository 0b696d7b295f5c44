"""Whether an exported file answers as the Keras model does, and how fast."""

import math
import pathlib
import time
from collections.abc import Callable

import numpy as np

from cct_keras.errors import ExportError
from cct_keras.exporting.sample_images import COMPARED
from cct_keras.exporting.sample_images import SampleImages
from cct_keras.exporting.settings import ExportSettings
from cct_keras.exporting.subject import Subject
from cct_keras.runtime.engine import Engine

# Largest difference of a probability. int8 is judged by its accuracy instead.
TOLERANCES = {"float32": 1e-4, "float16": 1e-2}
# int8 may cost this much accuracy, if the loss is not just chance.
LARGEST_LOSS = 0.02
# Below this number of images the accuracy of int8 is too uncertain to refuse it.
ENOUGH_IMAGES = 500
BATCH_SIZE = 64


def compare(
    subject: Subject,
    engine: Engine,
    samples: SampleImages,
    settings: ExportSettings,
    size: int,
) -> dict:
    """Compares an exported file with its Keras model.

    Args:
        subject: The model.
        engine: The exported file, opened in its runtime.
        samples: Images to compare on.
        settings: The choices of the export.
        size: Bytes of the exported file.

    Returns:
        A record for `parity.json`.
    """
    pixels = samples.pixels.astype("float32")
    expected = in_batches(subject.predict, pixels)
    received = in_batches(engine.probabilities, pixels)
    record = {
        "format": settings.format,
        "precision": settings.precision,
        "bytes": size,
        "images": len(pixels),
        "origin": samples.origin,
        "largest_difference": _largest_difference(expected, received),
        "tolerance": TOLERANCES.get(settings.precision),
        "same_top1": int((expected.argmax(1) == received.argmax(1)).sum()),
        "speed": {
            "keras": _speed(subject.predict, pixels, settings.batch),
            "exported": _speed(engine.probabilities, pixels, settings.batch),
        },
    }
    if settings.maps:
        record["largest_map_difference"] = _largest_difference(
            in_batches(subject.predict_maps, pixels[:COMPARED]),
            in_batches(lambda x: engine.run(x)[1], pixels[:COMPARED]),
        )
    if samples.labels is not None:
        record["accuracy"] = paired_accuracy(
            expected.argmax(1) == samples.labels, received.argmax(1) == samples.labels
        )
    return record


def check(record: dict, path: pathlib.Path) -> list[str]:
    """Refuses a file that differs too much from its model.

    Args:
        record: What `compare` returned.
        path: What the error calls the file.

    Returns:
        Warnings that the user should see.
    """
    tolerance = record["tolerance"]
    difference = max(
        record["largest_difference"], record.get("largest_map_difference", 0)
    )
    if not math.isfinite(difference):
        raise ExportError(f"{path} was not written: its answers are not numbers")
    if tolerance is not None:
        if difference > tolerance:
            raise ExportError(
                f"{path} was not written: its answers differ from the model's by "
                f"{difference:.1e}, and {tolerance:.0e} is allowed"
            )
        return []
    accuracy = record.get("accuracy")
    if accuracy is None:
        return ["the accuracy of int8 is unknown: the data have other classes"]
    loss, (low, high) = accuracy["loss"], accuracy["loss_ci95"]
    if record["images"] < ENOUGH_IMAGES:
        return [
            f"the accuracy of int8 was measured on {record['images']} images only; "
            f"{ENOUGH_IMAGES} or more would tell its loss"
        ]
    if loss > LARGEST_LOSS and low > 0:
        raise ExportError(
            f"{path} was not written: int8 costs {100 * loss:.2f} points of accuracy "
            f"(95 % interval {100 * low:.2f} to {100 * high:.2f}), and "
            f"{100 * LARGEST_LOSS:.0f} are allowed; use precision='float16'"
        )
    return []


def paired_accuracy(before: np.ndarray, after: np.ndarray) -> dict:
    """Accuracy before and after a change, on the same images.

    Args:
        before: Whether each image was right before.
        after: Whether it is right after.

    Returns:
        `before`, `after`, their difference `loss`, and its 95 % interval `loss_ci95`
        after Agresti and Min, which counts half an image more in each of the four
        cases.

    Example:

    >>> right = np.array([True] * 90 + [False] * 10)
    >>> paired_accuracy(right, right)["loss"]
    0.0
    """
    count = len(before)
    lost = int((before & ~after).sum())
    won = int((~before & after).sum())
    n, b, c = count + 2, lost + 0.5, won + 0.5
    center = (b - c) / n
    spread = 1.959964 * math.sqrt(b + c - (b - c) ** 2 / n) / n
    return {
        "before": float(before.mean()),
        "after": float(after.mean()),
        "loss": (lost - won) / count,
        "loss_ci95": [center - spread, center + spread],
    }


def in_batches(run: Callable, pixels: np.ndarray, size: int = BATCH_SIZE) -> np.ndarray:
    """The answers to all images, a batch at a time."""
    return np.concatenate(
        [run(pixels[i : i + size]) for i in range(0, len(pixels), size)]
    )


def _largest_difference(expected, received):
    if expected.shape != received.shape:
        raise ExportError(
            f"the exported file answers {received.shape[1:]}, the model "
            f"{expected.shape[1:]}"
        )
    difference = np.abs(expected.astype("float64") - received)
    return float(difference.max()) if np.isfinite(difference).all() else math.inf


def _speed(run, pixels, batch):
    """Milliseconds of one image, images per second of a batch; best of all rounds."""
    one = pixels[:1]
    many = pixels[: batch or BATCH_SIZE]
    return {
        "one_image_ms": None if batch not in (None, 1) else 1000 * _best(run, one),
        "batch": len(many),
        "images_per_second": len(many) / _best(run, many),
    }


def _best(run, images, seconds=0.25):
    for _ in range(2):
        run(images)
    best, end = math.inf, time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        run(images)
        now = time.perf_counter()
        best = min(best, now - start)
        if now > end:
            return best
