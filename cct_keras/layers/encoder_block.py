import keras

from cct_keras.checks import ACTIVATIONS
from cct_keras.checks import check_choice
from cct_keras.checks import check_number
from cct_keras.checks import check_positive
from cct_keras.checks import check_rate
from cct_keras.kernels.remat import remat
from cct_keras.layers.adaptable_layer import AdaptableLayer
from cct_keras.layers.attention_scores import spec_with_scores
from cct_keras.layers.drop_path import DropPath
from cct_keras.layers.feed_forward import FeedForward
from cct_keras.layers.layer_normalization import LayerNormalization
from cct_keras.layers.layer_scale import LayerScale
from cct_keras.layers.multi_head_self_attention import MultiHeadSelfAttention
from cct_keras.layers.settings import check_settings
from cct_keras.layers.settings import save_settings


@keras.saving.register_keras_serializable(package="cct_keras")
class EncoderBlock(AdaptableLayer):
    """One transformer block.

    The released CCT, CVT and ViT-Lite weights need a residual order of their
    own: the second normalization *replaces* the residual stream.

        x = x + DropPath(attention(norm1(x)))
        x = norm2(x)
        x = x + DropPath(feed_forward(x))

    Args:
        num_heads: Number of attention heads.
        hidden_dim: Width of the feed-forward layer.
        attention_dropout: Dropout on the attention weights.
        dropout_rate: Dropout after the projections and the activation.
        drop_path_rate: Stochastic depth on both branches.
        qkv_bias: Whether the query, key and value projection has a bias.
        pre_norm: Whether to use the textbook order instead, in which
            the second normalization sees the feed-forward branch only.
        epsilon: Epsilon of the normalizations.
        activation: Activation of the feed-forward layer; see `FeedForward`.
        layer_scale: Initial value of a learned factor for each channel of both
            branches; `None` for no such factors.
        remat: Whether to keep only the input of the block for the backward pass, and
            to compute the rest again there: less memory, more time.

    Call arguments:
        tokens: Tensor `(batch, tokens, dim)`.
        return_attention_scores: Whether to return `(output, weights)`, the
            weights `(batch, heads, tokens, tokens)`.
        training: Whether dropout and stochastic depth are on.

    Output shape:
        Same as the input.

    Example:

    >>> tokens = keras.random.normal((2, 64, 128))
    >>> keras.ops.shape(EncoderBlock(num_heads=2, hidden_dim=128)(tokens))
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
        activation: str = "gelu",
        layer_scale: float | None = None,
        remat: bool = False,
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
        check_choice("EncoderBlock", ACTIVATIONS, activation=activation)
        if layer_scale is not None:
            check_number("EncoderBlock", layer_scale=layer_scale)
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.attention_dropout = attention_dropout
        self.dropout_rate = dropout_rate
        self.drop_path_rate = drop_path_rate
        self.qkv_bias = qkv_bias
        self.pre_norm = pre_norm
        self.epsilon = epsilon
        self.activation = activation
        self.layer_scale = layer_scale
        self.remat = remat

        # A frozen block that comes from a file freezes its sublayers here: Keras hands
        # `trainable` on only when it is set later.
        shared = {"dtype": self.dtype_policy, "trainable": self.trainable}
        self.norm1 = LayerNormalization(epsilon=epsilon, name="norm1", **shared)
        self.attention = MultiHeadSelfAttention(
            num_heads,
            use_bias=qkv_bias,
            attention_dropout=attention_dropout,
            dropout_rate=dropout_rate,
            name="attention",
            **shared,
        )
        self.scale1 = self.scale2 = None
        if layer_scale is not None:
            self.scale1 = LayerScale(layer_scale, name="scale1", **shared)
            self.scale2 = LayerScale(layer_scale, name="scale2", **shared)
        self.drop_path1 = DropPath(drop_path_rate, name="drop_path1", **shared)
        self.norm2 = LayerNormalization(epsilon=epsilon, name="norm2", **shared)
        self.feed_forward = FeedForward(
            hidden_dim,
            dropout_rate=dropout_rate,
            activation=activation,
            name="feed_forward",
            **shared,
        )
        self.drop_path2 = DropPath(drop_path_rate, name="drop_path2", **shared)
        # A subclass replaces the linear layers of the whole block in one place.
        self.attention.make_projection = self.make_projection
        self.feed_forward.make_projection = self.make_projection

    def build(self, input_shape):
        for layer in (
            self.norm1,
            self.attention,
            self.scale1,
            self.drop_path1,
            self.norm2,
            self.feed_forward,
            self.scale2,
            self.drop_path2,
        ):
            if layer is not None:
                layer.build(input_shape)

    def call(self, tokens, return_attention_scores=False, training=None):
        if return_attention_scores:
            return self._forward(tokens, training, return_attention_scores=True)
        if self.remat and training:
            forward = remat(lambda x: self._forward(x, training), self._seeds())
            return forward(tokens)
        return self._forward(tokens, training)

    def _forward(self, tokens, training, return_attention_scores=False):
        # Keras would hand on `training` by itself, but not to the second computation
        # of `remat`.
        branch = self.attention(
            self.norm1(tokens, training=training),
            return_attention_scores=return_attention_scores,
            training=training,
        )
        if return_attention_scores:
            branch, weights = branch
        if self.scale1 is not None:
            branch = self.scale1(branch)
        x = tokens + self.drop_path1(branch, training=training)
        normalized = self.norm2(x, training=training)
        if not self.pre_norm:
            x = normalized
        branch = self.feed_forward(normalized, training=training)
        if self.scale2 is not None:
            branch = self.scale2(branch)
        x = x + self.drop_path2(branch, training=training)
        return (x, weights) if return_attention_scores else x

    def _seeds(self):
        """The seed generators of everything random in the block."""
        layers = (
            self.attention.attention_drop,
            self.attention.proj_drop,
            self.drop_path1,
            self.feed_forward.drop1,
            self.feed_forward.drop2,
            self.drop_path2,
        )
        return [layer.seed_generator for layer in layers if layer.rate > 0]

    def compute_output_shape(self, input_shape, return_attention_scores=False):
        if not return_attention_scores:
            return input_shape
        return self.attention.compute_output_shape(input_shape, True)

    def compute_output_spec(self, tokens, return_attention_scores=False, training=None):
        return spec_with_scores(self, tokens, return_attention_scores)

    def save_own_variables(self, store):
        save_settings(store, self._settings())

    def load_own_variables(self, store):
        # Files have no entry from before there was a choice.
        earlier = {"activation": "gelu", "layer_scale": False}
        check_settings(self, store, self._settings(), earlier)

    def _settings(self):
        """What changes the function of the block besides its weights."""
        return {
            "num_heads": int(self.num_heads),
            "hidden_dim": int(self.hidden_dim),
            "qkv_bias": bool(self.qkv_bias),
            "pre_norm": bool(self.pre_norm),
            "epsilon": float(self.epsilon),
            "activation": self.activation,
            "layer_scale": self.layer_scale is not None,
        }

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
                "activation": self.activation,
                "layer_scale": self.layer_scale,
                "remat": self.remat,
            }
        )
        return config
