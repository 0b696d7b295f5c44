"""Adapters of low rank: into a model, and merged into its weights."""

from collections.abc import Sequence

import keras

from cct_keras.layers import EncoderBlock
from cct_keras.layers import LoRADense
from cct_keras.layers.lora_dense import PROJECTIONS
from cct_keras.layers.lora_dense import check_lora
from cct_keras.models.depth import body_layers
from cct_keras.models.depth import encoder_blocks


def add_lora(
    model: keras.Model,
    rank: int = 8,
    *,
    alpha: float | None = None,
    targets: Sequence[str] = PROJECTIONS,
) -> keras.Model:
    """A copy of a model that learns only adapters and its head.

    The copy computes what the model computes until it is trained. It saves and
    loads with its adapters apart; `merge_lora` makes it a plain model again.

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

    >>> model = CCT(10, (32, 32, 3), num_layers=2, kernel_size=3)
    >>> adapted = add_lora(model, 4, targets=["block_1/qkv"])
    >>> [weight.path for weight in adapted.trainable_weights][:2]
    ['block_1/attention/qkv/lora_a', 'block_1/attention/qkv/lora_b']
    """
    if has_lora(model):
        raise ValueError(
            f"add_lora: {model.name!r} has adapters already; merge_lora(model) first"
        )
    alpha = rank if alpha is None else alpha
    check_lora("add_lora", {"rank": rank, "alpha": alpha, "targets": ()})
    wanted = adapter_places(targets, [block.name for block in encoder_blocks(model)])

    def settings(block):
        names = wanted[block.name]
        return {"rank": rank, "alpha": alpha, "targets": names} if names else None

    adapted = _clone(model, settings)
    for layer in body_layers(adapted):
        # A block with adapters has frozen the rest of itself.
        if not getattr(layer, "lora", None):
            layer.trainable = False
    return adapted


def merge_lora(model: keras.Model) -> keras.Model:
    """A plain model that computes what a model with adapters computes.

    Args:
        model: A model with adapters; one without is returned as it is.

    Returns:
        A new model, not compiled, everything in it trainable.
    """
    if not has_lora(model):
        return model
    return _clone(model, lambda block: None, trainable=True)


def has_lora(model: keras.Model) -> bool:
    """Whether a model has adapters."""
    return any(block.lora for block in encoder_blocks(model))


def adapter_places(
    targets: str | Sequence[str], blocks: Sequence[str]
) -> dict[str, list[str]]:
    """`{block: projections}` that are to get an adapter.

    Args:
        targets: See `add_lora`; also one text with commas or spaces between.
        blocks: Names of the blocks.
    """
    if isinstance(targets, str):
        targets = targets.replace(",", " ").split()
    known = {*PROJECTIONS, *(f"{b}/{name}" for b in blocks for name in PROJECTIONS)}
    unknown = [name for name in targets if name not in known]
    if unknown or not targets or not blocks:
        places = f"{blocks[0]} to {blocks[-1]}" if blocks else "there are no blocks"
        raise ValueError(
            f"no layer for an adapter: {', '.join(unknown) or targets}. Expected: "
            f"{', '.join(PROJECTIONS)}, or in one block as block_0/qkv ({places})"
        )
    return {
        block: [x for x in PROJECTIONS if {x, f"{block}/{x}"} & set(targets)]
        for block in blocks
    }


def _clone(model, settings, **changes):
    """A copy whose blocks have the adapters that `settings` names."""

    def cloned(layer):
        config = {**layer.get_config(), **changes}
        if isinstance(layer, EncoderBlock):
            config["lora"] = settings(layer)
        return type(layer).from_config(config)

    clone = keras.models.clone_model(model, clone_function=cloned)
    for layer in model.layers:
        target = clone.get_layer(layer.name)
        if isinstance(layer, EncoderBlock):
            values = _block_values(layer)
            for weight in target.weights:
                if weight.path in values:
                    weight.assign(values[weight.path])
        else:
            target.set_weights(layer.get_weights())
    return clone


def _block_values(block):
    """`{path: array}` of a block's weights, its adapters merged."""
    values = {weight.path: weight.numpy() for weight in block.weights}
    attention, feed_forward = block.attention, block.feed_forward
    for layer in (
        attention.qkv,
        attention.proj,
        feed_forward.linear1,
        feed_forward.linear2,
    ):
        if isinstance(layer, LoRADense):
            values[layer.kernel.path] = layer.merged_kernel()
    return values
