"""A compact convnet that learns fast from few images, to teach a transformer.

It follows airbench, the speed-run convnet for CIFAR-10 (arXiv 2404.00498), at half its
width: a whitened stem that does not learn, then groups of convolution, pooling,
normalization, GELU, convolution, normalization, GELU, and a head with small logits. How
it is trained is the recipe of `convnet_recipe`.
"""

import dataclasses
import math

import keras
import numpy as np
from keras import layers
from keras import ops

from cct_keras.recipes.recipe import Recipe

# What the scheme of airbench is with a batch of 512 images.
CONVNET = Recipe(
    about="The convnet that teaches: a compact airbench.",
    epochs=10,
    batch_size=512,
    optimizer="sgd",
    lr=0.5,
    min_lr=0.035,
    schedule="linear",
    per_step=True,
    warmup_epochs=2.3,
    warmup_lr=0.1,
    weight_decay=0.01,
    label_smoothing=0.2,
    crop="auto",
    crop_padding=2 / 32,
    flip="alternate-color",
    augment="auto-long",
)
RATES = ("lr", "min_lr", "warmup_lr")
# From so many images on the epochs are those of the row; fewer images are seen more
# often, up to so many epochs.
MANY_IMAGES = 45_000
MOST_EPOCHS = 200
# So many steps an epoch should have, and so few images a batch.
FEWEST_STEPS = 20
SMALLEST_BATCH = 32
# Filters of the groups; further groups, for large images, are as wide as the last.
WIDTHS = (32, 128, 128)
# Most principal patterns that the stem looks for, each with both signs.
MOST_PATTERNS = 16
# Logits are so many times smaller than the head's products, as in airbench: a head
# that starts loud spoils a short run.
HEAD_SCALE = 1 / 9
# Added to the variance of a pattern, so that noise is not made as loud as the image.
WHITENING_EPSILON = 5e-4
# Images and patches of each from which the patterns are computed.
WHITENING_IMAGES = 128
WHITENING_PATCHES = 256


def convnet_recipe(images: int, *, epochs: int | None = None, **fields) -> Recipe:
    """How the convnet is trained on so many images.

    Few images are trained on for more epochs, in smaller batches and with rates in
    proportion to them, and AutoAugment varies them, see `augment="auto-long"`.

    Args:
        images: Number of training images.
        epochs: Number of epochs; by default the number of images decides.
        **fields: Further fields to replace.

    Returns:
        A `Recipe`.

    Example:

    >>> recipe = convnet_recipe(45_000)
    >>> recipe.batch_size, recipe.epochs
    (512, 10)
    >>> recipe = convnet_recipe(2_250)
    >>> recipe.batch_size, recipe.epochs, recipe.lr
    (64, 45, 0.0625)
    """
    epochs = epochs or suitable_epochs(images)
    batch = 2 ** int(math.log2(max(images / FEWEST_STEPS, 1)))
    batch = min(max(batch, SMALLEST_BATCH), CONVNET.batch_size)
    share = batch / CONVNET.batch_size
    rates = {name: share * getattr(CONVNET, name) for name in RATES}
    warmup = CONVNET.warmup_epochs / CONVNET.epochs * epochs
    return dataclasses.replace(
        CONVNET,
        epochs=epochs,
        warmup_epochs=warmup,
        batch_size=batch,
        **{**rates, **fields},
    )


def suitable_epochs(images: int) -> int:
    """How many epochs the convnet learns for from so many images.

    Example:

    >>> suitable_epochs(45_000), suitable_epochs(450), suitable_epochs(40)
    (10, 100, 200)
    """
    epochs = CONVNET.epochs * math.sqrt(MANY_IMAGES / images)
    return round(min(max(epochs, CONVNET.epochs), MOST_EPOCHS))


