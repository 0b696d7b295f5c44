import keras
from keras import ops


@keras.saving.register_keras_serializable(package="cct_keras")
class LayerNormalization(keras.layers.Layer):
    """Layer normalisation over the last axis.

    The weights and values of `keras.layers.LayerNormalization`, in fewer passes over
    the data on TensorFlow.

    Args:
        epsilon: Added to the variance.

    Input shape:
        `(batch, ..., dim)`

    Output shape:
        Same as the input.

    Example:

    >>> tokens = keras.random.normal((2, 64, 128))
    >>> LayerNormalization()(tokens).shape
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
        if keras.config.backend() != "tensorflow":
            return ops.layer_normalization(
                x, self.gamma, self.beta, epsilon=self.epsilon
            )
        # Half precision is too coarse for the moments.
        wide = ops.cast(x, "float32") if self.compute_dtype != "float64" else x
        if training:
            wide = _normalize_from_output(wide, self.epsilon)
        else:
            wide, _ = _normalize(wide, self.epsilon)
        return ops.cast(wide, self.compute_dtype) * self.gamma + self.beta

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}


def _normalize(x, epsilon):
    x = x - ops.mean(x, axis=-1, keepdims=True)
    scale = ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + epsilon)
    return x * scale, scale


def _normalize_from_output(x, epsilon):
    """Keeps only the output for the backward pass, TensorFlow one tensor more."""

    @ops.custom_gradient
    def normalize(x):
        y, scale = _normalize(x, epsilon)

        def backward(gradient):
            mean = ops.mean(gradient, axis=-1, keepdims=True)
            slope = ops.mean(gradient * y, axis=-1, keepdims=True)
            return scale * (gradient - (y * slope + mean))

        return y, backward

    return normalize(x)
