"""AdamW and Muon, as fast as the backend allows."""

import math
from collections.abc import Mapping

import keras
from keras import ops

from cct_keras.finetuning.layerwise import Layerwise
from cct_keras.kernels.adam import FusedUpdate
from cct_keras.kernels.adam import apply_adam


@keras.saving.register_keras_serializable(package="cct_keras")
class FusedAdamW(FusedUpdate, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW`, faster on TensorFlow.

    Example:

    >>> FusedAdamW(1e-3, weight_decay=0.05).weight_decay
    0.05
    """


def find_adamw() -> type[keras.optimizers.AdamW]:
    """The fastest AdamW of the backend; Keras' own is fast on torch and JAX.

    Returns:
        A class of optimizers.

    Example:

    >>> issubclass(find_adamw(), keras.optimizers.AdamW)
    True
    """
    tensorflow = keras.config.backend() == "tensorflow"
    return FusedAdamW if tensorflow else keras.optimizers.AdamW


@keras.saving.register_keras_serializable(package="cct_keras")
class Muon(keras.optimizers.Muon):
    """Muon for the matrices of a model, AdamW for its other weights.

    The update of a matrix is its momentum with all singular values near 1, times
    `matrix_lr` and, for matrices that are wider than high, the root of that ratio.
    `keras.optimizers.Muon` does so for weights of rank 2, with one rate for all. This
    class is told which weights are matrices: kernels of convolutions are some, taken as
    `(height * width * channels, filters)`, tables of positions are none, and a kernel
    that computes query, key and value is three side by side.

    Args:
        learning_rate: Rate or schedule of AdamW.
        matrices: For the path of each weight that Muon updates, how many matrices
            stand in it side by side.
        matrix_lr: Rate of the matrices where `learning_rate` has its peak. Both rise
            and fall together.
        peak: The peak of `learning_rate`; by default `learning_rate` itself, which
            then is a number.
        weight_decay: Weight decay of all weights, at the rate of AdamW.
        **options: Further arguments of `keras.optimizers.Muon`.

    Example:

    >>> Muon(2e-3, matrices={"block_0/attention/qkv/kernel": 3}).matrix_lr
    0.02
    """

    def __init__(
        self,
        learning_rate=0.001,
        *,
        matrices: Mapping[str, int],
        matrix_lr: float = 0.02,
        peak: float | None = None,
        weight_decay: float | None = None,
        **options,
    ):
        options = {"rms_rate": None, "name": "muon", **options}
        super().__init__(
            learning_rate,
            weight_decay=weight_decay,
            adam_weight_decay=weight_decay,
            **options,
        )
        self.matrices = dict(matrices)
        self.matrix_lr = matrix_lr
        self.peak = learning_rate if peak is None else peak

    def build(self, variables):
        super().build(variables)
        self._parts = [self.matrices.get(variable.path) for variable in variables]

    def update_step(self, gradient, variable, learning_rate):
        """Updates a variable and its moments in place."""
        index = self._get_variable_index(variable)
        momentum, velocity = self.momentums[index], self.adam_velocities[index]
        gradient = ops.cast(gradient, variable.dtype)
        if velocity is None:
            rate = learning_rate * (self.matrix_lr / self.peak if self.peak else 0.0)
            self._update_matrix(variable, momentum, gradient, rate, self._parts[index])
        elif keras.config.backend() == "tensorflow":
            apply_adam(
                variable,
                momentum,
                velocity,
                gradient,
                step=self.iterations + 1,
                rate=learning_rate,
                beta_1=self.adam_beta_1,
                beta_2=self.adam_beta_2,
                epsilon=self.epsilon,
            )
        else:
            self._adamw_update_step(
                gradient, variable, learning_rate, momentum, velocity
            )

    def _update_matrix(self, variable, momentum, gradient, rate, parts):
        mean = self.momentum * momentum + gradient
        self.assign(momentum, mean)
        direction = gradient + self.momentum * mean if self.nesterov else mean
        matrices = ops.split(ops.reshape(direction, (-1, variable.shape[-1])), parts, 1)
        updates = [
            self.zeropower_via_newtonschulz5(matrix, self.ns_steps)
            * math.sqrt(max(1.0, matrix.shape[1] / matrix.shape[0]))
            for matrix in matrices
        ]
        update = ops.reshape(ops.concatenate(updates, axis=1), variable.shape)
        self.assign_sub(variable, ops.cast(rate, variable.dtype) * update)

    def _apply_weight_decay(self, variables):
        # That of Keras' Muon decays matrices at another rate than the rest.
        super(keras.optimizers.Muon, self)._apply_weight_decay(variables)

    def _should_use_adamw(self, variable):
        return variable.path not in self.matrices

    def get_config(self):
        config = super().get_config()
        # AdamW has the weight decay of all weights, and what is left out of it is
        # known by path, not by layer.
        for name in ("adam_weight_decay", "exclude_layers", "exclude_embeddings"):
            del config[name]
        return {
            **config,
            "matrices": self.matrices,
            "matrix_lr": self.matrix_lr,
            "peak": self.peak,
        }


@keras.saving.register_keras_serializable(package="cct_keras")
class LayerwiseMuon(Layerwise, Muon):
    """Muon with a learning rate for every layer."""
