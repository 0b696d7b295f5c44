"""Settings of a layer inside a weights file.

The shapes of the weights do not tell how many heads an attention has or what stride a
convolution. The layers that have such settings write them beside their weights, and
refuse weights that were saved with others.
"""

import json

import keras
import numpy as np

KEY = "settings"


def save_settings(store, settings: dict) -> None:
    """Writes settings into the store that Keras hands to `save_own_variables`.

    Args:
        store: The store, a mapping from names to arrays.
        settings: Names and values; values as JSON knows them.

    Example:

    >>> store = {}
    >>> save_settings(store, {"num_heads": 2})
    >>> bytes(store["settings"])
    b'{"num_heads": 2}'
    """
    store[KEY] = np.frombuffer(json.dumps(settings).encode(), dtype="uint8")


def load_settings(store) -> dict:
    """The settings in the store that Keras hands to `load_own_variables`.

    Args:
        store: The store, a mapping from names to arrays.

    Returns:
        The settings; none for a file of version 0.1, which did not have them yet.

    Example:

    >>> load_settings({})
    {}
    """
    if KEY not in store:
        return {}
    return json.loads(np.asarray(store[KEY], dtype="uint8").tobytes())


def check_settings(
    layer: keras.layers.Layer, store, settings: dict, earlier: dict | None = None
) -> None:
    """Refuses weights that were saved by a layer with other settings.

    Args:
        layer: The layer that is to have the weights.
        store: The store that Keras hands to `load_own_variables`.
        settings: Those settings of the layer that must agree.
        earlier: What files without an entry of a setting were saved with. By default
            a setting without an entry is not compared.

    Raises:
        ValueError: Names the layer, the setting and both values.
    """
    stored = {**(earlier or {}), **load_settings(store)}
    for name, value in settings.items():
        if name in stored and stored[name] != value:
            raise ValueError(
                f"{type(layer).__name__} {layer.name!r} has {name}={value!r}, but the "
                f"weights were saved by a layer with {name}={stored[name]!r}."
            )
