import keras
from keras import ops

from cct_keras.checks import check_rank


@keras.saving.register_keras_serializable(package="cct_keras")
class ClassToken(keras.layers.Layer):
    """Prepends one learnable token to a sequence; its initial value is zero.

    Input shape:
        `(batch, tokens, dim)`

    Output shape:
        `(batch, 1 + tokens, dim)`

    Example:

    >>> tokens = keras.random.normal((2, 64, 128))
    >>> keras.ops.shape(ClassToken()(tokens))
    (2, 65, 128)
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)

    def build(self, input_shape):
        check_rank("ClassToken", input_shape, ("batch", "tokens", "dim"))
        self.token = self.add_weight(
            shape=(1, 1, input_shape[-1]), initializer="zeros", name="token"
        )

    def call(self, tokens):
        batch, _, dim = ops.shape(tokens)
        token = ops.broadcast_to(ops.cast(self.token, tokens.dtype), (batch, 1, dim))
        return ops.concatenate([token, tokens], axis=1)

    def compute_output_shape(self, input_shape):
        batch, tokens, dim = input_shape
        return batch, None if tokens is None else tokens + 1, dim
