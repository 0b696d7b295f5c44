import keras

from cct_keras.checks import check_choice
from cct_keras.layers.conv_tokenizer import standardize_data_format
from cct_keras.models.parts import add_positions
from cct_keras.models.parts import check_divisible_by_patch
from cct_keras.models.parts import class_token
from cct_keras.models.parts import classifier_head
from cct_keras.models.parts import encoder
from cct_keras.models.parts import functional_model
from cct_keras.models.parts import image_input
from cct_keras.models.parts import number_of_classes
from cct_keras.models.parts import patch_tokenizer
from cct_keras.models.parts import pool_tokens
from cct_keras.models.parts import pre_logits
from cct_keras.models.weights_argument import load_weights
from cct_keras.models.weights_argument import open_epsilon


def ViT(
    num_classes: int | None = None,
    input_shape: tuple | None = None,
    *,
    num_layers: int = 12,
    num_heads: int = 12,
    mlp_ratio: float = 4,
    embedding_dim: int = 768,
    patch_size: int = 16,
    positional_embedding: str | None = "learnable",
    dropout_rate: float = 0.0,
    attention_dropout: float = 0.0,
    stochastic_depth: float = 0.0,
    epsilon: float | None = None,
    activation: str = "gelu",
    top_pooling: str = "token",
    representation_size: int | None = None,
    include_top: bool = True,
    pooling: str | None = None,
    classifier_activation="softmax",
    weights=None,
    classes: int | None = None,
    input_tensor=None,
    data_format: str | None = None,
    dtype=None,
    name: str = "vit",
) -> keras.Model:
    """Vision Transformer; by default ViT-Base/16.

    Args:
        num_classes: Number of classes. Defaults to 1000.
        input_shape: `(height, width, channels)` of the images; height and width
            are multiples of `patch_size`. Defaults to `(224, 224, 3)`.
        num_layers: Number of encoder blocks.
        num_heads: Attention heads; they divide `embedding_dim`.
        mlp_ratio: Width of the feed-forward layers over `embedding_dim`.
        embedding_dim: Width of a token.
        patch_size: Side of a patch, one token each.
        positional_embedding: `"learnable"`, `"sine"`, or `None` or `"none"` for no
            positions.
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
        top_pooling: What the head sees: `"token"` for the class token, or `"avg"`
            for the mean of the image's tokens, without a class token.
        representation_size: Width of a layer with tanh between what the head sees and
            the head, as weights that were pretrained on ImageNet-21k have; by default
            there is none.
        include_top: Whether the model ends in the classifier.
        pooling: What a model without top returns: `None` for all tokens, the
            class token first; `"token"` for the class token; or the `"seq"`
            (sequence pooling), `"avg"` or `"max"` of the image's tokens.
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
    check_choice("ViT", ("token", "avg"), top_pooling=top_pooling)
    weights, epsilon = open_epsilon(weights, epsilon, default=1e-6)
    data_format = standardize_data_format("ViT", data_format)
    images = image_input("ViT", input_shape, input_tensor, data_format, 224)
    tokenizer = patch_tokenizer("ViT", embedding_dim, patch_size, data_format, dtype)
    check_divisible_by_patch("ViT", images.shape, tokenizer)
    grid = tokenizer.compute_grid(images.shape)

    x = tokenizer(images)
    prefix = 1 if top_pooling == "token" else 0
    if prefix:
        x = class_token(x, dtype)
    x = add_positions(
        x,
        "ViT",
        grid,
        positional_embedding,
        dropout_rate,
        dtype,
        num_prefix_tokens=prefix,
    )
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
        dtype=dtype,
    )
    top = top_pooling if include_top else None
    x = pool_tokens(x, "ViT", pooling, dtype, top=top, num_prefix_tokens=prefix)
    if include_top:
        x = pre_logits(x, "ViT", representation_size, dtype)
        x = classifier_head(x, "ViT", num_classes, classifier_activation, dtype)

    model = functional_model(images, x, name)
    load_weights(model, weights)
    return model
