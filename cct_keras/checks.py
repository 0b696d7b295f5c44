"""Argument checks of the layers and the model constructors.

Each raises a `ValueError` that names the argument, what was expected and what was
received. `owner` is the name of the layer or function, with which the message begins.
"""

import math
import numbers

# What the constructors, the layers and the recipes take as `activation`.
ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "quick_gelu", "swiglu")
# How originals resize their tables of positions: see `layers.position_embedding`.
INTERPOLATIONS = (
    "bilinear",
    "bilinear_corners",
    "bicubic",
    "bicubic_antialias",
    "bicubic_offset",
)
# What heads read, and what is normalized after the blocks.
TOP_POOLINGS = ("token", "avg", "token_avg", "map")
FINAL_NORMS = ("tokens", "pooled", None)


def check_positive(owner: str, **values) -> None:
    """Checks that every value is a positive integer.

    Example:

    >>> check_positive("CCT", num_layers=0)
    Traceback (most recent call last):
    ValueError: CCT: `num_layers` must be a positive integer. Received: num_layers=0
    """
    for name, value in values.items():
        if not _is_integer(value) or value < 1:
            raise ValueError(
                f"{owner}: `{name}` must be a positive integer. "
                f"Received: {name}={value!r}"
            )


def check_non_negative(owner: str, **values) -> None:
    """Checks that every value is zero or a positive integer."""
    for name, value in values.items():
        if not _is_integer(value) or value < 0:
            raise ValueError(
                f"{owner}: `{name}` must be an integer of 0 or more. "
                f"Received: {name}={value!r}"
            )


def check_rate(owner: str, **values) -> None:
    """Checks that every value is a probability in [0, 1)."""
    for name, value in values.items():
        if (
            isinstance(value, bool)
            or not isinstance(value, numbers.Real)
            or not 0 <= value < 1
        ):
            raise ValueError(
                f"{owner}: `{name}` must be a number in the range [0, 1). "
                f"Received: {name}={value!r}"
            )


def check_number(owner: str, **values) -> None:
    """Checks that every value is a finite number."""
    for name, value in values.items():
        is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not is_real or not math.isfinite(value):
            raise ValueError(
                f"{owner}: `{name}` must be a finite number. Received: {name}={value!r}"
            )


def check_choice(owner: str, choices: tuple, **values) -> None:
    """Checks that every value is one of `choices`."""
    for name, value in values.items():
        if value not in choices:
            raise ValueError(
                f"{owner}: `{name}` must be one of {list(choices)}. "
                f"Received: {name}={value!r}"
            )


def check_divisible_by_heads(owner: str, embedding_dim: int, num_heads: int) -> None:
    """Checks that the heads divide the embedding evenly."""
    if embedding_dim % num_heads:
        raise ValueError(
            f"{owner}: `embedding_dim` must be divisible by `num_heads`. "
            f"Received: embedding_dim={embedding_dim}, num_heads={num_heads}"
        )


def check_rank(owner: str, shape: tuple, axes: tuple) -> None:
    """Checks that an input has one dimension for each name in `axes`."""
    if len(shape) != len(axes):
        raise ValueError(
            f"{owner}: the input must have rank {len(axes)} "
            f"({', '.join(axes)}). Received: input shape {tuple(shape)}"
        )


def _is_integer(value) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