@keras.saving.register_keras_serializable(package="cct_keras")
class Mirror(layers.Layer):
    """Images as a mirror shows them.

    Call arguments:
        images: `(batch, height, width, channels)`.

    Example:

    >>> image = np.array([[[[1.0], [2.0]]]])
    >>> keras.ops.convert_to_numpy(Mirror()(image)).ravel().tolist()
    [2.0, 1.0]
    """

    def call(self, images):
        return ops.flip(images, axis=2)

    def compute_output_shape(self, images_shape):
        return images_shape


def convnet(
    inputs,
    num_classes: int,
    *,
    widths: tuple[int, ...] | None = None,
    norm_momentum: float = 0.9,
    both_sides: bool = False,
    dtype=None,
) -> keras.KerasTensor:
    """The convnet, for normalized images of any size.

    The stem takes steps of 1, 2 or 4 pixels, by the size of the images, and the groups,
    each of which halves the image, go on until it has at most 4 x 4 places.

    Args:
        inputs: Symbolic tensor of normalized images, of known height and width.
        num_classes: Number of classes.
        widths: Filters of the groups, by default `WIDTHS`. There are as many groups as
            the image needs; those that have no width of their own take the last one.
        norm_momentum: Momentum of the moving averages of the normalizations.
        both_sides: Whether the logits are the mean of those of the image and of its
            mirror image.
        dtype: Dtype policy of the layers. The logits are float32.

    Returns:
        Symbolic tensor of logits, `(batch, num_classes)`.

    Example:

    >>> inputs = keras.Input((32, 32, 3))
    >>> model = keras.Model(inputs, convnet(inputs, 10))
    >>> model.output_shape, model.count_params()
    ((None, 10), 498680)
    """
    body = _body(inputs.shape[1:], num_classes, widths or WIDTHS, norm_momentum, dtype)
    logits = body(inputs)
    if both_sides:
        mirrored = body(Mirror(name="mirror")(inputs))
        logits = layers.Average(dtype="float32", name="both_sides")([logits, mirrored])
    return logits


def _body(shape, num_classes, widths, norm_momentum, dtype):
    height, width, channels = shape
    kernel, stride = stem_size(height, width)
    inputs = keras.Input(shape, name="normalized")
    patterns = min(channels * kernel**2, MOST_PATTERNS)
    x = layers.Conv2D(
        2 * patterns,
        kernel,
        strides=stride,
        trainable=False,
        dtype=dtype,
        name="stem",
    )(inputs)
    x = layers.Activation("gelu", dtype=dtype, name="stem_gelu")(x)
    for index in range(count_groups(x.shape[1], x.shape[2])):
        filters = widths[min(index, len(widths) - 1)]
        x = _group(x, filters, norm_momentum, dtype, f"group_{index}")
    x = layers.GlobalMaxPooling2D(dtype=dtype, name="pool")(x)
    x = layers.Dense(num_classes, use_bias=False, dtype=dtype, name="head")(x)
    x = layers.Rescaling(HEAD_SCALE, dtype="float32", name="head_scale")(x)
    return keras.Model(inputs, x, name="convnet")


def _group(x, filters, norm_momentum, dtype, name):
    for number in (1, 2):
        x = layers.Conv2D(
            filters,
            3,
            padding="same",
            use_bias=False,
            dtype=dtype,
            name=f"{name}_conv_{number}",
        )(x)
        if number == 1:
            # A side of a single place has nothing to pool.
            window = tuple(min(2, side) for side in x.shape[1:3])
            x = layers.MaxPooling2D(window, dtype=dtype, name=f"{name}_pool")(x)
        x = layers.BatchNormalization(
            momentum=norm_momentum,
            scale=False,
            dtype=dtype,
            name=f"{name}_norm_{number}",
        )(x)
        x = layers.Activation("gelu", dtype=dtype, name=f"{name}_gelu_{number}")(x)
    return x


