import keras

from cct_keras.layers import ClassToken
from cct_keras.layers.checks import check_choice
from cct_keras.layers.conv_tokenizer import standardize_data_format
from cct_keras.models.patches import patch_tokenizer
from cct_keras.models.transfer import load_weights
from cct_keras.models.transformer import classify
from cct_keras.models.transformer import encode
from cct_keras.models.transformer import functional_model
from cct_keras.models.transformer import image_input
from cct_keras.models.transformer import pool_tokens


def ViT(
    num_classes: int = 1000,
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
    epsilon: float = 1e-6,
    top_pooling: str = "token",
    include_top: bool = True,
    pooling: str | None = None,
    classifier_activation="softmax",
    weights=None,
    input_tensor=None,
    data_format: str | None = None,
    dtype=None,
    name: str = "vit",
) -> keras.Model:
    """Vision Transformer; by default ViT-Base/16.

    Args:
        num_classes: Number of classes.
        input_shape: `(height, width, channels)` of the images; height and width
            are multiples of `patch_size`. Defaults to `(224, 224, 3)`.
        num_layers: Number of encoder blocks.
        num_heads: Attention heads; they divide `embedding_dim`.
        mlp_ratio: Width of the feed-forward layers over `embedding_dim`.
        embedding_dim: Width of a token.
        patch_size: Side of a patch, one token each.
        positional_embedding: `"learnable"`, `"sine"` or `None`.
        dropout_rate: Dropout after the positions, the projections and the GELU.
        attention_dropout: Dropout on the attention weights.
        stochastic_depth: Drop-path rate of the last block; it grows linearly
            from 0 in the first.
        epsilon: Epsilon of the normalisations.
        top_pooling: What the head sees: `"token"` for the class token, or `"avg"`
            for the mean of the image's tokens, without a class token.
        include_top: Whether the model ends in the classifier.
        pooling: What a model without top returns: `None` for all tokens, the
            class token first; `"token"` for the class token; or the `"seq"`
            (sequence pooling), `"avg"` or `"max"` of the image's tokens.
        classifier_activation: Activation of the head; `None` returns logits.
        weights: `None` for a fresh model, a tag or a file, as in `CCT`.
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
    # === Functional Model ===
    check_choice("ViT", ("token", "avg"), top_pooling=top_pooling)
    data_format = standardize_data_format("ViT", data_format)
    images = image_input("ViT", input_shape, input_tensor, data_format, 224)
    x, grid = patch_tokenizer(
        "ViT", images, embedding_dim, patch_size, data_format, dtype
    )
    prefix = 1 if top_pooling == "token" else 0
    if prefix:
        x = ClassToken(dtype=dtype, name="class_token")(x)
    x = encode(
        x,
        owner="ViT",
        grid=grid,
        num_prefix_tokens=prefix,
        num_layers=num_layers,
        num_heads=num_heads,
        mlp_ratio=mlp_ratio,
        positional_embedding=positional_embedding,
        dropout_rate=dropout_rate,
        attention_dropout=attention_dropout,
        stochastic_depth=stochastic_depth,
        qkv_bias=True,
        pre_norm=True,
        epsilon=epsilon,
        dtype=dtype,
    )
    top = top_pooling if include_top else None
    x = pool_tokens(x, "ViT", pooling, dtype, top=top, num_prefix_tokens=prefix)
    if include_top:
        x = classify(x, "ViT", num_classes, classifier_activation, dtype)
    model = functional_model(images, x, name)

    # === Weights ===
    if weights is not None:
        load_weights(model, weights)
    return model
