import keras
from keras import ops

from cct_keras.checks import check_number


@keras.saving.register_keras_serializable(package="cct_keras")
class LayerScale(keras.layers.Layer):
    """A learned factor for each channel.

    On the branches of a block it lets deep models begin as nearly the identity.

    Args:
        initial_value: The factors at the start.

    Input shape:
        `(batch, ..., dim)`

    Output shape:
        Same as the input.

    Example:

    >>> tokens = keras.random.normal((2, 64, 128))
    >>> keras.ops.shape(LayerScale(1e-5)(tokens))
    (2, 64, 128)
    """

    def __init__(self, initial_value: float = 1e-5, **kwargs):
        super().__init__(**kwargs)
        check_number("LayerScale", initial_value=initial_value)
        self.initial_value = initial_value

    def build(self, input_shape):
        self.scale = self.add_weight(
            shape=(input_shape[-1],),
            initializer=keras.initializers.Constant(float(self.initial_value)),
            name="scale",
        )

    def call(self, x):
        return x * ops.cast(self.scale, x.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "initial_value": self.initial_value}
