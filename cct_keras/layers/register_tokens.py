import keras
from keras import ops

from cct_keras.checks import check_non_negative
from cct_keras.checks import check_positive
from cct_keras.checks import check_rank


@keras.saving.register_keras_serializable(package="cct_keras")
class RegisterTokens(keras.layers.Layer):
    """Puts learned tokens without a position into a sequence.

    "Vision Transformers Need Registers": blocks keep there what belongs to no place of
    the image, and leave the image's own tokens alone.

    Args:
        num_tokens: How many.
        index: How many tokens stand before them, such as a class token.

    Input shape:
        `(batch, tokens, dim)`

    Output shape:
        `(batch, num_tokens + tokens, dim)`

    Example:

    >>> tokens = keras.random.normal((2, 65, 128))
    >>> keras.ops.shape(RegisterTokens(4, index=1)(tokens))
    (2, 69, 128)
    """

    def __init__(self, num_tokens: int, *, index: int = 0, **kwargs):
        super().__init__(**kwargs)
        check_positive("RegisterTokens", num_tokens=num_tokens)
        check_non_negative("RegisterTokens", index=index)
        self.num_tokens = num_tokens
        self.index = index

    def build(self, input_shape):
        check_rank("RegisterTokens", input_shape, ("batch", "tokens", "dim"))
        self.tokens = self.add_weight(
            shape=(1, self.num_tokens, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            name="tokens",
        )

    def call(self, tokens):
        batch, _, dim = ops.shape(tokens)
        own = ops.cast(self.tokens, tokens.dtype)
        own = ops.broadcast_to(own, (batch, self.num_tokens, dim))
        before, after = tokens[:, : self.index], tokens[:, self.index :]
        return ops.concatenate([before, own, after], axis=1)

    def compute_output_shape(self, input_shape):
        batch, tokens, dim = input_shape
        return batch, None if tokens is None else tokens + self.num_tokens, dim

    def get_config(self):
        config = super().get_config()
        config.update({"num_tokens": self.num_tokens, "index": self.index})
        return config
