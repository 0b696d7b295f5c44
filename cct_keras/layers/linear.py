import keras

from cct_keras.kernels.linear import linear


class Linear(keras.layers.Dense):
    """A linear layer of a block, with the initial weights of the original.

    `keras.layers.Dense`, computed by the kernel `linear`. Quantization and the LoRA of
    Keras work as in `Dense`.

    Args:
        units: Width of the output.
        use_bias: Whether there is a bias.

    Input shape:
        `(batch, ..., dim)`

    Output shape:
        `(batch, ..., units)`

    Example:

    >>> tokens = keras.random.normal((2, 64, 128))
    >>> keras.ops.shape(Linear(384)(tokens))
    (2, 64, 384)
    """

    def __init__(self, units: int, *, use_bias: bool = True, **kwargs):
        super().__init__(
            units,
            use_bias=use_bias,
            kernel_initializer=keras.initializers.RandomNormal(stddev=0.02),
            **kwargs,
        )

    def call(self, x, training=None):
        return linear(x, self.kernel, self.bias)

    def quantize(self, mode=None, type_check=True, config=None):
        # Keras refuses subclasses of `Dense` because they might compute something
        # else; this one does not.
        return super().quantize(mode, type_check=False, config=config)
