"""What the families share: the image input, the encoder, the pooling, the head."""

import math
import numbers

import keras

from cct_keras.layers import EncoderBlock
from cct_keras.layers import LayerNormalization
from cct_keras.layers import PositionEmbedding
from cct_keras.layers import SeqPool
from cct_keras.layers import TokenPool
from cct_keras.layers.checks import check_choice
from cct_keras.layers.checks import check_divisible_by_heads
from cct_keras.layers.checks import check_positive
from cct_keras.layers.checks import check_rate


def image_input(
    owner: str,
    input_shape: tuple | None,
    input_tensor,
    data_format: str,
    default_size: int,
):
    """The tensor the model starts from, `(batch, *image)`."""
    if input_tensor is not None:
        shape = tuple(input_tensor.shape[1:])
        if input_shape is not None and tuple(input_shape) != shape:
            raise ValueError(
                f"{owner}: `input_shape` must agree with `input_tensor`. Received: "
                f"input_shape={input_shape}, input_tensor of shape {shape}"
            )
        _check_image_shape(owner, shape, data_format)
        return input_tensor
    if input_shape is None:
        input_shape = (default_size, default_size, 3)
        if data_format == "channels_first":
            input_shape = (3, default_size, default_size)
    _check_image_shape(owner, input_shape, data_format)
    return keras.Input(tuple(input_shape), name="images")


def _check_image_shape(owner, shape, data_format):
    last = data_format == "channels_last"
    axes = "(height, width, channels)" if last else "(channels, height, width)"
    if not isinstance(shape, (tuple, list)) or len(shape) != 3:
        raise ValueError(
            f"{owner}: `input_shape` must be {axes}. Received: input_shape={shape!r}"
        )
    sides = {f"input_shape[{i}]": side for i, side in enumerate(shape)}
    channels = sides[f"input_shape[{2 if last else 0}]"]
    if channels is None:
        raise ValueError(
            f"{owner}: the channels of `input_shape` {axes} must be known. "
            f"Received: input_shape={shape!r}"
        )
    check_positive(owner, **{k: v for k, v in sides.items() if v is not None})


def encode(
    x,
    *,
    owner: str,
    grid: tuple,
    num_prefix_tokens: int = 0,
    num_layers: int,
    num_heads: int,
    mlp_ratio: float,
    positional_embedding: str | None,
    dropout_rate: float,
    attention_dropout: float,
    stochastic_depth: float,
    qkv_bias: bool = False,
    pre_norm: bool = False,
    epsilon: float = 1e-5,
    dtype,
):
    """Positions, the blocks, the final normalisation."""
    dim = x.shape[-1]
    check_positive(owner, num_layers=num_layers, num_heads=num_heads)
    check_divisible_by_heads(owner, dim, num_heads)
    check_rate(
        owner,
        dropout_rate=dropout_rate,
        attention_dropout=attention_dropout,
        stochastic_depth=stochastic_depth,
    )
    check_choice(
        owner, ("learnable", "sine", None), positional_embedding=positional_embedding
    )

    if positional_embedding is not None:
        if None in grid:
            raise ValueError(
                f"{owner}: with positional_embedding={positional_embedding!r} the "
                "height and width of `input_shape` must be known; use "
                "positional_embedding=None for images of any size."
            )
        x = PositionEmbedding(
            grid,
            kind=positional_embedding,
            num_prefix_tokens=num_prefix_tokens,
            dtype=dtype,
            name="position_embedding",
        )(x)
    x = keras.layers.Dropout(dropout_rate, dtype=dtype, name="dropout")(x)
    for i in range(num_layers):
        x = EncoderBlock(
            num_heads,
            hidden_width(owner, dim, mlp_ratio),
            attention_dropout=attention_dropout,
            dropout_rate=dropout_rate,
            drop_path_rate=stochastic_depth * i / max(1, num_layers - 1),
            qkv_bias=qkv_bias,
            pre_norm=pre_norm,
            epsilon=epsilon,
            dtype=dtype,
            name=f"block_{i}",
        )(x)
    return LayerNormalization(epsilon=epsilon, dtype=dtype, name="norm")(x)


def hidden_width(owner: str, dim: int, mlp_ratio: float) -> int:
    """Width of the feed-forward layer."""
    is_number = (
        isinstance(mlp_ratio, numbers.Real)
        and not isinstance(mlp_ratio, bool)
        and math.isfinite(mlp_ratio)
    )
    if not is_number or int(dim * mlp_ratio) < 1:
        raise ValueError(
            f"{owner}: `mlp_ratio` must be a number that gives a hidden width of 1 "
            f"or more. Received: mlp_ratio={mlp_ratio!r}, embedding_dim={dim}"
        )
    return int(dim * mlp_ratio)


def pool_tokens(
    x,
    owner: str,
    pooling: str | None,
    dtype,
    *,
    top: str | None = None,
    num_prefix_tokens: int = 0,
):
    """The tokens in the way that `pooling` names; `None` returns them all.

    `top` is the pooling below a classifier, in the place of `pooling`.
    """
    choices = (None, "seq", "avg", "max") + (("token",) if num_prefix_tokens else ())
    check_choice(owner, choices, pooling=pooling)
    pooling = top or pooling
    if pooling is None:
        return x
    if pooling == "token":
        return TokenPool(dtype=dtype, name="pool")(x)
    if num_prefix_tokens:
        x = keras.layers.Cropping1D(
            (num_prefix_tokens, 0), dtype=dtype, name="image_tokens"
        )(x)
    if pooling == "seq":
        return SeqPool(dtype=dtype, name="pool")(x)
    layer = {
        "avg": keras.layers.GlobalAveragePooling1D,
        "max": keras.layers.GlobalMaxPooling1D,
    }[pooling]
    # Tokens are (batch, tokens, dim), whatever the layout of the images.
    return layer(data_format="channels_last", dtype=dtype, name="pool")(x)


def linear_head(x, owner: str, num_classes: int, dtype, name: str = "head"):
    """Logits."""
    check_positive(owner, num_classes=num_classes)
    return keras.layers.Dense(
        int(num_classes),
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.02),
        dtype=dtype,
        name=name,
    )(x)


def activate(x, classifier_activation, dtype):
    """The activation of logits, always in full precision."""
    return keras.layers.Activation(
        classifier_activation,
        dtype=keras.dtype_policies.get(dtype).variable_dtype,
        name="predictions",
    )(x)


def classify(x, owner: str, num_classes: int, classifier_activation, dtype):
    """The linear head and its activation."""
    x = linear_head(x, owner, num_classes, dtype)
    return activate(x, classifier_activation, dtype)


def functional_model(images, outputs, name: str):
    """A plain functional model; `images` may be a tensor of a larger graph."""
    inputs = keras.utils.get_source_inputs(images)
    return keras.Model(inputs[0] if len(inputs) == 1 else inputs, outputs, name=name)
