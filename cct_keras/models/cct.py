import keras

from cct_keras.layers.conv_tokenizer import ConvTokenizer
from cct_keras.models.parts import add_positions
from cct_keras.models.parts import classifier_head
from cct_keras.models.parts import drop_out
from cct_keras.models.parts import encoder
from cct_keras.models.parts import functional_model
from cct_keras.models.parts import image_input
from cct_keras.models.parts import number_of_classes
from cct_keras.models.parts import pool_tokens
from cct_keras.models.parts import warn_of_few_tokens
from cct_keras.models.weights_argument import load_weights


def CCT(
    num_classes: int | None = None,
    input_shape: tuple | None = None,
    *,
    num_layers: int = 14,
    num_heads: int = 6,
    mlp_ratio: float = 3,
    embedding_dim: int = 384,
    num_conv_layers: int = 2,
    kernel_size: int = 7,
    stride: int | None = None,
    padding: int | None = None,
    pooling_kernel_size: int = 3,
    pooling_stride: int = 2,
    pooling_padding: int = 1,
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
    name: str = "cct",
) -> keras.Model:
    """Compact Convolutional Transformer; by default CCT-14/7x2 for ImageNet.

    Args:
        num_classes: Number of classes. Defaults to 1000.
        input_shape: `(height, width, channels)` of the images, any size that
            leaves a token. Defaults to `(224, 224, 3)`.
        num_layers: Number of encoder blocks.
        num_heads: Attention heads; they divide `embedding_dim`.
        mlp_ratio: Width of the feed-forward layers over `embedding_dim`.
        embedding_dim: Width of a token.
        num_conv_layers: Stages of the tokenizer.
        kernel_size: Side of its convolution kernels.
        stride: Stride of its convolutions. Defaults to
            `max(1, kernel_size // 2 - 1)`.
        padding: Padding of its convolutions. Defaults to
            `max(1, kernel_size // 2)`.
        pooling_kernel_size: Side of the max-pooling window of each stage.
        pooling_stride: Stride of the max-pooling.
        pooling_padding: Padding of the max-pooling.
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
        weights: `None` for a fresh model; a tag of known weights, such as
            `"imagenet"`; a `.weights.h5`, `.keras` or official `.pth` file;
            `"hf://user/repo"` on the Hugging Face Hub; or the folder of a training
            run. Positions of another grid are resized and other channels adapted; for
            another number of classes the head is left as initialized, with a warning.
        classes: Another name of `num_classes`, as keras.applications has it.
        input_tensor: Optional tensor to build the model on.
        data_format: `"channels_last"` or `"channels_first"` images. Defaults to
            `keras.config.image_data_format()`.
        dtype: Dtype or policy of the layers.
        name: Name of the model.

    Returns:
        A functional `keras.Model`.

    Example:

    >>> model = CCT(10, (32, 32, 3), num_layers=2, num_heads=2, mlp_ratio=1,
    ...             embedding_dim=128, kernel_size=3)
    >>> model.count_params()
    283723
    """
    num_classes = number_of_classes("CCT", num_classes, classes, 1000)
    tokenizer = ConvTokenizer(
        embedding_dim,
        num_conv_layers=num_conv_layers,
        kernel_size=kernel_size,
        stride=stride,
        padding=padding,
        pooling_kernel_size=pooling_kernel_size,
        pooling_stride=pooling_stride,
        pooling_padding=pooling_padding,
        data_format=data_format,
        dtype=dtype,
        name="tokenizer",
    )
    images = image_input("CCT", input_shape, input_tensor, tokenizer.data_format, 224)
    grid = tokenizer.compute_grid(images.shape)
    warn_of_few_tokens("CCT", grid, kernel_size, images, tokenizer.data_format)

    x = tokenizer(images)
    x = add_positions(x, "CCT", grid, positional_embedding, dtype)
    x = drop_out(x, "CCT", dropout_rate, dtype)
    x = encoder(
        x,
        "CCT",
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
    x = pool_tokens(x, "CCT", pooling, dtype, top=top)
    if include_top:
        x = classifier_head(x, "CCT", num_classes, classifier_activation, dtype)

    model = functional_model(images, x, name)
    load_weights(model, weights)
    return model
