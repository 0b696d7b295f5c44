import keras

from cct_keras.kernels.layer_norm import layer_norm


@keras.saving.register_keras_serializable(package="cct_keras")
class LayerNormalization(keras.layers.Layer):
    """Layer normalization over the last axis.

    It has the weights and the values of `keras.layers.LayerNormalization`, and takes
    fewer passes over the data where the kernel `layer_norm` knows a way.

    Args:
        epsilon: Added to the variance.

    Input shape:
        `(batch, ..., dim)`

    Output shape:
        Same as the input.

    Example:

    >>> tokens = keras.random.normal((2, 64, 128))
    >>> keras.ops.shape(LayerNormalization()(tokens))
    (2, 64, 128)
    """

    def __init__(self, epsilon: float = 1e-5, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape):
        shape = (input_shape[-1],)
        self.gamma = self.add_weight(shape=shape, initializer="ones", name="gamma")
        self.beta = self.add_weight(shape=shape, initializer="zeros", name="beta")

    def call(self, x, training=None):
        return layer_norm(x, self.gamma, self.beta, self.epsilon, training)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}
