import keras

from cct_keras.layers.conv_tokenizer import standardize_data_format
from cct_keras.models.parts import add_positions
from cct_keras.models.parts import check_divisible_by_patch
from cct_keras.models.parts import classifier_head
from cct_keras.models.parts import drop_out
from cct_keras.models.parts import encoder
from cct_keras.models.parts import functional_model
from cct_keras.models.parts import image_input
from cct_keras.models.parts import number_of_classes
from cct_keras.models.parts import patch_tokenizer
from cct_keras.models.parts import pool_tokens
from cct_keras.models.weights_argument import load_weights


def CVT(
    num_classes: int | None = None,
    input_shape: tuple | None = None,
    *,
    num_layers: int = 7,
    num_heads: int = 4,
    mlp_ratio: float = 2,
    embedding_dim: int = 256,
    patch_size: int = 4,
    positional_embedding: str | None = "learnable",
    dropout_rate: float = 0.0,
    attention_dropout: float = 0.1,
    stochastic_depth: float = 0.1,
    activation: str = "gelu",
    include_top: bool = True,
    pooling: str | None = None,
    classifier_activation="softmax",
    weights=None,
    classes: int | None = None,
    input_tensor=None,
    data_format: str | None = None,
    dtype=None,
    name: str = "cvt",
) -> keras.Model:
    """Compact Vision Transformer: patches and sequence pooling; by default CVT-7/4.

    Args:
        num_classes: Number of classes. Defaults to 10.
        input_shape: `(height, width, channels)` of the images; height and width
            are multiples of `patch_size`. Defaults to `(32, 32, 3)`.
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
        activation: Activation of the feed-forward layers: `"gelu"`, the exact one;
            `"gelu_tanh"`, its approximation without `erf`, which some accelerators
            lack; or `"relu"`. Published weights are for `"gelu"`; weights of another
            activation are refused.
        include_top: Whether the model ends in the classifier.
        pooling: What a model without top returns: `None` for the tokens, or
            their `"seq"` (sequence pooling), `"avg"` or `"max"`.
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

    >>> CVT(num_classes=10).count_params()
    3716619
    """
    num_classes = number_of_classes("CVT", num_classes, classes, 10)
    data_format = standardize_data_format("CVT", data_format)
    images = image_input("CVT", input_shape, input_tensor, data_format, 32)
    tokenizer = patch_tokenizer("CVT", embedding_dim, patch_size, data_format, dtype)
    check_divisible_by_patch("CVT", images.shape, tokenizer)
    grid = tokenizer.compute_grid(images.shape)

    x = tokenizer(images)
    x = add_positions(x, "CVT", grid, positional_embedding, dtype)
    x = drop_out(x, "CVT", dropout_rate, dtype)
    x = encoder(
        x,
        "CVT",
        num_layers=num_layers,
        num_heads=num_heads,
        mlp_ratio=mlp_ratio,
        dropout_rate=dropout_rate,
        attention_dropout=attention_dropout,
        stochastic_depth=stochastic_depth,
        activation=activation,
        dtype=dtype,
    )
    top = "seq" if include_top else None
    x = pool_tokens(x, "CVT", pooling, dtype, top=top)
    if include_top:
        x = classifier_head(x, "CVT", num_classes, classifier_activation, dtype)

    model = functional_model(images, x, name)
    load_weights(model, weights)
    return model
