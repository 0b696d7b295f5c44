import keras

from cct_keras.checks import FINAL_NORMS
from cct_keras.checks import TOP_POOLINGS
from cct_keras.checks import check_choice
from cct_keras.layers.conv_tokenizer import standardize_data_format
from cct_keras.models.parts import add_positions
from cct_keras.models.parts import check_divisible_by_patch
from cct_keras.models.parts import class_token as add_class_token
from cct_keras.models.parts import classifier_head
from cct_keras.models.parts import drop_out
from cct_keras.models.parts import encoder
from cct_keras.models.parts import functional_model
from cct_keras.models.parts import hidden_width
from cct_keras.models.parts import image_input
from cct_keras.models.parts import normalize
from cct_keras.models.parts import number_of_classes
from cct_keras.models.parts import patch_tokenizer
from cct_keras.models.parts import pool_tokens
from cct_keras.models.parts import pre_logits
from cct_keras.models.parts import projection
from cct_keras.models.parts import register_tokens
from cct_keras.models.weights_argument import load_weights
from cct_keras.models.weights_argument import open_settings


def ViT(
    num_classes: int | None = None,
    input_shape: tuple | None = None,
    *,
    num_layers: int = 12,
    num_heads: int = 12,
    mlp_ratio: float = 4,
    embedding_dim: int = 768,
    patch_size: int = 16,
    patch_bias: bool = True,
    class_token: bool | None = None,
    positional_embedding: str | None = "learnable",
    class_token_position: bool = True,
    position_interpolation: str | None = None,
    num_registers: int = 0,
    norm_before_blocks: bool = False,
    layer_scale: float | None = None,
    dropout_rate: float = 0.0,
    attention_dropout: float = 0.0,
    stochastic_depth: float = 0.0,
    epsilon: float | None = None,
    activation: str = "gelu",
    final_norm: str | None = "tokens",
    top_pooling: str = "token",
    representation_size: int | None = None,
    include_top: bool = True,
    pooling: str | None = None,
    projection_dim: int | None = None,
    classifier_activation="softmax",
    weights=None,
    classes: int | None = None,
    input_tensor=None,
    data_format: str | None = None,
    dtype=None,
    name: str = "vit",
) -> keras.Model:
    """Vision Transformer; by default ViT-Base/16.

    The plain ViTs that came after it are the same model with other arguments:

    | model | arguments |
    |---|---|
    | DINOv2 | `layer_scale`, often `num_registers=4` |
    | DeiT III | `layer_scale`, `class_token_position=False` |
    | MAE, fine-tuned | `class_token=True, top_pooling="avg", final_norm="pooled"` |
    | CLIP | `patch_bias=False, norm_before_blocks=True, activation="quick_gelu"` |
    | SigLIP | `top_pooling="map", activation="gelu_tanh"` |

    Args:
        num_classes: Number of classes. Defaults to 1000.
        input_shape: `(height, width, channels)` of the images; height and width
            are multiples of `patch_size`. Defaults to `(224, 224, 3)`.
        num_layers: Number of encoder blocks.
        num_heads: Attention heads; they divide `embedding_dim`.
        mlp_ratio: Width of the feed-forward layers over `embedding_dim`.
        embedding_dim: Width of a token.
        patch_size: Side of a patch, one token each.
        patch_bias: Whether the convolution that makes tokens of patches has a bias.
        class_token: Whether a class token stands before the image's tokens. Defaults
            to whether `top_pooling` reads it.
        positional_embedding: `"learnable"`, `"sine"`, or `None` or `"none"` for no
            positions.
        class_token_position: Whether the class token has a position, too.
        position_interpolation: How positions of weights for another image size are
            resized: `"bilinear"`, `"bilinear_corners"`, `"bicubic"`,
            `"bicubic_antialias"` or `"bicubic_offset"`. Defaults to what the origin of
            the weights does.
        num_registers: Learned tokens without a position, after the class token.
        norm_before_blocks: Whether the tokens are normalized before the first block.
        layer_scale: Initial value of a learned factor for each channel of the branches
            of every block; `None` for no such factors.
        dropout_rate: Dropout after the positions, the projections and the activation.
        attention_dropout: Dropout on the attention weights.
        stochastic_depth: Drop-path rate of the last block; it grows linearly
            from 0 in the first.
        epsilon: Epsilon of the normalizations. Defaults to that of the weights, if
            they tell it, and otherwise to 1e-6.
        activation: Activation of the feed-forward layers: `"gelu"`, the exact one;
            `"gelu_tanh"`, its approximation without `erf`, which some accelerators
            lack; `"quick_gelu"`, CLIP's; `"relu"`; or `"swiglu"`, for which the first
            of the two layers is twice as wide. Weights of another activation are
            refused.
        final_norm: What is normalized after the blocks: all `"tokens"`, only what was
            `"pooled"` of them, or `None`.
        top_pooling: What the head sees: `"token"` for the class token; `"avg"` for the
            mean of the image's tokens; `"token_avg"` for both, side by side; or
            `"map"` for attention pooling.
        representation_size: Width of a layer with tanh between what the head sees and
            the head, as weights that were pretrained on ImageNet-21k have; by default
            there is none.
        include_top: Whether the model ends in the classifier.
        pooling: What a model without top returns: `None` for all tokens, the
            class token first; one of the poolings of `top_pooling`; or the `"seq"`
            (sequence pooling) or `"max"` of the image's tokens.
        projection_dim: Width of a linear layer without bias after the pooling of a
            model without top, as CLIP has it; by default there is none.
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

    >>> ViT(num_layers=2, num_heads=3, embedding_dim=192).count_params()
    1268776
    """
    num_classes = number_of_classes("ViT", num_classes, classes, 1000)
    check_choice("ViT", TOP_POOLINGS, top_pooling=top_pooling)
    check_choice("ViT", FINAL_NORMS, final_norm=final_norm)
    if class_token is None:
        class_token = top_pooling in ("token", "token_avg")
    _check_read_tokens(class_token, top_pooling, include_top, pooling, projection_dim)
    weights, settings = open_settings(
        weights,
        {"epsilon": epsilon, "position_interpolation": position_interpolation},
        {"epsilon": 1e-6, "position_interpolation": "bilinear"},
    )
    epsilon = settings["epsilon"]
    data_format = standardize_data_format("ViT", data_format)
    images = image_input("ViT", input_shape, input_tensor, data_format, 224)
    tokenizer = patch_tokenizer(
        "ViT", embedding_dim, patch_size, data_format, dtype, use_bias=patch_bias
    )
    check_divisible_by_patch("ViT", images.shape, tokenizer)
    grid = tokenizer.compute_grid(images.shape)

    x = tokenizer(images)
    if class_token and class_token_position:
        x = add_class_token(x, dtype)
    x = add_positions(
        x,
        "ViT",
        grid,
        positional_embedding,
        dtype,
        num_prefix_tokens=1 if class_token and class_token_position else 0,
        interpolation=settings["position_interpolation"],
    )
    if class_token and not class_token_position:
        x = add_class_token(x, dtype)
    x = register_tokens(x, "ViT", num_registers, 1 if class_token else 0, dtype)
    x = drop_out(x, "ViT", dropout_rate, dtype)
    if norm_before_blocks:
        x = normalize(x, epsilon, dtype, name="norm_pre")
    x = encoder(
        x,
        "ViT",
        num_layers=num_layers,
        num_heads=num_heads,
        mlp_ratio=mlp_ratio,
        dropout_rate=dropout_rate,
        attention_dropout=attention_dropout,
        stochastic_depth=stochastic_depth,
        qkv_bias=True,
        pre_norm=True,
        epsilon=epsilon,
        activation=activation,
        layer_scale=layer_scale,
        final_norm=final_norm == "tokens",
        dtype=dtype,
    )
    x = pool_tokens(
        x,
        "ViT",
        pooling,
        dtype,
        top=top_pooling if include_top else None,
        num_prefix_tokens=(1 if class_token else 0) + num_registers,
        has_class_token=class_token,
        attention={
            "num_heads": num_heads,
            "hidden_dim": hidden_width("ViT", embedding_dim, mlp_ratio),
            "epsilon": epsilon,
            "activation": activation,
        },
    )
    if final_norm == "pooled" and (include_top or pooling):
        x = normalize(x, epsilon, dtype, name="fc_norm")
    if include_top:
        x = pre_logits(x, "ViT", representation_size, dtype)
        x = classifier_head(x, "ViT", num_classes, classifier_activation, dtype)
    else:
        x = projection(x, "ViT", projection_dim, dtype)

    model = functional_model(images, x, name)
    load_weights(model, weights)
    return model


def _check_read_tokens(class_token, top_pooling, include_top, pooling, projection_dim):
    """Refuses a head that reads a token, or a projection of one, that is not there."""
    if include_top and not class_token and top_pooling in ("token", "token_avg"):
        raise ValueError(
            f"ViT: top_pooling={top_pooling!r} reads the class token. "
            f"Received: class_token={class_token!r}"
        )
    if projection_dim is not None and not include_top and pooling is None:
        raise ValueError(
            "ViT: `projection_dim` projects one vector an image, so `pooling` must not "
            f"be None. Received: projection_dim={projection_dim!r}, pooling=None"
        )
