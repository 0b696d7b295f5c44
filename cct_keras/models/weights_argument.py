"""How constructors find what they are given as `weights`.

Weights by name and by file need the converter and the catalog, which need the models.
So `pretrained` registers here the function that opens weights, and no import runs in
a circle.
"""

from collections.abc import Callable

_open_weights = None


def register(open_weights: Callable) -> None:
    """Takes the function that opens weights; see `pretrained.source.open_weights`."""
    global _open_weights
    _open_weights = open_weights


def open_weights(weights, **options):
    """Opens weights by the registered function."""
    return _open_weights(weights, **options)


def load_weights(model, weights) -> None:
    """Loads what a constructor was given as `weights`, if anything.

    Args:
        model: The model to fill.
        weights: What `open_weights` takes, or `None`.
    """
    if weights is not None:
        open_weights(weights, model=model).load_into(model)


def open_epsilon(weights, epsilon: float | None, default: float) -> tuple:
    """The epsilon of the normalizations, which weights may decide.

    Args:
        weights: What the constructor was given.
        epsilon: What the caller asked for; `None` for the weights' own.
        default: The epsilon if there are no weights, or if they do not tell theirs.

    Returns:
        The weights, opened if that was needed, and the epsilon.
    """
    if epsilon is not None:
        return weights, epsilon
    if weights is not None:
        source = open_weights(weights, body_only=True)
        if source is not None:
            return source, source.architecture.get("epsilon") or default
    return weights, default
