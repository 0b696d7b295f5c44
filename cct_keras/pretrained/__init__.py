"""Weights by name and from files, into models."""

from cct_keras.models import weights_argument


def _open_weights(weights, **options):
    # Imported when needed: the catalog in this room is free of Keras.
    from cct_keras.pretrained.source import open_weights

    return open_weights(weights, **options)


weights_argument.register(_open_weights)
