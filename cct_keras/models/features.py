from collections.abc import Sequence

import keras

from cct_keras.layers import EncoderBlock


def feature_extractor(
    model: keras.Model, layers: Sequence[str] | None = None
) -> keras.Model:
    """A model that returns intermediate outputs by layer name.

    The names are stable: `tokenizer`, `class_token` (ViT-Lite),
    `position_embedding`, `block_0`, `block_1`, ..., `norm`, `pool`, `head`,
    `predictions`. The weights are shared with `model`.

    Args:
        model: A model of this package.
        layers: Names of the layers. Defaults to all encoder blocks.

    Returns:
        A `keras.Model` with a dict `{name: output}`.

    Example:

    >>> model = CCT(10, (32, 32, 3), num_layers=2, kernel_size=3)
    >>> sorted(feature_extractor(model).output)
    ['block_0', 'block_1']
    """
    if isinstance(layers, str):
        layers = [layers]
    known = [layer.name for layer in model.layers]
    if layers is None:
        layers = [x.name for x in model.layers if isinstance(x, EncoderBlock)]
    unknown = [name for name in layers if name not in known]
    if unknown or not layers:
        raise ValueError(
            f"feature_extractor: `layers` must be names of layers of {model.name!r}: "
            f"{known}. Received: layers={list(layers)}"
        )
    outputs = {name: model.get_layer(name).output for name in layers}
    return keras.Model(model.input, outputs, name=f"{model.name}_features")
