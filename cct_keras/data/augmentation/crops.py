"""Random crops and flips of batches of images.

Everything is drawn from the seed: the same seed gives the same images, in any order
of a parallel pipeline.
"""

from cct_keras.data.augmentation.boxes import draw_box
from cct_keras.data.augmentation.settings import Augmentation


def random_resized_crop(
    images,
    seed,
    augmentation: Augmentation,
    *,
    size: tuple[int, int],
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    mirrored=None,
):
    """Crops a random box, resizes it and sometimes mirrors it.

    The boxes have the distribution of torchvision's `RandomResizedCrop`. The resize
    is bilinear, without a low-pass filter where it shrinks.

    Args:
        images: Float tensor `(count, height, width, channels)`; its height and width
            need not be known in the graph.
        seed: Integer tensor `(2,)`.
        augmentation: Its `crop_scale` and `flip` are used; no field is `"auto"`.
        size: Height and width of the result.
        ratio: Smallest and largest ratio of width to height of a box.
        mirrored: Boolean tensor `(count,)`, which images are mirrored. By default it
            is drawn, and `flip` is its probability.

    Returns:
        Images of the new size.

    Example:

    >>> augmentation = Augmentation(crop_scale=(0.5, 1.0), flip=0.5)
    >>> images = np.zeros((8, 40, 60, 3), "float32")
    >>> tuple(random_resized_crop(images, (1, 2), augmentation, size=(32, 32)).shape)
    (8, 32, 32, 3)
    """
    import tensorflow as tf

    count = tf.shape(images)[0]
    height, width = tf.unstack(tf.cast(tf.shape(images)[1:3], tf.float32))
    draws, flips = tf.unstack(tf.random.split(seed, 2))
    fits, *box = draw_box(draws, count, (height, width), augmentation.crop_scale, ratio)
    # As in torchvision: the largest box in the middle with an allowed ratio.
    fallback_height = tf.minimum(height, tf.round(width / ratio[0]))
    fallback_width = tf.minimum(width, tf.round(height * ratio[1]))
    fallback = (
        tf.floor((height - fallback_height) / 2),
        tf.floor((width - fallback_width) / 2),
        fallback_height,
        fallback_width,
    )
    top, left, crop_height, crop_width = (
        tf.where(fits, drawn, other) for drawn, other in zip(box, fallback, strict=True)
    )
    y = _sampling_ends(top, crop_height, size[0], height)
    x = _sampling_ends(left, crop_width, size[1], width)
    if mirrored is None:
        mirrored = tf.random.stateless_uniform((count,), flips) < augmentation.flip
    boxes = tf.stack(
        [y[0], tf.where(mirrored, x[1], x[0]), y[1], tf.where(mirrored, x[0], x[1])], 1
    )
    # If the result has more pixels than the box, sampling points lie up to half a
    # pixel outside of the box.
    edges = tf.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), "SYMMETRIC")
    return tf.image.crop_and_resize(edges, boxes, tf.range(count), size)


def padded_crop(images, seed, augmentation: Augmentation, *, mirrored=None):
    """Shifts images, with black around them, and sometimes mirrors them.

    Args:
        images: Float tensor `(count, height, width, channels)`.
        seed: Integer tensor `(2,)`.
        augmentation: Its `crop_padding` and `flip` are used; no field is `"auto"`.
            With `crop="none"` nothing is shifted.
        mirrored: As for `random_resized_crop`.

    Returns:
        Images of the same shape.

    Example:

    >>> augmentation = Augmentation(crop="padded", flip=0.5)
    >>> tuple(padded_crop(np.zeros((8, 32, 32, 3)), (1, 2), augmentation).shape)
    (8, 32, 32, 3)
    """
    import tensorflow as tf

    count = tf.shape(images)[0]
    _, height, width, _ = images.shape
    share = augmentation.crop_padding if augmentation.crop == "padded" else 0
    padding = round(share * min(height, width))
    rows, columns, flips = tf.unstack(tf.random.split(seed, 3))
    shape, limit = (count, 1), 2 * padding + 1
    rows = tf.random.stateless_uniform(shape, rows, 0, limit, tf.int32)
    columns = tf.random.stateless_uniform(shape, columns, 0, limit, tf.int32)
    if mirrored is None:
        mirrored = tf.random.stateless_uniform((count,), flips) < augmentation.flip
    across = tf.range(width)
    across = tf.where(mirrored[:, None], across[::-1], across)
    sides = (padding, padding)
    padded = tf.pad(images, ((0, 0), sides, sides, (0, 0)))
    padded = tf.gather(padded, rows + tf.range(height), axis=1, batch_dims=1)
    return tf.gather(padded, columns + across, axis=2, batch_dims=1)


def _sampling_ends(start, length, result, size):
    """Finds the first and the last sampling point, as `crop_and_resize` counts them.

    There 0 and 1 are the centers of the outermost pixels, and the image has grown by
    one pixel at each side.
    """
    first = start + 0.5 * length / result + 0.5
    last = start + (result - 0.5) * length / result + 0.5
    return first / (size + 1.0), last / (size + 1.0)
