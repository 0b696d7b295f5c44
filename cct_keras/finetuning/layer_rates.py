"""How fast each layer of a model learns."""

import keras

from cct_keras.finetuning.layerwise import LayerRate
from cct_keras.models.inspection import encoder_blocks
from cct_keras.models.inspection import layer_depths


def layer_rates(
    model: keras.Model,
    *,
    layer_decay: float = 1.0,
    unfreeze_steps: float = 0,
) -> dict[str, LayerRate]:
    """The learning rates of the layers of a model, relative to that of its top.

    The factor of a layer is `layer_decay` to the power of the number of layers above
    it: 1 for what comes after the blocks, `layer_decay` for the last block, and so on
    down to the tokenizer and the positions. The blocks begin to learn one after the
    other, the last block first, and then the tokenizer and the positions.

    Args:
        model: A model of this package, or one built on it.
        layer_decay: Factor from a layer to the one below.
        unfreeze_steps: Steps until one more block learns; 0 for all from the start.

    Returns:
        `{layer name: LayerRate}`

    Example:

    >>> model = cct_keras.CCT(10, (32, 32, 3), num_layers=2, kernel_size=3)
    >>> layer_rates(model, layer_decay=0.5, unfreeze_steps=10)["block_0"]
    LayerRate(factor=0.25, first_step=20)
    """
    top = 1 + len(encoder_blocks(model))
    rates = {}
    for name, depth in layer_depths(model).items():
        above = top - depth
        rates[name] = LayerRate(layer_decay**above, round(above * unfreeze_steps))
    return rates
