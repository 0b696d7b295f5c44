import keras
from keras import ops

from cct_keras.checks import check_rate


@keras.saving.register_keras_serializable(package="cct_keras")
class DropPath(keras.layers.Layer):
    """Stochastic depth: drops whole samples of a residual branch.

    In training each sample is set to zero with probability `rate` and scaled by
    `1 / (1 - rate)` otherwise, which keeps the expected value.

    Args:
        rate: Probability that a sample is dropped.
        seed: Optional integer. By default every layer has a random seed.

    Input shape:
        Any; the first axis is the batch.

    Output shape:
        Same as the input.

    Example:

    >>> branch = keras.random.normal((8, 64, 128))
    >>> keras.ops.shape(DropPath(0.1)(branch, training=True))
    (8, 64, 128)
    """

    def __init__(self, rate: float, *, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        check_rate("DropPath", rate=rate)
        self.rate = rate
        self.seed = seed
        if rate > 0:
            self.seed_generator = keras.random.SeedGenerator(seed)

    def call(self, x, training=False):
        if not training or self.rate == 0:
            return x
        keep = 1.0 - self.rate
        shape = (ops.shape(x)[0], *[1] * (len(x.shape) - 1))
        draw = keras.random.uniform(shape, dtype="float32", seed=self.seed_generator)
        return x * ops.cast(ops.where(draw < keep, 1.0 / keep, 0.0), x.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        config = super().get_config()
        config.update({"rate": self.rate, "seed": self.seed})
        return config
