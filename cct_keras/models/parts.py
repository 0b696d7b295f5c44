"""The parts that the families share, from the image input to the head."""

import math
import numbers
import warnings
from collections.abc import Mapping

import keras

from cct_keras.checks import ACTIVATIONS
from cct_keras.checks import INTERPOLATIONS
from cct_keras.checks import check_choice
from cct_keras.checks import check_divisible_by_heads
from cct_keras.checks import check_non_negative
from cct_keras.checks import check_number
from cct_keras.checks import check_positive
from cct_keras.checks import check_rate
from cct_keras.layers.attention_pool import AttentionPool
from cct_keras.layers.class_token import ClassToken
from cct_keras.layers.conv_tokenizer import ConvTokenizer
from cct_keras.layers.encoder_block import EncoderBlock
from cct_keras.layers.layer_normalization import LayerNormalization
from cct_keras.layers.position_embedding import PositionEmbedding
from cct_keras.layers.register_tokens import RegisterTokens
from cct_keras.layers.seq_pool import SeqPool
from cct_keras.layers.token_pool import TokenPool
from cct_keras.models.variants import VARIANTS

# Kernels that are made for images of 224 pixels and more, and what they leave of
# images that are too small for them.
LARGE_KERNEL, FEW_TOKENS = 7, 16

# === Arguments ===


def number_of_classes(
    owner: str, num_classes: int | None, classes: int | None, default: int
) -> int:
    """`num_classes`, or `classes` as keras.applications calls it."""
    if num_classes is not None and classes is not None:
        raise ValueError(
            f"{owner}: `classes` is another name of `num_classes`; give one of them. "
            f"Received: num_classes={num_classes!r}, classes={classes!r}"
        )
    given = classes if num_classes is None else num_classes
    return default if given is None else given


# === From images to tokens ===


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


def patch_tokenizer(
    owner: str,
    embedding_dim: int,
    patch_size: int,
    data_format: str,
    dtype,
    *,
    use_bias: bool = True,
) -> ConvTokenizer:
    """A tokenizer that makes one token of each patch."""
    check_positive(owner, patch_size=patch_size)
    return ConvTokenizer(
        embedding_dim,
        kernel_size=patch_size,
        stride=patch_size,
        padding=0,
        activation=None,
        use_bias=use_bias,
        pooling_kernel_size=None,
        data_format=data_format,
        dtype=dtype,
        name="tokenizer",
    )


def check_divisible_by_patch(owner: str, shape: tuple, tokenizer: ConvTokenizer):
    """Refuses images whose border no patch would see.

    Args:
        owner: What the error begins with.
        shape: Shape of the images with the batch axis.
        tokenizer: A tokenizer; only those of patches are bound by the rule.
    """
    patch = tokenizer.kernel_size
    pads = tokenizer.padding or tokenizer.pooling_kernel_size is not None
    if pads or tokenizer.stride != patch:
        return
    axes = (1, 2) if tokenizer.data_format == "channels_last" else (2, 3)
    if any(shape[axis] is not None and shape[axis] % patch for axis in axes):
        raise ValueError(
            f"{owner}: height and width of `input_shape` must be divisible by "
            f"`patch_size`. Received: input_shape={tuple(shape[1:])}, "
            f"patch_size={patch}"
        )


def warn_of_few_tokens(
    owner: str, grid: tuple, kernel_size: int, images, data_format: str
) -> None:
    """Says so if a model for large images is built for small ones."""
    if None in grid or math.prod(grid) >= FEW_TOKENS or kernel_size < LARGE_KERNEL:
        return
    first = 1 if data_format == "channels_last" else 2
    height, width = images.shape[first : first + 2]

    def preference(name):
        row = VARIANTS[name]
        sine = row.positional_embedding == "sine"
        # Fewer stages of convolution leave more tokens.
        return abs(row.image_size - max(height, width)), sine, row.stages, -row.layers

    variants = [name for name, row in VARIANTS.items() if row.family == owner]
    warnings.warn(
        f"{owner}: images of {height} x {width} leave {math.prod(grid)} tokens with "
        f"kernel_size={kernel_size}; create_model({min(variants, key=preference)!r}) "
        "is made for such images",
        stacklevel=3,
    )


def class_token(x, dtype, name: str = "class_token"):
    """The tokens with a learnable one before them."""
    return ClassToken(dtype=dtype, name=name)(x)


def register_tokens(x, owner: str, num_registers: int, index: int, dtype):
    """The tokens with registers after the first `index` of them; 0 for none."""
    check_non_negative(owner, num_registers=num_registers)
    if not num_registers:
        return x
    return RegisterTokens(num_registers, index=index, dtype=dtype, name="registers")(x)


def add_positions(
    x,
    owner: str,
    grid: tuple,
    positional_embedding: str | None,
    dtype,
    *,
    num_prefix_tokens: int = 0,
    interpolation: str = "bilinear",
):
    """The tokens with their positions added."""
    kinds = ("learnable", "sine", "none", None)
    check_choice(owner, kinds, positional_embedding=positional_embedding)
    check_choice(owner, INTERPOLATIONS, position_interpolation=interpolation)
    if positional_embedding not in (None, "none"):
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
            interpolation=interpolation,
            dtype=dtype,
            name="position_embedding",
        )(x)
    return x


