"""Image operations of augmentation policies, as Pillow defines them.

Each takes float32 images `(count, height, width, channels)` with values from 0 to 255
and one strength for each image, and returns images of the same shape and type. Values
are rounded to whole numbers only where an operation is defined on whole numbers.
"""

import math
from collections.abc import Sequence

# The color outside of an image that timm has by default.
FILL = (128.0, 128.0, 128.0)


def auto_contrast(images, strength=None):
    """Stretches each channel to the range from 0 to 255; the strength is not used."""
    import tensorflow as tf

    low = tf.reduce_min(images, (1, 2), keepdims=True)
    high = tf.reduce_max(images, (1, 2), keepdims=True)
    flat = high == low
    scale = tf.where(flat, 1.0, 255.0 / (high - low))
    return (images - tf.where(flat, 0.0, low)) * scale


def equalize(images, strength=None):
    """Flattens the histogram of each channel; the strength is not used."""
    import tensorflow as tf

    _, height, width, channels = images.shape
    levels = tf.transpose(_levels(images), (0, 3, 1, 2))
    levels = tf.reshape(levels, (-1, height * width))
    counts = tf.math.bincount(levels, minlength=256, maxlength=256, axis=-1)
    # Pillow leaves the brightest level out of the sum.
    last = tf.gather(counts, tf.reduce_max(levels, 1), batch_dims=1)
    step = (height * width - last[:, None]) // 255
    table = tf.cumsum(counts, axis=1, exclusive=True) + step // 2
    table = tf.minimum(table // tf.maximum(step, 1), 255)
    table = tf.where(step > 0, table, tf.range(256))
    levels = tf.gather(table, levels, batch_dims=1)
    levels = tf.reshape(levels, (-1, channels, height, width))
    return tf.cast(tf.transpose(levels, (0, 2, 3, 1)), tf.float32)


def invert(images, strength=None):
    """Turns the images into negatives; the strength is not used."""
    return 255.0 - images


def posterize(images, bits):
    """Keeps the highest bits of each value."""
    import tensorflow as tf

    step = 2.0 ** (8.0 - _per_image(bits))
    return tf.cast(_levels(images), tf.float32) // step * step


def solarize(images, threshold):
    """Inverts the values that reach the threshold."""
    import tensorflow as tf

    return tf.where(images < _per_image(threshold), images, 255.0 - images)


def solarize_add(images, amount):
    """Adds an amount to the values below 128."""
    import tensorflow as tf

    added = tf.minimum(images + _per_image(amount), 255.0)
    return tf.where(images < 128.0, added, images)


def color(images, factor):
    """Blends with the gray image. Images without three channels stay as they are."""
    return _blend(_gray(images), images, factor) if images.shape[-1] == 3 else images


def contrast(images, factor):
    """Blends with the mean of the gray image."""
    import tensorflow as tf

    mean = tf.reduce_mean(_gray(images), (1, 2, 3), keepdims=True)
    return _blend(mean, images, factor)


def brightness(images, factor):
    """Blends with black."""
    return _blend(0.0, images, factor)


def sharpness(images, factor):
    """Blends with a smoothed image. The outermost pixels stay as they are."""
    import tensorflow as tf

    if min(images.shape[1:3]) < 3:
        return images
    inner = images[:, 1:-1, 1:-1]
    # The kernel is (1 1 1, 1 5 1, 1 1 1) / 13.
    smooth = (9.0 * tf.nn.avg_pool2d(images, 3, 1, "VALID") + 4.0 * inner) / 13.0
    change = tf.pad(smooth - inner, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return _blend(images + change, images, factor)


def rotate(images, degrees, fill: Sequence[float] = FILL):
    """Rotates counterclockwise about the center."""
    return warp(images, rotate=degrees, fill=fill)


def shear_x(images, factor, fill: Sequence[float] = FILL):
    """Shifts each row by its distance from the top."""
    return warp(images, shear_x=factor, fill=fill)


def shear_y(images, factor, fill: Sequence[float] = FILL):
    """Shifts each column by its distance from the left."""
    return warp(images, shear_y=factor, fill=fill)


def translate_x(images, share, fill: Sequence[float] = FILL):
    """Moves to the left by a share of the width."""
    return warp(images, translate_x=share, fill=fill)


def translate_y(images, share, fill: Sequence[float] = FILL):
    """Moves up by a share of the height."""
    return warp(images, translate_y=share, fill=fill)


def warp(
    images,
    *,
    rotate=0.0,
    shear_x=0.0,
    shear_y=0.0,
    translate_x=0.0,
    translate_y=0.0,
    fill: Sequence[float] = FILL,
):
    """Applies all geometric operations in one bilinear transform.

    Every strength is a tensor `(count,)`. Only one of the five may differ from 0 for
    an image.

    Args:
        images: Float tensor `(count, height, width, channels)`.
        rotate: Degrees.
        shear_x: Shift of a row by its distance from the top.
        shear_y: Shift of a column by its distance from the left.
        translate_x: Shift to the left as a share of the width.
        translate_y: Shift upward as a share of the height.
        fill: Color outside of the image. If it has another number of channels than
            the images, its mean is taken.

    Returns:
        Images of the same shape.

    Example:

    >>> images = np.zeros((8, 32, 32, 3), "float32")
    >>> tuple(warp(images, rotate=np.full(8, 30, "float32")).shape)
    (8, 32, 32, 3)
    """
    import tensorflow as tf

    count = tf.shape(images)[0]
    _, height, width, channels = images.shape
    angle = tf.broadcast_to(rotate * (math.pi / 180.0), (count,))
    cos, sin = tf.cos(angle), tf.sin(angle)
    x, y = width / 2.0, height / 2.0
    # From a place in the result to its place in the image; pixel centers are at 0.5.
    rows = (
        (cos, shear_x - sin, x - cos * x + sin * y + translate_x * width),
        (shear_y + sin, cos, y - sin * x - cos * y + translate_y * height),
    )
    # TensorFlow has the pixel centers at whole numbers.
    shifted = [(a, b, c + (a + b - 1.0) / 2.0) for a, b, c in rows]
    zero = tf.zeros((count,))
    matrix = tf.stack([*shifted[0], *shifted[1], zero, zero], 1)
    warped = tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=matrix,
        output_shape=(height, width),
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="NEAREST",
    )
    # TensorFlow's constant fill fades into the image, Pillow's has a sharp edge.
    inside = True
    x = tf.range(width, dtype=tf.float32) + 0.5
    y = tf.range(height, dtype=tf.float32)[:, None] + 0.5
    for (a, b, c), size in zip(rows, (width, height), strict=True):
        place = a[:, None, None] * x + b[:, None, None] * y + c[:, None, None]
        inside = (place >= 0.0) & (place < size) & inside
    if len(fill) != channels:
        fill = [sum(fill) / len(fill)] * channels
    return tf.where(inside[..., None], warped, tf.constant(fill, tf.float32))


def _per_image(strength):
    return strength[:, None, None, None]


def _levels(images):
    import tensorflow as tf

    return tf.cast(tf.round(images), tf.int32)


def _gray(images):
    import tensorflow as tf

    if images.shape[-1] != 3:
        return tf.reduce_mean(images, -1, keepdims=True)
    return tf.tensordot(images, [0.299, 0.587, 0.114], 1)[..., None]


def _blend(start, images, factor):
    import tensorflow as tf

    return tf.clip_by_value(start + _per_image(factor) * (images - start), 0.0, 255.0)
