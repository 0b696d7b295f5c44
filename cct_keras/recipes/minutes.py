"""A time limit as a user gives it; free of Keras, so that a command can check it."""

import math
import numbers

from cct_keras.errors import RecipeError

# A year: more is a slip of the pen.
LONGEST = 365 * 24 * 60.0


def check_minutes(minutes, epochs: int | None = None) -> float | None:
    """Checks the minutes that a run is to take.

    Args:
        minutes: The minutes, or `None` if there is no limit.
        epochs: Epochs that were asked for.

    Returns:
        The minutes.

    Raises:
        RecipeError: They are not a length of time, or there are epochs beside them.

    Example:

    >>> check_minutes(20)
    20.0
    """
    if minutes is None:
        return None
    is_number = isinstance(minutes, numbers.Real) and not isinstance(minutes, bool)
    if not is_number or not math.isfinite(minutes) or not 0 < minutes <= LONGEST:
        raise RecipeError(
            f"`minutes` must be above 0 and at most {LONGEST:,.0f} (a year). "
            f"Received: minutes={minutes!r}"
        )
    if epochs is not None:
        raise RecipeError(
            "the time decides the epochs: give `minutes` or `epochs`, not both. "
            f"Received: minutes={minutes:g}, epochs={epochs}"
        )
    return float(minutes)
