import keras

from cct_keras.checks import check_non_negative
from cct_keras.checks import check_rank


@keras.saving.register_keras_serializable(package="cct_keras")
class TokenPool(keras.layers.Layer):
    """Picks one token of a sequence; the class token is at index 0.

    Args:
        index: Position of the token.

    Input shape:
        `(batch, tokens, dim)`

    Output shape:
        `(batch, dim)`

    Example:

    >>> tokens = keras.random.normal((2, 65, 128))
    >>> keras.ops.shape(TokenPool()(tokens))
    (2, 128)
    """

    def __init__(self, index: int = 0, **kwargs):
        super().__init__(**kwargs)
        check_non_negative("TokenPool", index=index)
        self.index = index

    def build(self, input_shape):
        check_rank("TokenPool", input_shape, ("batch", "tokens", "dim"))

    def call(self, tokens):
        return tokens[:, self.index]

    def compute_output_shape(self, input_shape):
        batch, _, dim = input_shape
        return batch, dim

    def get_config(self):
        config = super().get_config()
        config.update({"index": self.index})
        return config
