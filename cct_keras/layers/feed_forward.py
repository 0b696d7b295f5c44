import keras
from keras import ops

from cct_keras.checks import ACTIVATIONS
from cct_keras.checks import check_choice
from cct_keras.checks import check_positive
from cct_keras.checks import check_rate
from cct_keras.kernels.activation import activate
from cct_keras.layers.adaptable_layer import AdaptableLayer


@keras.saving.register_keras_serializable(package="cct_keras")
class FeedForward(AdaptableLayer):
    """The two-layer network of a transformer block.

    Args:
        hidden_dim: Width of the hidden layer.
        dropout_rate: Dropout after the activation and after the second linear layer.
        activation: `"gelu"`, the exact one; `"gelu_tanh"` and `"quick_gelu"`, its
            approximations; `"relu"`; or `"swiglu"`, a gated one, for which the first
            linear layer is twice as wide.

    Input shape:
        `(batch, ..., dim)`

    Output shape:
        Same as the input.

    Example:

    >>> tokens = keras.random.normal((2, 64, 128))
    >>> keras.ops.shape(FeedForward(256)(tokens))
    (2, 64, 128)
    """

    def __init__(
        self,
        hidden_dim: int,
        *,
        dropout_rate: float = 0.0,
        activation: str = "gelu",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive("FeedForward", hidden_dim=hidden_dim)
        check_rate("FeedForward", dropout_rate=dropout_rate)
        check_choice("FeedForward", ACTIVATIONS, activation=activation)
        self.hidden_dim = hidden_dim
        self.dropout_rate = dropout_rate
        self.activation = activation

    def build(self, input_shape):
        dim = input_shape[-1]
        width = self.hidden_dim * (2 if self.activation == "swiglu" else 1)
        self.linear1 = self.make_projection("linear1", width)
        self.linear1.build(input_shape)
        self.linear2 = self.make_projection("linear2", dim)
        self.linear2.build((*input_shape[:-1], self.hidden_dim))
        self.drop1 = keras.layers.Dropout(
            self.dropout_rate, dtype=self.dtype_policy, name="drop1"
        )
        self.drop2 = keras.layers.Dropout(
            self.dropout_rate, dtype=self.dtype_policy, name="drop2"
        )

    def call(self, tokens, training=None):
        # One token a row: matrices are multiplied faster than batches of them.
        x = ops.reshape(tokens, (-1, tokens.shape[-1]))
        x = self.drop1(activate(self.linear1(x), self.activation, training))
        x = ops.reshape(self.linear2(x), (-1, *ops.shape(tokens)[1:]))
        return self.drop2(x)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "hidden_dim": self.hidden_dim,
                "dropout_rate": self.dropout_rate,
                "activation": self.activation,
            }
        )
        return config
