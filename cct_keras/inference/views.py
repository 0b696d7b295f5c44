"""Answers averaged over several views of an image."""

from collections.abc import Callable

import numpy as np

from cct_keras.runtime.engine import Engine

# What `tta` (test-time augmentation) can be.
VIEWS = ("flip",)


def check_views(tta: str | None) -> None:
    """Refuses views that there are not.

    Example:

    >>> check_views("flip")
    """
    if tta is not None and tta not in VIEWS:
        raise ValueError(f"`tta` must be {' or '.join(VIEWS)}. Received: tta={tta!r}")


def averaged_over_flip(compute: Callable[[np.ndarray], np.ndarray]) -> Callable:
    """Averages the probabilities of images and of their mirror images.

    Args:
        compute: From a batch `(count, height, width, channels)` to its probabilities.

    Returns:
        A function like it.

    Example:

    >>> images = np.array([1.0, 2.0, 4.0]).reshape(1, 1, 3, 1)
    >>> averaged_over_flip(lambda batch: batch[:, 0, 0])(images)
    array([[2.5]])
    """
    return lambda images: (compute(images) + compute(images[:, :, ::-1])) / 2


class FlipAveraged(Engine):
    """A model whose answers are averaged over images and their mirror images.

    Args:
        engine: The model.
    """

    def __init__(self, engine: Engine):
        super().__init__(engine.path, engine.metadata)
        self.probabilities = averaged_over_flip(engine.probabilities)
