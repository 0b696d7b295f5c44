"""Adapters of low rank: into a model, and merged into its weights."""

from collections.abc import Callable
from collections.abc import Sequence

import keras

from cct_keras.finetuning.freeze import body_layers
from cct_keras.finetuning.lora_layers import LoRAEncoderBlock
from cct_keras.finetuning.lora_layers import check_lora
from cct_keras.layers.encoder_block import EncoderBlock
from cct_keras.models.adapter_targets import PROJECTIONS
from cct_keras.models.adapter_targets import adapter_places
from cct_keras.models.inspection import encoder_blocks
from cct_keras.models.plain_weights import check_not_quantized
from cct_keras.models.plain_weights import plain_weights


def add_lora(
    model: keras.Model,
    rank: int = 8,
    *,
    alpha: float | None = None,
    targets: Sequence[str] = PROJECTIONS,
) -> keras.Model:
    """A copy of a model that learns only adapters and its head.

    The copy computes what the model computes until it is trained. Its files keep the
    adapters apart from the weights; `merge_lora` makes it a plain model again.

    Args:
        model: A model of this package, or one built on it.
        rank: Rank of the adapters.
        alpha: They are scaled by `alpha / rank`. Defaults to `rank`.
        targets: Which projections get one: `"qkv"` and `"proj"` of the attention,
            `"linear1"` and `"linear2"` of the feed-forward layer, in all blocks or,
            as `"block_0/qkv"`, in one.

    Returns:
        A new model, not compiled.

    Example:

    >>> model = cct_keras.CCT(10, (32, 32, 3), num_layers=2, kernel_size=3)
    >>> adapted = add_lora(model, 4, targets=["block_1/qkv"])
    >>> [weight.path for weight in adapted.trainable_weights][:2]
    ['block_1/attention/qkv/lora_a', 'block_1/attention/qkv/lora_b']
    """
    if has_lora(model):
        raise ValueError(
            f"add_lora: {model.name!r} has adapters already; merge_lora(model) first"
        )
    check_not_quantized(model)
    alpha = rank if alpha is None else alpha
    check_lora("add_lora", {"rank": rank, "alpha": alpha, "targets": ()})
    names = adapter_places(targets, [block.name for block in encoder_blocks(model)])

    def adapt(layer):
        config = layer.get_config()
        if not names.get(layer.name):
            return type(layer).from_config(config)
        lora = {"rank": rank, "alpha": alpha, "targets": names[layer.name]}
        return LoRAEncoderBlock.from_config({**config, "lora": lora})

    adapted = _clone_with_weights(model, adapt)
    for layer in body_layers(adapted):
        # A block with adapters freezes the rest of itself.
        if not isinstance(layer, LoRAEncoderBlock):
            layer.trainable = False
    return adapted


def merge_lora(model: keras.Model) -> keras.Model:
    """A plain model that computes what a model with adapters computes.

    Args:
        model: A model with adapters; one without is returned as it is.

    Returns:
        A new model, not compiled, everything in it trainable.

    Example:

    >>> model = cct_keras.CCT(10, (32, 32, 3), num_layers=2, kernel_size=3)
    >>> merged = merge_lora(add_lora(model, 4))
    >>> merged.count_params() == model.count_params()
    True
    """
    if not has_lora(model):
        return model

    def merge(layer):
        config = {**layer.get_config(), "trainable": True}
        if not isinstance(layer, LoRAEncoderBlock):
            return type(layer).from_config(config)
        del config["lora"]
        return EncoderBlock.from_config(config)

    return _clone_with_weights(model, merge)


def has_lora(model: keras.Model) -> bool:
    """Whether a model has adapters.

    Args:
        model: A model of this package, or one built on it.

    Example:

    >>> has_lora(cct_keras.CCT(10, (32, 32, 3), num_layers=2, kernel_size=3))
    False
    """
    return any(isinstance(block, LoRAEncoderBlock) for block in encoder_blocks(model))


def _clone_with_weights(model, clone_layer: Callable):
    """A copy of a model, its blocks with or without adapters, with its weights."""
    clone = keras.models.clone_model(model, clone_function=clone_layer)
    for layer in model.layers:
        # Keras gives the input of the copy a name of its own.
        if not layer.weights:
            continue
        target = clone.get_layer(layer.name)
        if type(target) is type(layer):
            target.set_weights(layer.get_weights())
            continue
        values = plain_weights(layer)
        for weight in target.weights:
            # New adapters keep their initial values.
            if weight.path in values:
                weight.assign(values[weight.path])
    return clone
