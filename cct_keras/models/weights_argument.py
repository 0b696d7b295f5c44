"""How constructors find what they are given as `weights`.

Weights by name and by file need the converter and the catalog, which need the models.
So `pretrained` registers here the function that opens weights, and no import runs in
a circle.
"""

from collections.abc import Callable
from collections.abc import Mapping

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


def open_settings(weights, asked: Mapping, defaults: Mapping) -> tuple:
    """Settings of a constructor that weights may decide, such as an epsilon.

    Args:
        weights: What the constructor was given.
        asked: What the caller asked for, by the name of the argument; `None` for the
            weights' own.
        defaults: The values if there are no weights, or if they do not tell theirs.

    Returns:
        The weights, opened if that was needed, and the settings.
    """
    told = {}
    if weights is not None and None in asked.values():
        source = open_weights(weights, body_only=True)
        if source is not None:
            weights = source
            told = {name: source.architecture.get(name) for name in asked}
    settings = {}
    for name, value in asked.items():
        own = value if value is not None else told.get(name)
        settings[name] = defaults[name] if own is None else own
    return weights, settings
