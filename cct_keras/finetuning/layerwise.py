"""Optimizers with a learning rate for every layer."""

from collections.abc import Mapping
from typing import NamedTuple

import keras
from keras import ops

from cct_keras.kernels.adam import FusedUpdate


class LayerRate(NamedTuple):
    """How a layer learns.

    Attributes:
        factor: Factor of its learning rate.
        first_step: The step at which it begins to learn.
    """

    factor: float = 1.0
    first_step: int = 0


class Layerwise:
    """Mixed into an optimizer: a learning rate and a weight decay for every layer.

    Args:
        learning_rate: Rate or schedule of a layer whose factor is 1.
        layer_rates: `{layer name: LayerRate}`; the layer of a weight is the first part
            of the weight's path. Layers that are not named have a factor of 1.
        decay: Decoupled weight decay, at the rate of each layer. The weight decay of
            Keras knows one rate only.
        clocked: Whether layers begin to learn by the time, not by the steps: their
            `first_step` is compared with the variable `clock`, which somebody assigns.
        **options: Further arguments of the optimizer.
    """

    def __init__(
        self,
        learning_rate=0.001,
        *,
        layer_rates: Mapping[str, LayerRate],
        decay: float = 0.0,
        clocked: bool = False,
        **options,
    ):
        super().__init__(learning_rate, **options)
        self.layer_rates = {name: tuple(rate) for name, rate in layer_rates.items()}
        self.decay = decay
        self.clocked = clocked
        if clocked:
            self.clock = self.add_variable((), name="clock")

    def update_step(self, gradient, variable, learning_rate):
        """Updates a variable and its moments in place."""
        layer, decay = self._by_variable[self._get_variable_index(variable)]
        rate = ops.cast(learning_rate, "float32") * layer.factor
        if layer.first_step:
            step = self.clock if self.clocked else self.iterations
            rate = ops.where(step >= layer.first_step, rate, 0.0)
        rate = ops.cast(rate, variable.dtype)
        if decay:
            self.assign_sub(variable, variable * (decay * rate))
        # Moments are collected from the first step on: a layer that begins to learn
        # later begins with the moments of many steps.
        super().update_step(gradient, variable, rate)

    def build(self, variables):
        super().build(variables)
        self._by_variable = [
            (
                LayerRate(*self.layer_rates.get(variable.path.split("/")[0], ())),
                self.decay if self._use_weight_decay(variable) else 0.0,
            )
            for variable in variables
        ]

    def get_config(self):
        config = super().get_config()
        del config["weight_decay"]
        return {
            **config,
            "layer_rates": self.layer_rates,
            "decay": self.decay,
            "clocked": self.clocked,
        }


@keras.saving.register_keras_serializable(package="cct_keras")
class LayerwiseAdamW(Layerwise, FusedUpdate, keras.optimizers.Adam):
    """AdamW with a learning rate for every layer.

    Example:

    >>> rates = {"block_0": LayerRate(0.5), "head": LayerRate(1.0)}
    >>> optimizer = LayerwiseAdamW(1e-3, layer_rates=rates, decay=0.05)
    """


@keras.saving.register_keras_serializable(package="cct_keras")
class LayerwiseSGD(Layerwise, keras.optimizers.SGD):
    """SGD with a learning rate for every layer."""
