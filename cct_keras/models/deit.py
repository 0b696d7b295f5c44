import keras

from cct_keras.layers.conv_tokenizer import standardize_data_format
from cct_keras.layers.token_pool import TokenPool
from cct_keras.models.parts import activate
from cct_keras.models.parts import add_positions
from cct_keras.models.parts import check_divisible_by_patch
from cct_keras.models.parts import class_token
from cct_keras.models.parts import drop_out
from cct_keras.models.parts import encoder
from cct_keras.models.parts import functional_model
from cct_keras.models.parts import image_input
from cct_keras.models.parts import linear_head
from cct_keras.models.parts import number_of_classes
from cct_keras.models.parts import patch_tokenizer
from cct_keras.models.parts import pool_tokens
from cct_keras.models.weights_argument import load_weights
from cct_keras.models.weights_argument import open_settings


def DeiT(
    num_classes: int | None = None,
    input_shape: tuple | None = None,
    *,
    distilled: bool = False,
    num_layers: int = 12,
    num_heads: int = 12,
    mlp_ratio: float = 4,
    embedding_dim: int = 768,
    patch_size: int = 16,
    positional_embedding: str | None = "learnable",
    position_interpolation: str | None = None,
    dropout_rate: float = 0.0,
    attention_dropout: float = 0.0,
    stochastic_depth: float = 0.1,
    epsilon: float | None = None,
    activation: str = "gelu",
    distillation_head: bool = True,
    include_top: bool = True,
    pooling: str | None = None,
    classifier_activation="softmax",
    weights=None,
    classes: int | None = None,
    input_tensor=None,
    data_format: str | None = None,
    dtype=None,
    name: str = "deit",
) -> keras.Model:
    """Data-efficient image transformer; by default DeiT-Base/16.

    A distilled one has a second token that learns from a teacher, with a head of
    its own, and returns the activation of the mean of both logits. For training,
    `distillation_outputs` returns them apart.

    Args:
        num_classes: Number of classes. Defaults to 1000.
        input_shape: `(height, width, channels)` of the images; height and width
            are multiples of `patch_size`. Defaults to `(224, 224, 3)`.
        distilled: Whether there is a distillation token.
        num_layers: Number of encoder blocks.
        num_heads: Attention heads; they divide `embedding_dim`.
        mlp_ratio: Width of the feed-forward layers over `embedding_dim`.
        embedding_dim: Width of a token.
        patch_size: Side of a patch, one token each.
        positional_embedding: `"learnable"`, `"sine"`, or `None` or `"none"` for no
            positions.
        position_interpolation: How positions of weights for another image size are
            resized: `"bilinear"`, `"bilinear_corners"`, `"bicubic"`,
            `"bicubic_antialias"` or `"bicubic_offset"`. Defaults to what the origin of
            the weights does.
        dropout_rate: Dropout after the positions, the projections and the activation.
        attention_dropout: Dropout on the attention weights.
        stochastic_depth: Drop-path rate of the last block; it grows linearly
            from 0 in the first.
        epsilon: Epsilon of the normalizations. Defaults to that of the weights, if
            they tell it, and otherwise to 1e-6.
        activation: Activation of the feed-forward layers: `"gelu"`, the exact one;
            `"gelu_tanh"`, its approximation without `erf`, which some accelerators
            lack; or `"relu"`. Published weights are for `"gelu"`; weights of another
            activation are refused.
        distillation_head: Whether the distillation token has its head. Without,
            only the class token is read, as Hugging Face's `DeiTForImageClassification`
            does.
        include_top: Whether the model ends in the classifier.
        pooling: What a model without top returns: `None` for all tokens, the
            class token first and then the distillation token; `"token"` for the
            class token; or the `"seq"` (sequence pooling), `"avg"` or `"max"` of
            the image's tokens.
        classifier_activation: Activation of the head; `None` returns logits.
        weights: `None` for a fresh model, a tag or a file, as in `CCT`.
        classes: Another name of `num_classes`, as keras.applications has it.
        input_tensor: Optional tensor to build the model on.
        data_format: `"channels_last"` or `"channels_first"` images. Defaults to
            `keras.config.image_data_format()`.
        dtype: Dtype or policy of the layers.
        name: Name of the model.

    Returns:
        A functional `keras.Model`.

    Example:

    >>> DeiT(num_layers=2, num_heads=3, embedding_dim=192).count_params()
    1268776
    """
    num_classes = number_of_classes("DeiT", num_classes, classes, 1000)
    weights, settings = open_settings(
        weights,
        {"epsilon": epsilon, "position_interpolation": position_interpolation},
        {"epsilon": 1e-6, "position_interpolation": "bilinear"},
    )
    data_format = standardize_data_format("DeiT", data_format)
    images = image_input("DeiT", input_shape, input_tensor, data_format, 224)
    tokenizer = patch_tokenizer("DeiT", embedding_dim, patch_size, data_format, dtype)
    check_divisible_by_patch("DeiT", images.shape, tokenizer)
    grid = tokenizer.compute_grid(images.shape)

    x = tokenizer(images)
    if distilled:
        x = class_token(x, dtype, name="distillation_token")
    x = class_token(x, dtype)
    prefix = 2 if distilled else 1
    x = add_positions(
        x,
        "DeiT",
        grid,
        positional_embedding,
        dtype,
        num_prefix_tokens=prefix,
        interpolation=settings["position_interpolation"],
    )
    x = drop_out(x, "DeiT", dropout_rate, dtype)
    x = encoder(
        x,
        "DeiT",
        num_layers=num_layers,
        num_heads=num_heads,
        mlp_ratio=mlp_ratio,
        dropout_rate=dropout_rate,
        attention_dropout=attention_dropout,
        stochastic_depth=stochastic_depth,
        qkv_bias=True,
        pre_norm=True,
        epsilon=settings["epsilon"],
        activation=activation,
        dtype=dtype,
    )
    tokens = x
    top = "token" if include_top else None
    x = pool_tokens(tokens, "DeiT", pooling, dtype, top=top, num_prefix_tokens=prefix)
    if include_top:
        x = linear_head(x, "DeiT", num_classes, dtype)
        if distilled and distillation_head:
            second = TokenPool(1, dtype=dtype, name="pool_dist")(tokens)
            second = linear_head(second, "DeiT", num_classes, dtype, name="head_dist")
            x = keras.layers.Average(dtype=dtype, name="mean_logits")([x, second])
        x = activate(x, classifier_activation, dtype)

    model = functional_model(images, x, name)
    load_weights(model, weights)
    return model


def distillation_outputs(model: keras.Model) -> keras.Model:
    """The logits of both heads of a distilled DeiT, for training.

    A functional model cannot return something else in training, so this is another
    model; the weights are shared.

    Args:
        model: A model with the layers `head` and `head_dist`.

    Returns:
        A `keras.Model` with the outputs `{"head": ..., "head_dist": ...}`.
    """
    names = {layer.name for layer in model.layers}
    if not {"head", "head_dist"} <= names:
        raise ValueError(
            "distillation_outputs: `model` must have the layers 'head' and "
            f"'head_dist', as a distilled DeiT has. Received: {model.name!r}"
        )
    outputs = {name: model.get_layer(name).output for name in ("head", "head_dist")}
    return keras.Model(model.input, outputs, name=f"{model.name}_heads")
