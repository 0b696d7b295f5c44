"""Random crops of batches of images.

Everything is drawn from the seed: the same seed gives the same images, in any order
of a parallel pipeline.
"""

import math


def random_resized_crop(
    images,
    seed,
    *,
    size: int | tuple[int, int],
    scale: tuple[float, float],
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    flip: float = 0.5,
):
    """Crops a random box, resizes it and sometimes mirrors it.

    The boxes have the distribution of torchvision's `RandomResizedCrop`. The resize
    is bilinear, without a low-pass filter where it shrinks.

    Args:
        images: Float tensor `(n, h, w, c)`; its size need not be known in the graph.
        seed: Integer tensor `(2,)`.
        size: Height and width of the result, or both in one number.
        scale: Smallest and largest share of the area.
        ratio: Smallest and largest width to height.
        flip: Probability of a mirror image.

    Returns:
        Images of the new size.
    """
    import tensorflow as tf

    size = (size, size) if isinstance(size, int) else tuple(size)
    count = tf.shape(images)[0]
    height, width = tf.unstack(tf.cast(tf.shape(images)[1:3], tf.float32))
    draws, flips = tf.unstack(tf.random.split(seed, 2))
    fits, *box = draw_box(draws, count, (height, width), scale, ratio)
    # As torchvision: what comes nearest to the ratio, from the middle
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
    y = _ends(top, crop_height, size[0], height)
    x = _ends(left, crop_width, size[1], width)
    mirrored = tf.random.stateless_uniform((count,), flips) < flip
    boxes = tf.stack(
        [y[0], tf.where(mirrored, x[1], x[0]), y[1], tf.where(mirrored, x[0], x[1])], 1
    )
    # A result with more pixels than the box looks up to half a pixel beyond it.
    edges = tf.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), "SYMMETRIC")
    return tf.image.crop_and_resize(edges, boxes, tf.range(count), size)


def padded_crop(images, seed, *, padding: int = 4, flip: float = 0.5):
    """Pads with black, crops to the old size and sometimes mirrors.

    Args:
        images: Float tensor `(n, h, w, c)`.
        seed: Integer tensor `(2,)`.
        padding: Pixels on each side.
        flip: Probability of a mirror image.

    Returns:
        The images, shaped as they were.
    """
    import tensorflow as tf

    count = tf.shape(images)[0]
    _, height, width, _ = images.shape
    rows, columns, flips = tf.unstack(tf.random.split(seed, 3))
    shape, limit = (count, 1), 2 * padding + 1
    rows = tf.random.stateless_uniform(shape, rows, 0, limit, tf.int32)
    columns = tf.random.stateless_uniform(shape, columns, 0, limit, tf.int32)
    mirrored = tf.random.stateless_uniform(shape, flips) < flip
    across = tf.range(width)
    across = tf.where(mirrored, across[::-1], across)
    sides = (padding, padding)
    padded = tf.pad(images, ((0, 0), sides, sides, (0, 0)))
    padded = tf.gather(padded, rows + tf.range(height), axis=1, batch_dims=1)
    return tf.gather(padded, columns + across, axis=2, batch_dims=1)


def draw_box(
    seed,
    count,
    size: tuple[int, int],
    area: tuple[float, float],
    ratio: tuple[float, float],
    largest: tuple[int, int] | None = None,
    tries: int = 10,
):
    """Draws a random box for each image: the first of some tries that fits.

    Args:
        seed: Integer tensor `(2,)`.
        count: Number of images.
        size: Height and width of the images.
        area: Smallest and largest share of the area, drawn uniformly.
        ratio: Smallest and largest width to height, drawn uniformly in its log.
        largest: Height and width a box may have, those of the image without it.
        tries: Draws for an image.

    Returns:
        Whether a box was found, and tensors `(n,)` of whole numbers as floats: its
        top, left, height and width.
    """
    import tensorflow as tf

    height, width = size
    seeds = tf.unstack(tf.random.split(seed, 4))
    shape = (count, tries)
    pixels = tf.random.stateless_uniform(
        shape, seeds[0], area[0] * height * width, area[1] * height * width
    )
    aspect = tf.exp(
        tf.random.stateless_uniform(
            shape, seeds[1], math.log(ratio[0]), math.log(ratio[1])
        )
    )
    heights = tf.round(tf.sqrt(pixels / aspect))
    widths = tf.round(tf.sqrt(pixels * aspect))
    most_height, most_width = largest or size
    fit = (heights > 0) & (heights <= most_height) & (widths > 0)
    fit &= widths <= most_width
    first = tf.argmax(tf.cast(fit, tf.int32), 1)
    box_height = tf.gather(heights, first, batch_dims=1)
    box_width = tf.gather(widths, first, batch_dims=1)
    top = tf.random.stateless_uniform((count,), seeds[2]) * (height - box_height + 1.0)
    left = tf.random.stateless_uniform((count,), seeds[3]) * (width - box_width + 1.0)
    found = tf.reduce_any(fit, 1)
    return found, tf.floor(top), tf.floor(left), box_height, box_width


def _ends(start, length, result, size):
    """The first and the last sampling point, in the units of `crop_and_resize`.

    There 0 and 1 are the centres of the outermost pixels, and the image has grown by
    one pixel at each side.
    """
    first = start + 0.5 * length / result + 0.5
    last = start + (result - 0.5) * length / result + 0.5
    return first / (size + 1.0), last / (size + 1.0)