def drop_out(x, owner: str, dropout_rate: float, dtype):
    """Dropout of what goes into the encoder."""
    check_rate(owner, dropout_rate=dropout_rate)
    return keras.layers.Dropout(dropout_rate, dtype=dtype, name="dropout")(x)


# === From tokens to classes ===


def encoder(
    x,
    owner: str,
    *,
    num_layers: int,
    num_heads: int,
    mlp_ratio: float,
    dropout_rate: float,
    attention_dropout: float,
    stochastic_depth: float,
    qkv_bias: bool = False,
    pre_norm: bool = False,
    epsilon: float = 1e-5,
    activation: str = "gelu",
    layer_scale: float | None = None,
    final_norm: bool = True,
    dtype,
):
    """The encoder blocks and the final normalization."""
    dim = x.shape[-1]
    check_positive(owner, num_layers=num_layers, num_heads=num_heads)
    check_divisible_by_heads(owner, dim, num_heads)
    check_rate(
        owner, attention_dropout=attention_dropout, stochastic_depth=stochastic_depth
    )
    check_choice(owner, ACTIVATIONS, activation=activation)
    if layer_scale is not None:
        check_number(owner, layer_scale=layer_scale)
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
            activation=activation,
            layer_scale=layer_scale,
            dtype=dtype,
            name=f"block_{i}",
        )(x)
    return normalize(x, epsilon, dtype) if final_norm else x


def normalize(x, epsilon: float, dtype, name: str = "norm"):
    """The tokens, or what was pooled of them, normalized."""
    return LayerNormalization(epsilon=epsilon, dtype=dtype, name=name)(x)


def hidden_width(owner: str, dim: int, mlp_ratio: float) -> int:
    """Width of the feed-forward layers."""
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
    has_class_token: bool | None = None,
    attention: Mapping | None = None,
):
    """One vector an image, in the way that `pooling` names; `None` keeps the tokens.

    Args:
        x: The tokens.
        owner: What errors begin with.
        pooling: What the user of a model without top asked for.
        dtype: Dtype or policy of the layers.
        top: Below a classifier, the pooling in the place of `pooling`.
        num_prefix_tokens: How many tokens stand before those of the image.
        has_class_token: Whether the first one is a class token. Defaults to whether
            there are any.
        attention: Arguments of an `AttentionPool`, in families that have one.
    """
    if has_class_token is None:
        has_class_token = num_prefix_tokens > 0
    choices = (None, "seq", "avg", "max")
    choices += ("token", "token_avg") if has_class_token else ()
    choices += () if attention is None else ("map",)
    check_choice(owner, choices, pooling=pooling)
    pooling = top or pooling
    if pooling is None:
        return x
    if pooling == "token":
        return TokenPool(dtype=dtype, name="pool")(x)
    tokens = x
    if num_prefix_tokens:
        x = keras.layers.Cropping1D(
            (num_prefix_tokens, 0), dtype=dtype, name="image_tokens"
        )(x)
    if pooling == "token_avg":
        first = TokenPool(dtype=dtype, name="pool_token")(tokens)
        mean = _global_pool("avg", dtype, "pool_avg")(x)
        return keras.layers.Concatenate(dtype=dtype, name="pool")([first, mean])
    if pooling == "seq":
        return SeqPool(dtype=dtype, name="pool")(x)
    if pooling == "map":
        return AttentionPool(**attention, dtype=dtype, name="pool")(x)
    return _global_pool(pooling, dtype, "pool")(x)


def _global_pool(pooling, dtype, name):
    layer = {
        "avg": keras.layers.GlobalAveragePooling1D,
        "max": keras.layers.GlobalMaxPooling1D,
    }[pooling]
    # Tokens are (batch, tokens, dim), whatever the layout of the images.
    return layer(data_format="channels_last", dtype=dtype, name=name)


def projection(x, owner: str, projection_dim: int | None, dtype):
    """A linear layer without bias at the end of a model; `None` for none."""
    if projection_dim is None:
        return x
    check_positive(owner, projection_dim=projection_dim)
    return keras.layers.Dense(
        int(projection_dim),
        use_bias=False,
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.02),
        dtype=dtype,
        name="projection",
    )(x)


def pre_logits(x, owner: str, representation_size: int | None, dtype):
    """A layer with tanh before the head; `None` for none."""
    if representation_size is None:
        return x
    check_positive(owner, representation_size=representation_size)
    return keras.layers.Dense(
        int(representation_size),
        "tanh",
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.02),
        dtype=dtype,
        name="pre_logits",
    )(x)


def linear_head(x, owner: str, num_classes: int, dtype, name: str = "head"):
    """The logits of the classes."""
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


def classifier_head(x, owner: str, num_classes: int, classifier_activation, dtype):
    """The linear head and its activation."""
    x = linear_head(x, owner, num_classes, dtype)
    return activate(x, classifier_activation, dtype)


def functional_model(images, outputs, name: str) -> keras.Model:
    """A plain functional model; `images` may be a tensor of a larger graph."""
    inputs = keras.utils.get_source_inputs(images)
    return keras.Model(inputs[0] if len(inputs) == 1 else inputs, outputs, name=name)
