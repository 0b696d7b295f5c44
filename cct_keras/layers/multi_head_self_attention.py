import keras
from keras import ops

from cct_keras.checks import check_divisible_by_heads
from cct_keras.checks import check_positive
from cct_keras.checks import check_rank
from cct_keras.checks import check_rate
from cct_keras.kernels.attention import attention
from cct_keras.layers.adaptable_layer import AdaptableLayer
from cct_keras.layers.attention_scores import spec_with_scores


@keras.saving.register_keras_serializable(package="cct_keras")
class MultiHeadSelfAttention(AdaptableLayer):
    """Self-attention with one fused projection for query, key and value.

    `keras.layers.MultiHeadAttention(use_bias=False)` also drops the bias of the
    output projection, which the released weights have.

    Args:
        num_heads: Number of heads; divides the width of the input.
        use_bias: Whether the fused projection has a bias. The output projection
            always has one.
        attention_dropout: Dropout on the attention weights.
        dropout_rate: Dropout after the output projection.

    Call arguments:
        tokens: Tensor `(batch, tokens, dim)`.
        return_attention_scores: Whether to return
            `(output, weights)`, the weights `(batch, heads, tokens, tokens)` as
            they are after the softmax and before dropout.
        training: Whether dropout is on.

    Output shape:
        Same as the input.

    Example:

    >>> tokens = keras.random.normal((2, 64, 128))
    >>> layer = MultiHeadSelfAttention(num_heads=2)
    >>> output, weights = layer(tokens, return_attention_scores=True)
    >>> keras.ops.shape(weights)
    (2, 2, 64, 64)
    """

    def __init__(
        self,
        num_heads: int,
        *,
        use_bias: bool = False,
        attention_dropout: float = 0.0,
        dropout_rate: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive("MultiHeadSelfAttention", num_heads=num_heads)
        check_rate(
            "MultiHeadSelfAttention",
            attention_dropout=attention_dropout,
            dropout_rate=dropout_rate,
        )
        self.num_heads = num_heads
        self.use_bias = use_bias
        self.attention_dropout = attention_dropout
        self.dropout_rate = dropout_rate

    def build(self, input_shape):
        check_rank("MultiHeadSelfAttention", input_shape, ("batch", "tokens", "dim"))
        dim = input_shape[-1]
        check_divisible_by_heads("MultiHeadSelfAttention", dim, self.num_heads)
        self.qkv = self.make_projection("qkv", 3 * dim, self.use_bias)
        self.qkv.build(input_shape)
        # Only its seeds are used: the attention kernel drops the weights itself.
        self.attention_drop = keras.layers.Dropout(
            self.attention_dropout, dtype=self.dtype_policy, name="attention_drop"
        )
        self.proj = self.make_projection("proj", dim)
        self.proj.build(input_shape)
        self.proj_drop = keras.layers.Dropout(
            self.dropout_rate, dtype=self.dtype_policy, name="proj_drop"
        )

    def call(self, tokens, return_attention_scores=False, training=None):
        _, length, dim = ops.shape(tokens)
        # One token a row: matrices are multiplied faster than batches of them.
        x = self.qkv(ops.reshape(tokens, (-1, dim)))
        query, key, value = self._split_heads(x, length, dim)
        x = attention(
            query,
            key,
            value,
            dropout_rate=self.attention_dropout if training else 0.0,
            seed_generator=getattr(self.attention_drop, "seed_generator", None),
            return_weights=return_attention_scores,
        )
        if return_attention_scores:
            x, weights = x
        x = self.proj(self._merge_heads(x, dim))
        x = self.proj_drop(ops.reshape(x, (-1, length, dim)))
        return (x, weights) if return_attention_scores else x

    def _split_heads(self, x, length, dim):
        """Query, key and value, each `(batch, heads, tokens, dim of a head)`."""
        x = ops.reshape(x, (-1, length, 3, self.num_heads, dim // self.num_heads))
        # One transposition for all three; to unstack the first axis costs nothing.
        return ops.unstack(ops.transpose(x, (2, 0, 3, 1, 4)), 3, axis=0)

    def _merge_heads(self, x, dim):
        return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, dim))

    def compute_output_shape(self, input_shape, return_attention_scores=False):
        if not return_attention_scores:
            return input_shape
        batch, length, _ = input_shape
        return input_shape, (batch, self.num_heads, length, length)

    def compute_output_spec(self, tokens, return_attention_scores=False, training=None):
        return spec_with_scores(self, tokens, return_attention_scores)

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "num_heads": self.num_heads,
                "use_bias": self.use_bias,
                "attention_dropout": self.attention_dropout,
                "dropout_rate": self.dropout_rate,
            }
        )
        return config
