"""What similar data sets reached in a similar time: each row was measured."""

import math
from collections.abc import Sequence
from typing import NamedTuple

# A row says something about a run if neither its images nor its minutes are further
# from those of the run than this factor.
NEAR = 2.0


class Expectation(NamedTuple):
    """An accuracy that was measured.

    Attributes:
        data: Name of the data set.
        classes: Its classes.
        channels: 1 for gray images, 3 for color.
        images_per_class: Training images of a class.
        minutes: Minutes that the run took.
        accuracy: Share of the test images that were classified correctly.
        variant: The model.
        machine: What it was trained on.
        teacher: Whether there was a teacher, whose training is a part of the minutes.
    """

    data: str
    classes: int
    channels: int
    images_per_class: int
    minutes: float
    accuracy: float
    variant: str = "cct_2_3x2_32"
    machine: str = "2 CPU cores"
    teacher: bool = False


# A row for each run from random weights, without a validation image among its training
# images and measured on test images that chose nothing. Where there were several seeds,
# it is their mean. `benchmarks/small_data.py` prints such rows. Those of 66 and 17
# minutes are of the shipped weights (`pretrained/catalog.py`), which `small_adamw`
# trained; `small` does not need as long.
EXPECTATIONS = (
    Expectation("CIFAR-10 (JPEG)", 10, 3, 225, 2, 0.6521),
    Expectation("CIFAR-10 (JPEG)", 10, 3, 225, 2, 0.6393, teacher=True),
    Expectation("CIFAR-10 (JPEG)", 10, 3, 4500, 66, 0.8503),
    Expectation("MNIST", 10, 1, 5400, 17, 0.9955),
)


def nearest_expectation(
    *,
    classes: int,
    channels: int,
    images_per_class: float,
    minutes: float,
    variant: str,
    teacher: bool = False,
    rows: Sequence[Expectation] = EXPECTATIONS,
) -> Expectation | None:
    """The run that comes nearest to a planned one.

    Args:
        classes: Classes of the data.
        channels: Channels of the images.
        images_per_class: Training images divided by classes.
        minutes: Minutes that the run is to take.
        variant: The model.
        teacher: Whether there is a teacher.
        rows: What was measured.

    Returns:
        A row of the same model and channels; `None` if all are too far away to say
        anything.

    Example:

    >>> row = nearest_expectation(
    ...     classes=9,
    ...     channels=3,
    ...     images_per_class=4000,
    ...     minutes=60,
    ...     variant="cct_2_3x2_32",
    ... )
    >>> row.data, row.accuracy
    ('CIFAR-10 (JPEG)', 0.8503)
    """

    def distances(row):
        pairs = (
            (row.images_per_class, images_per_class),
            (row.minutes, minutes),
            (row.classes, classes),
        )
        return [abs(math.log(theirs / ours)) for theirs, ours in pairs]

    if min(images_per_class, minutes) <= 0:
        return None
    similar = [
        row
        for row in rows
        if (row.variant, row.channels, row.teacher) == (variant, channels, teacher)
        # A little more, for the last digits of the logarithm.
        and max(distances(row)) <= math.log(NEAR) + 1e-9
    ]
    return min(similar, key=lambda row: sum(distances(row)), default=None)


def expectation_text(row: Expectation) -> str:
    """A row in words, with everything that makes it another run than one's own.

    Example:

    >>> expectation_text(EXPECTATIONS[0])
    'CIFAR-10 (JPEG), 225 images a class, reached 65.2 % in 2 minutes of 2 CPU cores'
    """
    return (
        f"{row.data}, {row.images_per_class:,} images a class, reached "
        f"{row.accuracy:.1%}".replace("%", " %")
        + f" in {row.minutes:g} minutes of {row.machine}"
    )
