"""Random erasing, mixup and cutmix for batches of images.

Everything is drawn from the seed: the same seed gives the same images, in any order
of a parallel pipeline.
"""

from collections.abc import Sequence

from cct_keras.data.crops import draw_box


def random_erasing(
    images,
    seed,
    *,
    probability: float,
    mean: Sequence[float],
    std: Sequence[float],
    area: tuple[float, float] = (0.02, 1 / 3),
    ratio: tuple[float, float] = (0.3, 10 / 3),
):
    """Replaces a random box of some images by noise, as timm's mode "pixel" does.

    Args:
        images: Float tensor `(n, h, w, c)`, values 0 to 255, not yet normalised.
        seed: Integer tensor `(2,)`.
        probability: Share of the images that lose a box.
        mean: Mean of the noise for each channel, 1 for white. With the mean and the
            deviation of the normalisation the noise becomes standard normal by it.
        std: Deviation of the noise for each channel.
        area: Smallest and largest share of the area.
        ratio: Smallest and largest height to width.

    Returns:
        The images, shaped as they were. Erased values may leave 0 to 255.
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
    happens = tf.random.stateless_uniform((count,), happens) < probability
    # Noise is the dear part, so only those that need it get it.
    chosen = tf.where(happens & found)
    rows = _between(height, tf.gather_nd(top, chosen), tf.gather_nd(box_height, chosen))
    columns = _between(
        width, tf.gather_nd(left, chosen), tf.gather_nd(box_width, chosen)
    )
    erased = rows[:, :, None, None] & columns[:, None, :, None]
    noise = tf.random.stateless_normal(
        (tf.shape(chosen)[0], height, width, channels), noise
    )
    mean, std = tf.constant(mean, tf.float32), tf.constant(std, tf.float32)
    noise = 255.0 * (mean + std * noise)
    changed = tf.where(erased, noise, tf.gather_nd(images, chosen))
    return tf.tensor_scatter_nd_update(images, chosen, changed)


def mix(
    images,
    labels,
    seed,
    *,
    mixup: float,
    cutmix: float,
    probability: float = 1.0,
    switch_probability: float = 0.5,
):
    """Mixes a batch with its reverse, as timm does in its mode "batch".

    Args:
        images: Float tensor `(n, h, w, c)`.
        labels: Float tensor `(n, k)`, shares of the classes.
        seed: Integer tensor `(2,)`.
        mixup: Parameter of the Beta distribution of the mixup share, 0 for none.
        cutmix: Parameter of the Beta distribution of the cutmix area, 0 for none.
        probability: Share of the batches that are mixed.
        switch_probability: Share of cutmix where both are on.

    Returns:
        The images and the labels, shaped as they were.
    """
    import tensorflow as tf

    if not mixup and not cutmix:
        return images, labels
    _, height, width, _ = images.shape
    seeds = tf.unstack(tf.random.split(seed, 5))
    happens = tf.random.stateless_uniform((), seeds[0]) < probability
    if mixup and cutmix:
        cut = tf.random.stateless_uniform((), seeds[1]) < switch_probability
    else:
        cut = tf.constant(cutmix > 0)
    alpha = tf.where(cut, float(cutmix), float(mixup))
    gamma = tf.random.stateless_gamma((2,), seeds[2], alpha)
    # Both can underflow where alpha is tiny.
    share = tf.math.divide_no_nan(gamma[0], gamma[0] + gamma[1])
    rows = _cut(height, share, seeds[3])
    columns = _cut(width, share, seeds[4])
    outside = tf.cast(~(rows[:, None] & columns), tf.float32)
    weight = tf.where(cut, outside, share)
    weight = tf.where(happens, weight, 1.0)[..., None]
    share = tf.reduce_mean(weight)
    # `[::-1]` takes several times as long.
    images = weight * images + (1.0 - weight) * tf.reverse(images, (0,))
    return images, share * labels + (1.0 - share) * tf.reverse(labels, (0,))


def _between(size, start, length):
    import tensorflow as tf

    places = tf.range(size, dtype=tf.float32)
    start, end = start[..., None], (start + length)[..., None]
    return (places >= start) & (places < end)


def _cut(size, share, seed):
    """The pixels of one axis that a cutmix box covers."""
    import tensorflow as tf

    half = tf.floor(tf.floor(size * tf.sqrt(1.0 - share)) / 2.0)
    centre = tf.random.stateless_uniform((), seed, 0, size, tf.int32)
    return _between(size, tf.cast(centre, tf.float32) - half, 2.0 * half)
