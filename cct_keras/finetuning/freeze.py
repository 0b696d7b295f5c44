"""Freezing the lower part of a model."""

import keras

from cct_keras.models.inspection import encoder_blocks
from cct_keras.models.inspection import layer_depths

# Layers between the last block and whatever a user puts on top.
AFTER_BLOCKS = ("norm", "pool")


def freeze(model: keras.Model, blocks: int | str) -> None:
    """Freezes the lower part of a model, in place; compile it afterwards.

    Args:
        model: A model of this package, or one built on it.
        blocks: How many blocks to freeze, from the first on, together with all
            that is below them; 0 for nothing, `"body"` for everything but the head.

    Example:

    >>> model = cct_keras.CCT(10, (32, 32, 3), num_layers=2, kernel_size=3)
    >>> freeze(model, "body")
    >>> [weight.path for weight in model.trainable_weights]
    ['head/kernel', 'head/bias']
    """
    count = len(encoder_blocks(model))
    if not count and blocks != 0:
        raise ValueError(
            f"freeze: {model.name!r} has no encoder blocks among its layers; freeze "
            f"the model inside it. Received: {blocks!r}"
        )
    if blocks == "body":
        frozen = body_layers(model)
    elif isinstance(blocks, int) and not isinstance(blocks, bool) and blocks >= 0:
        if blocks > count:
            raise ValueError(
                f"freeze: {model.name!r} has {count} blocks, fewer than are to be "
                f"frozen. Received: {blocks}"
            )
        depths = layer_depths(model)
        frozen = [x for x in body_layers(model) if depths[x.name] <= blocks]
        frozen = frozen if blocks else []
    else:
        raise ValueError(
            "freeze: `blocks` must be a number of blocks or 'body'. "
            f"Received: {blocks!r}"
        )
    for layer in frozen:
        layer.trainable = False


def body_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Every layer with weights below the head.

    Args:
        model: A model of this package, or one built on it.

    Example:

    >>> model = cct_keras.CCT(10, (32, 32, 3), num_layers=2, kernel_size=3)
    >>> [layer.name for layer in body_layers(model)]
    ['tokenizer', 'position_embedding', 'block_0', 'block_1', 'norm', 'pool']
    """
    top = 1 + len(encoder_blocks(model))
    return [
        model.get_layer(name)
        for name, depth in layer_depths(model).items()
        if depth < top or name in AFTER_BLOCKS
    ]
