"""What several runs tell together: means, their intervals, and paired differences."""

from collections.abc import Sequence

import numpy as np


def interval_of_mean(values: Sequence[float]) -> tuple[float, float] | None:
    """Student's 95 % interval of the mean of a few values.

    Args:
        values: The values, each of one run.

    Returns:
        The lower and the upper end; `None` of fewer than two values.

    Example:

    >>> low, high = interval_of_mean([1.0, 2.0, 3.0])
    >>> round(low, 3), round(high, 3)
    (-0.484, 4.484)
    """
    from scipy.special import stdtrit

    if len(values) < 2:
        return None
    mean, deviation = np.mean(values), np.std(values, ddof=1)
    half = stdtrit(len(values) - 1, 0.975) * deviation / len(values) ** 0.5
    return float(mean - half), float(mean + half)


def deviation_of(values: Sequence[float]) -> float | None:
    """Standard deviation of a sample; `None` of fewer than two values.

    Example:

    >>> deviation_of([1.0, 2.0, 3.0])
    1.0
    """
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def image_p_value(differences: np.ndarray) -> float | None:
    """How often chance makes such a difference between two models, over the images.

    Where one run stands against one run, it is McNemar's exact test. Where several do,
    the answers to one image are one observation, because pictures that are hard for
    one run are hard for the others.

    Args:
        differences: For each image, how many more runs of the second model than of the
            first were right.

    Returns:
        The two-sided p value; `None` without images.

    Example:

    >>> image_p_value(np.array([1, 1, 1, 1, 1, 1, 0, 0, -1]))
    0.125
    """
    from scipy.special import ndtr
    from scipy.stats import binomtest

    if not len(differences):
        return None
    gained, lost = int((differences > 0).sum()), int((differences < 0).sum())
    if not gained + lost:
        return 1.0
    if np.abs(differences).max() == 1:
        return float(binomtest(gained, gained + lost).pvalue)
    # Of sums with random signs; with so many images they are nearly normal.
    differences = differences.astype("float64")
    z = differences.sum() / np.sqrt((differences**2).sum())
    return float(2 * ndtr(-abs(z)))
