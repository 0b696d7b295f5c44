"""How good the probabilities of a classifier are, as plain JSON values.

NumPy alone: exported models are measured where neither scikit-learn nor SciPy is
installed. A test compares the numbers with theirs.
"""

import math
from collections.abc import Sequence

import numpy as np

CALIBRATION_BINS = 15
SMALLEST_PROBABILITY = 1e-7
# Probabilities in float16 or bfloat16 do not sum to exactly one.
SUM_TOLERANCE = 0.02
# 95 % of a normal distribution are within so many standard deviations.
NORMAL_95 = 1.959963984540054


def classification_metrics(
    labels: np.ndarray, probabilities: np.ndarray, class_names: Sequence[str]
) -> dict:
    """Measures the predicted probabilities of a set of images.

    Of classes with the same probability the one with the lowest index is
    predicted, as `argmax` does; top-5 ranks them the same way.

    Args:
        labels: Integers of shape `(images,)`.
        probabilities: Array of shape `(images, classes)`, each row a distribution.
        class_names: Name of every class.

    Returns:
        A dictionary that `json.dumps` takes as it is:

        - `count`: number of images.
        - `top1`: accuracy; `top1_ci95`: its Wilson interval `[low, high]`.
        - `top5`: share of images with the truth among the five likeliest
          classes. `None` with fewer than six classes, where it is always one.
        - `loss`: mean negative log likelihood in nats, in float64, of
          probabilities clipped at 1e-7.
        - `ece`: expected calibration error over 15 bins of equal width.
        - `calibration`: those bins, `low` excluded and `high` included;
          `confidence` and `accuracy` are `None` in an empty one.
        - `per_class`: `name`, `count`, `accuracy` (`None` without images).
        - `confusion`: counts; rows are the truth, columns the prediction.

    Raises:
        ValueError: There is no image, shapes or labels do not fit, or a row of
            `probabilities` is not a distribution (NaN, logits).

    Example:

    >>> metrics = classification_metrics([0, 1], [[0.9, 0.1], [0.6, 0.4]], ["a", "b"])
    >>> metrics["top1"], metrics["confusion"]
    (0.5, [[1, 0], [1, 0]])
    """
    labels, probabilities = np.asarray(labels), np.asarray(probabilities)
    _check(labels, probabilities, class_names)
    count, classes = probabilities.shape
    predicted = probabilities.argmax(axis=1)
    correct = predicted == labels
    of_truth = probabilities[np.arange(count), labels]
    confidence = probabilities.max(axis=1).astype("float64").clip(0, 1)
    bins = _calibration_bins(confidence, correct)
    confusion = _confusion(labels, predicted, classes)
    return {
        "count": count,
        "top1": float(correct.mean()),
        "top1_ci95": list(wilson_interval(int(correct.sum()), count)),
        "top5": _top5(labels, probabilities, of_truth) if classes > 5 else None,
        "loss": _log_loss(of_truth),
        "ece": sum(
            row["count"] / count * abs(row["accuracy"] - row["confidence"])
            for row in bins
            if row["count"]
        ),
        "calibration": bins,
        "per_class": [
            {
                "name": str(name),
                "count": int(row.sum()),
                "accuracy": float(row[index] / row.sum()) if row.any() else None,
            }
            for index, (name, row) in enumerate(
                zip(class_names, confusion, strict=True)
            )
        ],
        "confusion": confusion.tolist(),
    }


def wilson_interval(correct: int, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share.

    Args:
        correct: Number of successes.
        count: Number of trials. Without any the interval is `(0.0, 1.0)`.

    Returns:
        The lower and the upper end.

    Example:

    >>> low, high = wilson_interval(5, 10)
    >>> round(low, 3), round(high, 3)
    (0.237, 0.763)
    """
    if not 0 <= correct <= count:
        raise ValueError(
            "`correct` must be between 0 and count. "
            f"Received: correct={correct}, count={count}"
        )
    if count == 0:
        return 0.0, 1.0
    wrong, square = count - correct, NORMAL_95**2
    center = (correct + square / 2) / (count + square)
    spread = NORMAL_95 * math.sqrt(correct * wrong / count + square / 4)
    spread /= count + square
    # At the ends of the range the formula is off by a rounding error.
    return (
        center - spread if correct else 0.0,
        center + spread if wrong else 1.0,
    )


def _check(labels, probabilities, class_names):
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(
            "`labels` must be integers of shape (images,). "
            f"Received: {labels.dtype} of shape {labels.shape}"
        )
    if probabilities.shape != (len(labels), len(class_names)):
        raise ValueError(
            f"{len(labels)} labels and {len(class_names)} class names need "
            f"`probabilities` of shape {(len(labels), len(class_names))}. "
            f"Received: {probabilities.shape}"
        )
    if probabilities.size == 0:
        raise ValueError("there is no image to measure")
    if labels.min() < 0 or labels.max() >= len(class_names):
        raise ValueError(
            f"`labels` must be in [0, {len(class_names)}). "
            f"Received: {labels.min()} to {labels.max()}"
        )
    if np.isnan(probabilities).any():
        bad = int(np.isnan(probabilities).any(axis=1).sum())
        raise ValueError(f"the probabilities of {bad} of {len(labels)} images are NaN")
    sums = probabilities.sum(axis=1, dtype="float64")
    if probabilities.min() < 0 or np.abs(sums - 1).max() > SUM_TOLERANCE:
        raise ValueError(
            "each row of `probabilities` must be a distribution; are these logits? "
            f"Received: sums from {sums.min():.4g} to {sums.max():.4g}, "
            f"smallest value {float(probabilities.min()):.4g}"
        )


def _confusion(labels, predicted, classes):
    pairs = labels.astype("int64") * classes + predicted
    return np.bincount(pairs, minlength=classes**2).reshape(classes, classes)


def _log_loss(of_truth):
    losses = -np.log(of_truth.astype("float64").clip(SMALLEST_PROBABILITY, 1))
    # Without the sum a loss of exactly zero would be printed as -0.
    return float(losses.mean() + 0.0)


def _top5(labels, probabilities, of_truth):
    """Share of images with fewer than five classes ranked above the truth."""
    ahead = (probabilities > of_truth[:, None]).sum(axis=1)
    tied = probabilities == of_truth[:, None]
    ahead += (tied & (np.arange(tied.shape[1]) < labels[:, None])).sum(axis=1)
    return float((ahead < 5).mean())


def _calibration_bins(confidence, correct):
    index = np.ceil(confidence * CALIBRATION_BINS).astype(int) - 1
    index = index.clip(0, CALIBRATION_BINS - 1)
    rows = []
    for number in range(CALIBRATION_BINS):
        inside = index == number
        count = int(inside.sum())
        rows.append(
            {
                "low": number / CALIBRATION_BINS,
                "high": (number + 1) / CALIBRATION_BINS,
                "count": count,
                "confidence": float(confidence[inside].mean()) if count else None,
                "accuracy": float(correct[inside].mean()) if count else None,
            }
        )
    return rows
