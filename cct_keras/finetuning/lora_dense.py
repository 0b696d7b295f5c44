import keras
from keras import ops

from cct_keras.checks import check_positive
from cct_keras.errors import QuantizedModelError


@keras.saving.register_keras_serializable(package="cct_keras")
class LoRADense(keras.layers.Layer):
    """A frozen linear layer with a trainable adapter, an update of low rank.

        x @ kernel + bias + alpha / rank * (x @ lora_a) @ lora_b

    `keras.layers.Dense.enable_lora` merges the adapter whenever it saves, and loads it
    back as two matrices of zeros, whose gradients are zero too. Here the adapter stays
    in a file what it is.

    Args:
        units: Width of the output.
        rank: Rank of the update.
        alpha: The update is scaled by `alpha / rank`. Defaults to `rank`.
        use_bias: Whether there is a bias, frozen like the kernel.

    Input shape:
        `(batch, ..., dim)`

    Output shape:
        `(batch, ..., units)`

    Example:

    >>> tokens = keras.random.normal((2, 64, 128))
    >>> layer = LoRADense(384, rank=4)
    >>> keras.ops.shape(layer(tokens)), len(layer.trainable_variables)
    ((2, 64, 384), 2)
    """

    def __init__(
        self,
        units: int,
        *,
        rank: int,
        alpha: float | None = None,
        use_bias: bool = True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive("LoRADense", units=units, rank=rank)
        self.units = units
        self.rank = rank
        self.alpha = float(rank if alpha is None else alpha)
        self.use_bias = use_bias

    def build(self, input_shape):
        dim = input_shape[-1]
        self.kernel = self.add_weight(
            shape=(dim, self.units),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            trainable=False,
            name="kernel",
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                shape=(self.units,), initializer="zeros", trainable=False, name="bias"
            )
        self.lora_a = self.add_weight(
            shape=(dim, self.rank), initializer="he_uniform", name="lora_a"
        )
        # With zeros the adapter changes nothing before it is trained.
        self.lora_b = self.add_weight(
            shape=(self.rank, self.units), initializer="zeros", name="lora_b"
        )

    def call(self, x):
        update = ops.matmul(ops.matmul(x, self.lora_a), self.lora_b)
        x = ops.matmul(x, self.kernel) + update * (self.alpha / self.rank)
        return x if self.bias is None else x + self.bias

    def merged_kernel(self):
        """The kernel of a layer without adapter that computes the same, as an array."""
        kernel, a, b = (
            ops.convert_to_numpy(ops.cast(weight, "float32"))
            for weight in (self.kernel, self.lora_a, self.lora_b)
        )
        return kernel + (a @ b) * (self.alpha / self.rank)

    def quantize(self, mode=None, type_check=True, config=None):
        # Keras would only warn, and leave the largest part of the model in float.
        raise QuantizedModelError(
            f"{self.path!r} has an adapter: quantize what merge_lora(model) returns"
        )

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.units)

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "units": self.units,
                "rank": self.rank,
                "alpha": self.alpha,
                "use_bias": self.use_bias,
            }
        )
        return config