def stem_size(height: int, width: int) -> tuple[int, int]:
    """Kernel size and stride of the stem for an image size.

    Example:

    >>> stem_size(32, 32), stem_size(64, 64), stem_size(224, 224)
    ((2, 1), (4, 2), (8, 4))
    """
    steps = round(math.log2(max(min(height, width), 1) / 36))
    stride = 2 ** min(max(steps, 0), 2)
    return min(2 * stride, height, width), stride


def count_groups(height: int, width: int) -> int:
    """How many groups there are behind a stem that leaves so many places.

    Example:

    >>> count_groups(31, 31), count_groups(55, 55), count_groups(15, 15)
    (3, 4, 2)
    """
    groups, side = 0, max(height, width)
    while side > 4:
        groups, side = groups + 1, side // 2
    return max(groups, 2)


def whiten_stem(model: keras.Model, images: np.ndarray) -> None:
    """Gives the stem of a convnet the principal patterns of images.

    Args:
        model: A model that `convnet` is a part of.
        images: Normalized images, float32, `(count, height, width, channels)`.

    Example:

    >>> inputs = keras.Input((32, 32, 3))
    >>> model = keras.Model(inputs, convnet(inputs, 10))
    >>> whiten_stem(model, np.random.default_rng(0).normal(size=(9, 32, 32, 3)))
    """
    stem = model.get_layer("convnet").get_layer("stem")
    patterns = principal_patterns(images, stem.kernel_size[0], stem.filters // 2)
    kernel = np.concatenate([patterns, -patterns], axis=-1)
    stem.set_weights([kernel, np.zeros(stem.filters)])


def whitening_images(data, recipe: Recipe, *, seed: int = 0) -> np.ndarray:
    """Some normalized training images, as training sees them.

    Args:
        data: A `Dataset`.
        recipe: The recipe of the convnet.
        seed: Seed of the run.

    Returns:
        float32 images, `(count, height, width, channels)`.

    Example:

    >>> data = cct_keras.load_data("digits")
    >>> whitening_images(data, convnet_recipe(len(data.train))).shape
    (128, 16, 16, 1)
    """
    batches = data.training_pipeline(recipe, epochs=WHITENING_IMAGES, seed=seed)
    batches = batches.unbatch().take(WHITENING_IMAGES).batch(WHITENING_IMAGES)
    images, _ = next(batches.as_numpy_iterator())
    mean, std = (np.array(values, "float32") for values in (data.mean, data.std))
    return (images / 255 - mean) / std


def principal_patterns(images: np.ndarray, size: int, count: int) -> np.ndarray:
    """The patterns of which the patches of images are made, scaled to unit variance.

    Args:
        images: `(count, height, width, channels)`.
        size: Side of a patch.
        count: How many patterns, those of the largest variance first.

    Returns:
        A kernel, `(size, size, channels, count)`.

    Example:

    >>> images = np.random.default_rng(0).normal(size=(9, 8, 8, 1))
    >>> principal_patterns(images, 2, 3).shape
    (2, 2, 1, 3)
    """
    windows = np.lib.stride_tricks.sliding_window_view(images, (size, size), (1, 2))
    # The same places of all images, spread over the image.
    places = windows.shape[1] * windows.shape[2]
    chosen = np.unique(np.linspace(0, places - 1, WHITENING_PATCHES).astype(int))
    rows, columns = np.divmod(chosen, windows.shape[2])
    # (images, places, channels, size, size)
    patches = windows[:, rows, columns].astype("float64")
    channels = images.shape[-1]
    patches = patches.transpose(0, 1, 3, 4, 2).reshape(-1, size * size * channels)
    variances, vectors = np.linalg.eigh(patches.T @ patches / len(patches))
    variances, vectors = variances[::-1][:count], vectors[:, ::-1][:, :count]
    scaled = vectors / np.sqrt(np.maximum(variances, 0) + WHITENING_EPSILON)
    return scaled.reshape(size, size, channels, -1).astype("float32")
