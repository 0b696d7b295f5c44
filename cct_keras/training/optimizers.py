"""AdamW, as fast as the backend allows."""

import keras

from cct_keras.kernels.adam import FusedUpdate


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
