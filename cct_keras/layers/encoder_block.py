import keras

from cct_keras.layers.checks import check_positive
from cct_keras.layers.checks import check_rate
from cct_keras.layers.drop_path import DropPath
from cct_keras.layers.feed_forward import FeedForward
from cct_keras.layers.fixed_seeds import fixed_seeds
from cct_keras.layers.frozen import stay_frozen
from cct_keras.layers.layer_normalization import LayerNormalization
from cct_keras.layers.lora_dense import check_lora
from cct_keras.layers.multi_head_self_attention import MultiHeadSelfAttention
from cct_keras.layers.multi_head_self_attention import spec_with_scores


@keras.saving.register_keras_serializable(package="cct_keras")
class EncoderBlock(keras.layers.Layer):
    """One transformer block.

    The released CCT, CVT and ViT-Lite weights need a residual order of their
    own: the second normalisation *replaces* the residual stream.

        x = x + DropPath(attention(norm1(x)))
        x = norm2(x)
        x = x + DropPath(feed_forward(x))

    Args:
        num_heads: Number of attention heads.
        hidden_dim: Width of the feed-forward layer.
        attention_dropout: Dropout on the attention weights.
        dropout_rate: Dropout after the projections and the GELU.
        drop_path_rate: Stochastic depth on both branches.
        qkv_bias: Whether the query, key and value projection has a bias.
        pre_norm: Whether to use the textbook order instead, in which
            the second normalisation sees the feed-forward branch only.
        epsilon: Epsilon of the normalisations.
        remat: Whether to keep only the input of the block for the backward pass, and
            to compute the rest again there: less memory, more time.
        lora: Adapters: `rank`, `alpha` and the `targets` among `qkv`, `proj`,
            `linear1` and `linear2`. All else in the block is then frozen. Set by
            `add_lora`.

    Call arguments:
        tokens: Tensor `(batch, tokens, dim)`.
        return_attention_scores: Whether to return `(output, weights)`, the
            weights `(batch, heads, tokens, tokens)`.
        training: Whether dropout and stochastic depth are on.

    Output shape:
        Same as the input.

    Example:

    >>> tokens = keras.random.normal((2, 64, 128))
    >>> EncoderBlock(num_heads=2, hidden_dim=128)(tokens).shape
    (2, 64, 128)
    """

    def __init__(
        self,
        num_heads: int,
        hidden_dim: int,
        *,
        attention_dropout: float = 0.0,
        dropout_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        qkv_bias: bool = False,
        pre_norm: bool = False,
        epsilon: float = 1e-5,
        remat: bool = False,
        lora: dict | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive("EncoderBlock", num_heads=num_heads, hidden_dim=hidden_dim)
        check_rate(
            "EncoderBlock",
            attention_dropout=attention_dropout,
            dropout_rate=dropout_rate,
            drop_path_rate=drop_path_rate,
        )
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.attention_dropout = attention_dropout
        self.dropout_rate = dropout_rate
        self.drop_path_rate = drop_path_rate
        self.qkv_bias = qkv_bias
        self.pre_norm = pre_norm
        self.epsilon = epsilon
        self.remat = remat
        self.lora = check_lora("EncoderBlock", lora)

        self.norm1 = LayerNormalization(
            epsilon=epsilon,
            trainable=lora is None,
            dtype=self.dtype_policy,
            name="norm1",
        )
        self.attention = MultiHeadSelfAttention(
            num_heads,
            use_bias=qkv_bias,
            attention_dropout=attention_dropout,
            dropout_rate=dropout_rate,
            lora=self.lora,
            dtype=self.dtype_policy,
            name="attention",
        )
        self.drop_path1 = DropPath(
            drop_path_rate, dtype=self.dtype_policy, name="drop_path1"
        )
        self.norm2 = LayerNormalization(
            epsilon=epsilon,
            trainable=lora is None,
            dtype=self.dtype_policy,
            name="norm2",
        )
        self.feed_forward = FeedForward(
            hidden_dim,
            dropout_rate=dropout_rate,
            lora=self.lora,
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        self.drop_path2 = DropPath(
            drop_path_rate, dtype=self.dtype_policy, name="drop_path2"
        )

    def build(self, input_shape):
        for layer in (self.norm1, self.attention, self.norm2, self.feed_forward):
            layer.build(input_shape)
        stay_frozen(self)

    def call(self, tokens, return_attention_scores=False, training=None):
        if not self.remat or not training or return_attention_scores:
            return self._forward(tokens, return_attention_scores, training)
        generators = [
            layer.seed_generator
            for layer in (
                self.attention.attention_drop,
                self.attention.proj_drop,
                self.drop_path1,
                self.feed_forward.drop1,
                self.feed_forward.drop2,
                self.drop_path2,
            )
            if layer.rate > 0
        ]
        # Both passes must drop the same.
        seeds = [generator.next() for generator in generators]

        def forward(tokens):
            with fixed_seeds(generators, seeds):
                return self._forward(tokens, training=True)

        return keras.remat(forward)(tokens)

    def _forward(self, tokens, return_attention_scores=False, training=None):
        branch = self.attention(
            self.norm1(tokens, training=training),
            return_attention_scores=return_attention_scores,
            training=training,
        )
        if return_attention_scores:
            branch, weights = branch
        x = tokens + self.drop_path1(branch, training=training)
        if self.pre_norm:
            branch = self.feed_forward(
                self.norm2(x, training=training), training=training
            )
        else:
            x = self.norm2(x, training=training)
            branch = self.feed_forward(x, training=training)
        x = x + self.drop_path2(branch, training=training)
        return (x, weights) if return_attention_scores else x

    def compute_output_shape(self, input_shape, return_attention_scores=False):
        if not return_attention_scores:
            return input_shape
        return self.attention.compute_output_shape(input_shape, True)

    def compute_output_spec(self, tokens, return_attention_scores=False, training=None):
        return spec_with_scores(self, tokens, return_attention_scores)

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "num_heads": self.num_heads,
                "hidden_dim": self.hidden_dim,
                "attention_dropout": self.attention_dropout,
                "dropout_rate": self.dropout_rate,
                "drop_path_rate": self.drop_path_rate,
                "qkv_bias": self.qkv_bias,
                "pre_norm": self.pre_norm,
                "epsilon": self.epsilon,
                "remat": self.remat,
                "lora": self.lora,
            }
        )
        return config
