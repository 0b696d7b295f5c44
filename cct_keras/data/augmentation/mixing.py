"""Mixup and cutmix of batches of images; everything is drawn from the seed."""

from cct_keras.data.augmentation.boxes import inside
from cct_keras.data.augmentation.settings import Augmentation


def mix(images, labels, seed, augmentation: Augmentation):
    """Mixes a batch with its reverse, as timm does in its mode "batch".

    Args:
        images: Float tensor `(count, height, width, channels)`.
        labels: Float tensor `(count, classes)`, the share of each class.
        seed: Integer tensor `(2,)`.
        augmentation: Its `mixup` and `cutmix` are the parameters of the Beta
            distributions; its `mix_prob` is the share of the batches that are mixed,
            its `mix_switch_prob` the share of cutmix where both are on.

    Returns:
        Images and labels of the same shapes.

    Example:

    >>> images, labels = np.zeros((8, 16, 16, 3), "float32"), np.eye(8, dtype="float32")
    >>> images, labels = mix(images, labels, (1, 2), Augmentation(mixup=0.8))
    >>> labels.numpy().sum(axis=1).round(4).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    import tensorflow as tf

    mixup, cutmix = augmentation.mixup, augmentation.cutmix
    if not mixup and not cutmix:
        return images, labels
    _, height, width, _ = images.shape
    seeds = tf.unstack(tf.random.split(seed, 5))
    happens = tf.random.stateless_uniform((), seeds[0]) < augmentation.mix_prob
    if mixup and cutmix:
        draw = tf.random.stateless_uniform((), seeds[1])
        cut = draw < augmentation.mix_switch_prob
    else:
        cut = tf.constant(cutmix > 0)
    alpha = tf.where(cut, float(cutmix), float(mixup))
    # TensorFlow has no stateless Beta distribution; two Gamma draws make one.
    gamma = tf.random.stateless_gamma((2,), seeds[2], alpha)
    # Both draws can underflow to 0 if alpha is tiny.
    share = tf.math.divide_no_nan(gamma[0], gamma[0] + gamma[1])
    rows = _cut(height, share, seeds[3])
    columns = _cut(width, share, seeds[4])
    outside = tf.cast(~(rows[:, None] & columns), tf.float32)
    weight = tf.where(cut, outside, share)
    weight = tf.where(happens, weight, 1.0)[..., None]
    share = tf.reduce_mean(weight)
    # `[::-1]` would take several times as long as `tf.reverse`.
    images = weight * images + (1.0 - weight) * tf.reverse(images, (0,))
    return images, share * labels + (1.0 - share) * tf.reverse(labels, (0,))


def _cut(size, share, seed):
    """Draws which pixels of one axis the box of cutmix covers."""
    import tensorflow as tf

    half = tf.floor(tf.floor(size * tf.sqrt(1.0 - share)) / 2.0)
    center = tf.random.stateless_uniform((), seed, 0, size, tf.int32)
    return inside(size, tf.cast(center, tf.float32) - half, 2.0 * half)
