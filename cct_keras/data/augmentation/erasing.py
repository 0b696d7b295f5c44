"""Random erasing of batches of images; everything is drawn from the seed."""

from collections.abc import Sequence

from cct_keras.data.augmentation.boxes import draw_box
from cct_keras.data.augmentation.boxes import inside
from cct_keras.data.augmentation.settings import Augmentation


def random_erasing(
    images,
    seed,
    augmentation: Augmentation,
    *,
    mean: Sequence[float],
    std: Sequence[float],
    area: tuple[float, float] = (0.02, 1 / 3),
    ratio: tuple[float, float] = (0.3, 10 / 3),
):
    """Replaces a random box of some images by noise, as timm's mode "pixel" does.

    Args:
        images: Float tensor `(count, height, width, channels)` with values from 0 to
            255, not yet normalized.
        seed: Integer tensor `(2,)`.
        augmentation: Its `erase_prob` is the share of the images that lose a box.
        mean: Mean of the noise in each channel, where 1 is white. If mean and
            deviation are those of the normalization, the noise becomes standard
            normal by it.
        std: Standard deviation of the noise in each channel.
        area: Smallest and largest share of the area of an image.
        ratio: Smallest and largest ratio of height to width.

    Returns:
        Images of the same shape. Erased values may lie outside of 0..255.

    Example:

    >>> images = np.zeros((8, 32, 32, 1), "float32")
    >>> erased = random_erasing(
    ...     images, (1, 2), Augmentation(erase_prob=1.0), mean=(0.5,), std=(0.25,)
    ... )
    >>> bool((erased != 0).numpy().any())
    True
    """
    import tensorflow as tf

    count = tf.shape(images)[0]
    _, height, width, channels = images.shape
    happens, boxes, noise = tf.unstack(tf.random.split(seed, 3))
    found, top, left, box_height, box_width = draw_box(
        boxes,
        count,
        (height, width),
        area,
        (1 / ratio[1], 1 / ratio[0]),
        largest=(height - 1, width - 1),
    )
    happens = tf.random.stateless_uniform((count,), happens) < augmentation.erase_prob
    # Noise takes most of the time, so it is drawn only for the images that need it.
    chosen = tf.where(happens & found)
    rows = inside(height, tf.gather_nd(top, chosen), tf.gather_nd(box_height, chosen))
    columns = inside(width, tf.gather_nd(left, chosen), tf.gather_nd(box_width, chosen))
    erased = rows[:, :, None, None] & columns[:, None, :, None]
    noise = tf.random.stateless_normal(
        (tf.shape(chosen)[0], height, width, channels), noise
    )
    mean, std = tf.constant(mean, tf.float32), tf.constant(std, tf.float32)
    noise = 255.0 * (mean + std * noise)
    changed = tf.where(erased, noise, tf.gather_nd(images, chosen))
    return tf.tensor_scatter_nd_update(images, chosen, changed)
