"""Random boxes in images."""

import math


def draw_box(
    seed,
    count,
    size: tuple[int, int],
    area: tuple[float, float],
    ratio: tuple[float, float],
    largest: tuple[int, int] | None = None,
    tries: int = 10,
) -> tuple:
    """Draws a random box for each image: the first of some tries that fits.

    Args:
        seed: Integer tensor `(2,)`.
        count: Number of images.
        size: Height and width of the images.
        area: Smallest and largest share of the image's area, drawn uniformly.
        ratio: Smallest and largest ratio of width to height, of which the logarithm
            is drawn uniformly.
        largest: Largest height and width of a box; by default those of the images.
        tries: Draws for an image.

    Returns:
        Whether a box was found, and its top, left, height and width: tensors
        `(count,)` of whole numbers as floats.

    Example:

    >>> found, top, left, height, width = draw_box(
    ...     (1, 2), 8, (24.0, 32.0), area=(0.5, 1.0), ratio=(0.75, 1.5)
    ... )
    >>> tuple(height.shape)
    (8,)
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


def inside(size: int, start, length):
    """Marks the pixels of one axis that lie in a box.

    Args:
        size: Pixels of the axis.
        start: First pixels of the boxes, a float tensor of any shape.
        length: Lengths of the boxes, a float tensor of the same shape.

    Returns:
        A bool tensor with one more axis than `start`, of `size` values.

    Example:

    >>> inside(4, np.float32(1), np.float32(2)).numpy().tolist()
    [False, True, True, False]
    """
    import tensorflow as tf

    places = tf.range(size, dtype=tf.float32)
    start, end = start[..., None], (start + length)[..., None]
    return (places >= start) & (places < end)
