"""Optimizers with a learning rate of its own for every layer."""

from collections.abc import Mapping
from typing import NamedTuple

import keras
from keras import ops

from cct_keras.models.depth import encoder_blocks
from cct_keras.models.depth import layer_depths
from cct_keras.training.fused_adam import FusedUpdate


class Pace(NamedTuple):
    """How a layer learns.

    Attributes:
        factor: Factor of its learning rate.
        start: Step before which it stays as it is.
    """

    factor: float = 1.0
    start: int = 0


def layer_paces(
    model: keras.Model,
    *,
    layer_decay: float = 1.0,
    unfreeze_steps: float = 0,
) -> dict[str, Pace]:
    """`{layer name: Pace}` of a model.

    The factor is `layer_decay` to the power of the layers above: 1 for what comes
    after the blocks, `layer_decay` for the last block, and so on down to the
    tokenizer and the positions. Blocks thaw one by one, the last first, and then
    the tokenizer and the positions.

    Args:
        model: A model of this package.
        layer_decay: Factor from a layer to the one below.
        unfreeze_steps: Steps until one more block thaws; 0 for all from the start.
    """
    top = 1 + len(encoder_blocks(model))
    return {
        name: Pace(layer_decay ** (top - depth), round((top - depth) * unfreeze_steps))
        for name, depth in layer_depths(model).items()
    }


class _Layerwise:
    """Mixed into an optimizer: paces by layer, decoupled weight decay at each pace.

    Args:
        learning_rate: Rate or schedule of a layer at full pace.
        paces: `{layer name: Pace}`; the layer is the first part of a weight's path.
        decay: Weight decay, in place of Keras' own, which knows one rate only.
        **options: Of the optimizer.
    """

    def __init__(
        self,
        learning_rate=0.001,
        *,
        paces: Mapping[str, Pace],
        decay: float = 0.0,
        **options,
    ):
        super().__init__(learning_rate, **options)
        self.paces = {name: tuple(pace) for name, pace in paces.items()}
        self.decay = decay

    def update_step(self, gradient, variable, learning_rate):
        pace, decay = self._by_variable[self._get_variable_index(variable)]
        rate = ops.cast(learning_rate, "float32") * pace.factor
        if pace.start:
            rate = ops.where(self.iterations >= pace.start, rate, 0.0)
        rate = ops.cast(rate, variable.dtype)
        if decay:
            self.assign_sub(variable, variable * (decay * rate))
        # The moments are kept from the start, so that a thaw begins with good ones.
        super().update_step(gradient, variable, rate)

    def build(self, variables):
        super().build(variables)
        self._by_variable = [
            (
                Pace(*self.paces.get(variable.path.split("/")[0], ())),
                self.decay if self._use_weight_decay(variable) else 0.0,
            )
            for variable in variables
        ]

    def get_config(self):
        config = super().get_config()
        del config["weight_decay"]
        return {**config, "paces": self.paces, "decay": self.decay}


@keras.saving.register_keras_serializable(package="cct_keras")
class LayerwiseAdamW(_Layerwise, FusedUpdate, keras.optimizers.Adam):
    """AdamW with a pace for every layer."""


@keras.saving.register_keras_serializable(package="cct_keras")
class LayerwiseSGD(_Layerwise, keras.optimizers.SGD):
    """SGD with a pace for every layer."""
