"""The layers of a block with adapters in place of some of their linear layers."""

import numbers

import keras

from cct_keras.checks import check_positive
from cct_keras.finetuning.lora_dense import LoRADense
from cct_keras.layers.encoder_block import EncoderBlock
from cct_keras.layers.feed_forward import FeedForward
from cct_keras.layers.multi_head_self_attention import MultiHeadSelfAttention
from cct_keras.models.adapter_targets import PROJECTIONS


class _WithAdapters:
    """Mixed into an `AdaptableLayer`: only its adapters are trained.

    Args:
        lora: `rank` and `alpha` of the adapters, and the `targets` that get one among
            `qkv`, `proj`, `linear1` and `linear2`.
        **kwargs: The arguments of the layer.
    """

    def __init__(self, *, lora: dict, **kwargs):
        super().__init__(**kwargs)
        self.lora = check_lora(type(self).__name__, lora)

    def make_projection(self, name, units, use_bias=True):
        if name not in self.lora["targets"]:
            frozen = super().make_projection(name, units, use_bias)
            frozen.trainable = False
            return frozen
        return LoRADense(
            units,
            rank=self.lora["rank"],
            alpha=self.lora["alpha"],
            use_bias=use_bias,
            trainable=self.trainable,
            dtype=self.dtype_policy,
            name=name,
        )

    def get_config(self):
        config = super().get_config()
        return {**config, "lora": {**self.lora, "targets": [*self.lora["targets"]]}}


def _register(layer_class):
    """Registers `LoRA...`, and names the class like the one without adapters.

    Keras names the groups of a weights file after the classes of the layers, and a
    block with adapters has always been called `encoder_block` there.
    """
    name = layer_class.__name__
    keras.saving.register_keras_serializable("cct_keras", name)(layer_class)
    layer_class.__name__ = name.removeprefix("LoRA")
    return layer_class


@_register
class LoRAMultiHeadSelfAttention(_WithAdapters, MultiHeadSelfAttention):
    """`MultiHeadSelfAttention` with adapters on `qkv` or `proj`."""


@_register
class LoRAFeedForward(_WithAdapters, FeedForward):
    """`FeedForward` with adapters on `linear1` or `linear2`."""


@_register
class LoRAEncoderBlock(_WithAdapters, EncoderBlock):
    """`EncoderBlock` with adapters; all else in it is frozen.

    Example:

    >>> lora = {"rank": 2, "alpha": 2, "targets": ["qkv"]}
    >>> block = LoRAEncoderBlock(num_heads=2, hidden_dim=128, lora=lora, name="block")
    >>> block.build((None, 64, 128))
    >>> [weight.path for weight in block.trainable_weights]
    ['block/attention/qkv/lora_a', 'block/attention/qkv/lora_b']
    """

    def build(self, input_shape):
        super().build(input_shape)
        self.norm1.trainable = False
        self.norm2.trainable = False


def check_lora(owner: str, lora: dict) -> dict:
    """Checks the settings of adapters: `rank`, `alpha` and `targets`.

    Args:
        owner: Who asks, for the error message.
        lora: The settings.

    Returns:
        A copy of the settings.
    """
    if set(lora) != {"rank", "alpha", "targets"}:
        raise ValueError(
            f"{owner}: `lora` must have rank, alpha and targets. Received: lora={lora}"
        )
    check_positive(owner, rank=lora["rank"])
    if not isinstance(lora["alpha"], numbers.Real) or lora["alpha"] <= 0:
        raise ValueError(
            f"{owner}: `alpha` must be a number above 0. Received: {lora['alpha']!r}"
        )
    unknown = [name for name in lora["targets"] if name not in PROJECTIONS]
    if unknown:
        raise ValueError(
            f"{owner}: the targets of `lora` must be among {list(PROJECTIONS)}. "
            f"Received: {unknown}"
        )
    return {**lora, "targets": list(lora["targets"])}
