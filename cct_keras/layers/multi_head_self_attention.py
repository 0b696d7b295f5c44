import keras
from keras import ops

from cct_keras.layers.checks import check_divisible_by_heads
from cct_keras.layers.checks import check_positive
from cct_keras.layers.checks import check_rank
from cct_keras.layers.checks import check_rate
from cct_keras.layers.keep_mask import keep_mask
from cct_keras.layers.lora_dense import check_lora
from cct_keras.layers.lora_dense import projection
from cct_keras.layers.torch_attention import torch_attention


@keras.saving.register_keras_serializable(package="cct_keras")
class MultiHeadSelfAttention(keras.layers.Layer):
    """Self-attention with one fused projection for query, key and value.

    `keras.layers.MultiHeadAttention(use_bias=False)` also drops the bias of the
    output projection, which the released weights have.

    Args:
        num_heads: Number of heads; divides the width of the input.
        use_bias: Whether the fused projection has a bias. The output projection
            always has one.
        attention_dropout: Dropout on the attention weights.
        dropout_rate: Dropout after the output projection.
        lora: Adapters on the projections `qkv` and `proj`; see `add_lora`.

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
    >>> weights.shape
    (2, 2, 64, 64)
    """

    def __init__(
        self,
        num_heads: int,
        *,
        use_bias: bool = False,
        attention_dropout: float = 0.0,
        dropout_rate: float = 0.0,
        lora: dict | None = None,
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
        self.lora = check_lora("MultiHeadSelfAttention", lora)

    def build(self, input_shape):
        check_rank("MultiHeadSelfAttention", input_shape, ("batch", "tokens", "dim"))
        dim = input_shape[-1]
        check_divisible_by_heads("MultiHeadSelfAttention", dim, self.num_heads)
        self.head_dim = dim // self.num_heads
        self.qkv = projection(
            "qkv",
            3 * dim,
            lora=self.lora,
            dtype=self.dtype_policy,
            use_bias=self.use_bias,
        )
        self.qkv.build(input_shape)
        self.attention_drop = keras.layers.Dropout(
            self.attention_dropout, dtype=self.dtype_policy, name="attention_drop"
        )
        self.proj = projection("proj", dim, lora=self.lora, dtype=self.dtype_policy)
        self.proj.build(input_shape)
        self.proj_drop = keras.layers.Dropout(
            self.dropout_rate, dtype=self.dtype_policy, name="proj_drop"
        )

    def call(self, tokens, return_attention_scores=False, training=None):
        _, length, dim = ops.shape(tokens)
        # TensorFlow fuses the bias into the product of matrices, not of batches.
        x = self.qkv(ops.reshape(tokens, (-1, dim)))
        x = ops.reshape(x, (-1, length, 3, self.num_heads, self.head_dim))
        # One transposition; to unstack the first axis costs nothing.
        query, key, value = ops.unstack(ops.transpose(x, (2, 0, 3, 1, 4)), 3, axis=0)

        rate = self.attention_dropout if training else 0.0
        x = None
        if keras.config.backend() == "torch" and not return_attention_scores:
            generator = self.attention_drop.seed_generator if rate else None
            x = torch_attention(query, key, value, rate, generator)
        if x is None:
            scores = ops.matmul(query * self.head_dim**-0.5, ops.swapaxes(key, -1, -2))
            weights = ops.softmax(scores, axis=-1)
            x = self._attend(weights, value, rate)

        x = self.proj(ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, dim)))
        x = self.proj_drop(ops.reshape(x, (-1, length, dim)), training=training)
        return (x, weights) if return_attention_scores else x

    def _attend(self, weights, value, rate):
        if not rate:
            return ops.matmul(weights, value)
        if keras.config.backend() == "torch":
            return ops.matmul(self.attention_drop(weights, training=True), value)
        generator = self.attention_drop.seed_generator
        keep = keep_mask(ops.shape(weights), rate, generator)
        # To scale the product saves a pass over the weights.
        return ops.matmul(ops.where(keep, weights, 0.0), value) * (1.0 / (1.0 - rate))

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
                "lora": self.lora,
            }
        )
        return config


def spec_with_scores(layer, tokens, return_attention_scores):
    """Symbolic output of a layer that returns its weights on request.

    Keras passes only shapes to `compute_output_shape`, so the flag would be
    lost on the way.
    """
    shape = layer.compute_output_shape(tokens.shape, return_attention_scores)
    if not return_attention_scores:
        return keras.KerasTensor(shape, dtype=layer.compute_dtype)
    return tuple(keras.KerasTensor(part, dtype=layer.compute_dtype) for part in shape)
