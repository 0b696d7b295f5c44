"""Models made from a trained one: intermediate outputs, another resolution."""

from collections.abc import Sequence

import keras

from cct_keras.errors import QuantizedModelError
from cct_keras.layers.position_embedding import PositionEmbedding
from cct_keras.layers.preprocessing import Preprocessing
from cct_keras.models.inspection import encoder_blocks
from cct_keras.models.inspection import find_tokenizer
from cct_keras.models.parts import check_divisible_by_patch


def feature_extractor(
    model: keras.Model, layers: Sequence[str] | None = None
) -> keras.Model:
    """A model that returns intermediate outputs by layer name.

    The names are stable: `tokenizer`, `class_token` and `distillation_token` in
    families that have them, `position_embedding`, `block_0`, `block_1`, ..., `norm`,
    `pool`, `head`, `predictions`. The weights are shared with `model`.

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
        layers = [block.name for block in encoder_blocks(model)]
    unknown = [name for name in layers if name not in known]
    if unknown or not layers:
        raise ValueError(
            f"feature_extractor: `layers` must be names of layers of {model.name!r}: "
            f"{known}. Received: layers={list(layers)}"
        )
    outputs = {name: model.get_layer(name).output for name in layers}
    return keras.Model(model.input, outputs, name=f"{model.name}_features")


def with_input_shape(model: keras.Model, input_shape: tuple) -> keras.Model:
    """The same trained model for images of another size.

    Learnable positions are interpolated, sine positions computed again; all other
    weights are copied.

    Args:
        model: A model of this package, or one built on it.
        input_shape: The new image shape, without the batch. A model for raw pixels
            still takes images of any size, and resizes them to this one.

    Returns:
        A new model, not compiled.

    Example:

    >>> model = CCT(10, (32, 32, 3), kernel_size=3)
    >>> with_input_shape(model, (48, 64, 3)).input_shape
    (None, 48, 64, 3)
    """
    tokenizer = find_tokenizer(model)
    if not isinstance(input_shape, (tuple, list)) or not all(
        isinstance(side, int) for side in input_shape
    ):
        raise ValueError(
            "with_input_shape: `input_shape` must be a tuple of integers. "
            f"Received: input_shape={input_shape!r}"
        )
    channel = -1 if tokenizer.data_format == "channels_last" else 1
    old_shape, new_shape = model.input_shape, (None, *input_shape)
    if len(new_shape) != len(old_shape) or new_shape[channel] != old_shape[channel]:
        raise ValueError(
            "with_input_shape: `input_shape` must have the rank and the channels of "
            f"the model's {old_shape[1:]}. Received: input_shape={input_shape!r}"
        )
    if any(layer.quantization_mode == "float8" for layer in model._flatten_layers()):
        # Keras orders the weights of such a layer by whether it was quantized or built
        # from a configuration, so that they cannot be copied.
        raise QuantizedModelError(
            f"with_input_shape: {model.name!r} is quantized (float8): use the model "
            "from before model.quantize"
        )
    resizes = any(isinstance(layer, Preprocessing) for layer in model.layers)
    images = keras.Input(
        # A model that resizes by itself goes on to take images of any size.
        model.input_shape[1:] if resizes else input_shape,
        dtype=model.input.dtype,
        name=model.input.name or "images",
    )

    def resized(layer):
        config = layer.get_config()
        if isinstance(layer, PositionEmbedding):
            config["grid"] = grid
        if isinstance(layer, Preprocessing):
            config["image_size"] = tuple(input_shape[:2])
        return type(layer).from_config(config)

    before_tokens = images
    if tokenizer.input is not model.input:
        before = keras.Model(model.input, tokenizer.input)
        before_tokens = keras.models.clone_model(before, images, resized).output
    check_divisible_by_patch("with_input_shape", before_tokens.shape, tokenizer)
    grid = tokenizer.compute_grid(before_tokens.shape)
    clone = keras.models.clone_model(
        model, input_tensors=images, clone_function=resized
    )
    for layer in (layer for layer in model.layers if layer.weights):
        target = clone.get_layer(layer.name)
        if isinstance(layer, PositionEmbedding):
            target.load_table(layer.embeddings.numpy(), grid=layer.grid)
        else:
            target.set_weights(layer.get_weights())
    return clone
