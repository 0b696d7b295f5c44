import keras
from keras import ops

from cct_keras.checks import ACTIVATIONS
from cct_keras.checks import check_choice
from cct_keras.checks import check_divisible_by_heads
from cct_keras.checks import check_positive
from cct_keras.checks import check_rank
from cct_keras.kernels.attention import attention
from cct_keras.layers.adaptable_layer import AdaptableLayer
from cct_keras.layers.feed_forward import FeedForward
from cct_keras.layers.layer_normalization import LayerNormalization
from cct_keras.layers.settings import check_settings
from cct_keras.layers.settings import save_settings


@keras.saving.register_keras_serializable(package="cct_keras")
class AttentionPool(AdaptableLayer):
    """Pooling by attention: a learned query reads the tokens, as in SigLIP.

        x = attention(probe, tokens)
        x = x + feed_forward(norm(x))

    Args:
        num_heads: Number of attention heads; divides the width of the input.
        hidden_dim: Width of the feed-forward layer.
        epsilon: Epsilon of the normalization.
        activation: Activation of the feed-forward layer; see `FeedForward`.

    Input shape:
        `(batch, tokens, dim)`

    Output shape:
        `(batch, dim)`

    Example:

    >>> tokens = keras.random.normal((2, 64, 128))
    >>> keras.ops.shape(AttentionPool(num_heads=2, hidden_dim=512)(tokens))
    (2, 128)
    """

    def __init__(
        self,
        num_heads: int,
        hidden_dim: int,
        *,
        epsilon: float = 1e-6,
        activation: str = "gelu",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive("AttentionPool", num_heads=num_heads, hidden_dim=hidden_dim)
        check_choice("AttentionPool", ACTIVATIONS, activation=activation)
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.epsilon = epsilon
        self.activation = activation
        shared = {"dtype": self.dtype_policy, "trainable": self.trainable}
        self.norm = LayerNormalization(epsilon=epsilon, name="norm", **shared)
        self.feed_forward = FeedForward(
            hidden_dim, activation=activation, name="feed_forward", **shared
        )
        self.feed_forward.make_projection = self.make_projection

    def build(self, input_shape):
        check_rank("AttentionPool", input_shape, ("batch", "tokens", "dim"))
        batch, _, dim = input_shape
        check_divisible_by_heads("AttentionPool", dim, self.num_heads)
        self.probe = self.add_weight(
            shape=(1, 1, dim),
            initializer=keras.initializers.RandomNormal(stddev=dim**-0.5),
            name="probe",
        )
        self.query = self.make_projection("query", dim)
        self.query.build((1, dim))
        self.key_value = self.make_projection("key_value", 2 * dim)
        self.key_value.build(input_shape)
        self.proj = self.make_projection("proj", dim)
        self.proj.build((batch, dim))
        self.norm.build((batch, dim))
        self.feed_forward.build((batch, dim))

    def call(self, tokens, training=None):
        _, length, dim = ops.shape(tokens)
        heads, width = self.num_heads, dim // self.num_heads
        query = self.query(ops.cast(self.probe, tokens.dtype)[0])
        query = ops.reshape(query, (1, heads, 1, width))
        x = self.key_value(ops.reshape(tokens, (-1, dim)))
        x = ops.reshape(x, (-1, length, 2, heads, width))
        key, value = ops.unstack(ops.transpose(x, (2, 0, 3, 1, 4)), 2, axis=0)
        query = ops.broadcast_to(query, (ops.shape(key)[0], heads, 1, width))
        x = attention(query, key, value, shown_as="pool")
        x = self.proj(ops.reshape(x, (-1, dim)))
        return x + self.feed_forward(self.norm(x, training=training), training=training)

    def compute_output_shape(self, input_shape):
        batch, _, dim = input_shape
        return batch, dim

    def save_own_variables(self, store):
        super().save_own_variables(store)
        save_settings(store, self._settings())

    def load_own_variables(self, store):
        check_settings(self, store, self._settings())
        self.probe.assign(store["0"])

    def _settings(self):
        """What changes the function besides the weights."""
        return {
            "num_heads": int(self.num_heads),
            "hidden_dim": int(self.hidden_dim),
            "epsilon": float(self.epsilon),
            "activation": self.activation,
        }

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "num_heads": self.num_heads,
                "hidden_dim": self.hidden_dim,
                "epsilon": self.epsilon,
                "activation": self.activation,
            }
        )
        return config
