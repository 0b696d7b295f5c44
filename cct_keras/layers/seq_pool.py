import keras
from keras import ops

from cct_keras.checks import check_rank
from cct_keras.kernels.observation import observed
from cct_keras.layers.adaptable_layer import AdaptableLayer
from cct_keras.layers.attention_scores import spec_with_scores


@keras.saving.register_keras_serializable(package="cct_keras")
class SeqPool(AdaptableLayer):
    """Sequence pooling: a weighted mean of the tokens with learned weights.

    Call arguments:
        tokens: Tensor `(batch, tokens, dim)`.
        return_attention_scores: Whether to return `(output, weights)`, the
            weight of each token `(batch, tokens)`, which sum to 1.

    Output shape:
        `(batch, dim)`

    Example:

    >>> tokens = keras.random.normal((2, 64, 128))
    >>> pooled, weights = SeqPool()(tokens, return_attention_scores=True)
    >>> keras.ops.shape(pooled), keras.ops.shape(weights)
    ((2, 128), (2, 64))
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attention = self.make_projection("attention", 1)

    def build(self, input_shape):
        check_rank("SeqPool", input_shape, ("batch", "tokens", "dim"))
        self.attention.build(input_shape)

    def call(self, tokens, return_attention_scores=False):
        _, length, dim = ops.shape(tokens)
        # One token a row: a product of batches would compute its shapes at run time,
        # which LiteRT cannot plan for.
        scores = self.attention(ops.reshape(tokens, (-1, dim)))
        weights = ops.softmax(ops.reshape(scores, (-1, length)), axis=-1)
        weights = observed("pool", weights)
        x = ops.squeeze(ops.matmul(ops.expand_dims(weights, 1), tokens), axis=1)
        return (x, weights) if return_attention_scores else x

    def compute_output_shape(self, input_shape, return_attention_scores=False):
        batch, tokens, dim = input_shape
        if not return_attention_scores:
            return batch, dim
        return (batch, dim), (batch, tokens)

    def compute_output_spec(self, tokens, return_attention_scores=False):
        return spec_with_scores(self, tokens, return_attention_scores)
