import math

import keras
from keras import ops

from cct_keras.layers.checks import check_positive
from cct_keras.layers.checks import check_rate
from cct_keras.layers.lora_dense import check_lora
from cct_keras.layers.lora_dense import projection


@keras.saving.register_keras_serializable(package="cct_keras")
class FeedForward(keras.layers.Layer):
    """The two-layer network of a transformer block, with the exact GELU.

    Args:
        hidden_dim: Width of the hidden layer.
        dropout_rate: Dropout after the GELU and after the second projection.
        lora: Adapters on the projections `linear1` and `linear2`; see `add_lora`.

    Input shape:
        `(batch, ..., dim)`

    Output shape:
        Same as the input.

    Example:

    >>> tokens = keras.random.normal((2, 64, 128))
    >>> FeedForward(256)(tokens).shape
    (2, 64, 128)
    """

    def __init__(
        self,
        hidden_dim: int,
        *,
        dropout_rate: float = 0.0,
        lora: dict | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive("FeedForward", hidden_dim=hidden_dim)
        check_rate("FeedForward", dropout_rate=dropout_rate)
        self.hidden_dim = hidden_dim
        self.dropout_rate = dropout_rate
        self.lora = check_lora("FeedForward", lora)

    def build(self, input_shape):
        dim = input_shape[-1]
        self.linear1 = projection(
            "linear1", self.hidden_dim, lora=self.lora, dtype=self.dtype_policy
        )
        self.linear1.build(input_shape)
        self.linear2 = projection(
            "linear2", dim, lora=self.lora, dtype=self.dtype_policy
        )
        self.linear2.build((*input_shape[:-1], self.hidden_dim))
        self.drop1 = keras.layers.Dropout(
            self.dropout_rate, dtype=self.dtype_policy, name="drop1"
        )
        self.drop2 = keras.layers.Dropout(
            self.dropout_rate, dtype=self.dtype_policy, name="drop2"
        )

    def call(self, tokens, training=None):
        # TensorFlow fuses bias and GELU into the product of matrices, not of batches.
        x = ops.reshape(tokens, (-1, tokens.shape[-1]))
        x = self.drop1(exact_gelu(self.linear1(x), training), training=training)
        x = ops.reshape(self.linear2(x), (-1, *ops.shape(tokens)[1:]))
        return self.drop2(x, training=training)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "hidden_dim": self.hidden_dim,
                "dropout_rate": self.dropout_rate,
                "lora": self.lora,
            }
        )
        return config


def exact_gelu(x, training: bool = False):
    """GELU by `erf`.

    TensorFlow lowers its own to `Erfc`, which ONNX does not have; this one it fuses
    into the product before it.

    Args:
        x: A tensor.
        training: Whether there is a backward pass to spare memory for.
    """
    if keras.config.backend() != "tensorflow":
        return ops.gelu(x, approximate=False)
    return _gelu_from_its_input(x) if training else _gelu(x)


@ops.custom_gradient
def _gelu_from_its_input(x):
    """Keeps one tensor for the backward pass, where TensorFlow would keep four."""

    def backward(gradient):
        pdf = ops.exp(ops.square(x) * -0.5) * (2 * math.pi) ** -0.5
        cdf = 0.5 * (1.0 + ops.erf(x * math.sqrt(0.5)))
        return gradient * (cdf + x * pdf)

    return _gelu(x), backward


def _gelu(x):
    return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))
