"""tf.data pipelines: the same images in the same order under the same seed.

Every random number is a function of the seed, the epoch and the batch, drawn without
state, so that neither threads nor an interruption change what a run sees.
"""

import os
from collections.abc import Callable

import numpy as np

from cct_keras.data.augmentation.crops import padded_crop
from cct_keras.data.augmentation.crops import random_resized_crop
from cct_keras.data.augmentation.erasing import random_erasing
from cct_keras.data.augmentation.keras_cv_policy import keras_cv_augment
from cct_keras.data.augmentation.mixing import mix
from cct_keras.data.augmentation.policies import apply_policy
from cct_keras.data.augmentation.settings import Augmentation
from cct_keras.data.fitting import fit_images
from cct_keras.data.store import ImageArray

# More threads would keep many batches in memory.
WORKERS = min(8, os.cpu_count() or 1)


def steps_per_epoch(count: int, batch_size: int) -> int:
    """Counts the full batches of an epoch; fewer images than a batch make one.

    Example:

    >>> steps_per_epoch(1000, 128)
    7
    """
    return max(1, count // batch_size)


def training_pipeline(
    data,
    augmentation: Augmentation,
    *,
    batch_size: int,
    epochs: range,
    length: float,
    first_step: int = 0,
    mixes: Callable[[], bool] | None = None,
    views: int = 0,
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
):
    """Makes the batches of `Dataset.training_pipeline`.

    Args:
        data: A `Dataset`.
        augmentation: What training sees of the images and labels.
        batch_size: Images a batch of all machines.
        epochs: Numbers of the epochs.
        length: How many epochs the whole run has.
        first_step: Batch of the first epoch to begin with.
        mixes: Says for each batch whether it may be mixed, in the place of
            `mix_off_epoch`.
        views: After so many epochs the first one comes again; 0 for never.
        seed: Seed of the order and of the augmentation.
        shard: Which part of every batch this machine gets, and of how many parts.

    Returns:
        A `tf.data.Dataset` of `(images, soft labels)`.
    """
    import tensorflow as tf

    split = data.train
    augmentation = augmentation.resolved(
        channels=data.channels,
        has_model_size=split.images.size == data.image_size,
        epochs=length,
    )
    store = split.images
    if augmentation.crop != "resized":
        store = fit_images(store, data.image_size, data.crop, once=True)
    labels = tf.constant(split.labels)
    steps = steps_per_epoch(len(split), batch_size)
    host, _ = shard
    first_sides = _draw_first_sides(len(split), seed, augmentation)

    def draw_order(epoch):
        return _shuffled_batches(
            len(split), min(batch_size, len(split)), epoch, seed, shard, augmentation
        )

    def crop_and_augment(batch):
        # Every machine draws its own numbers; the first one draws as if it were alone.
        number = batch["batch"] + 1 + host * steps
        draws = tf.random.split(
            tf.random.fold_in(_epoch_seed(seed, batch["epoch"]), number), 4
        )
        images = _load_and_crop(
            store,
            batch["indices"],
            augmentation,
            draws[0],
            data.image_size,
            _find_sides(first_sides, batch),
        )
        fill = [255 * value for value in data.mean]
        images = apply_policy(images, draws[1], augmentation, fill=fill)
        return images, {**batch, "draws": draws}

    def erase_and_mix(images, batch):
        draws = batch["draws"]
        if augmentation.erase_prob:
            images = random_erasing(
                images, draws[2], augmentation, mean=data.mean, std=data.std
            )
        targets = tf.one_hot(tf.gather(labels, batch["indices"]), data.num_classes)
        images, targets = _mix_early(
            images, targets, draws[3], augmentation, batch["epoch"], mixes
        )
        smooth = augmentation.label_smoothing
        return images, targets * (1 - smooth) + smooth / data.num_classes

    stateful = augmentation.augment == "keras_cv"
    # What keras-cv draws depends on all images before, so all epochs are computed.
    first = 0 if stateful else epochs.start
    numbers = tf.data.Dataset.range(first, epochs.stop)
    if views:
        numbers = numbers.map(_without_autograph(lambda epoch: epoch % views))
    pipeline = numbers.flat_map(_without_autograph(draw_order))
    if not stateful:
        pipeline = pipeline.skip(first_step)
    pipeline = _map(pipeline, crop_and_augment)
    if stateful:
        augment = keras_cv_augment(channels=data.channels, seed=seed)
        pipeline = pipeline.map(lambda images, batch: (augment(images), batch))
        pipeline = pipeline.skip(steps * (epochs.start - first) + first_step)
    return untuned(_map(pipeline, erase_and_mix).prefetch(2))


def evaluation_pipeline(data, split, batch_size: int):
    """Makes the batches of `Dataset.pipeline`.

    Args:
        data: A `Dataset`.
        split: One of its splits.
        batch_size: Images a batch.

    Returns:
        A `tf.data.Dataset` of `(images, one-hot labels)`.
    """
    indices = np.arange(len(split))
    return _ordered_batches(data, split, (indices,), batch_size)


def padded_pipeline(
    data, split, batch_size: int, *, multiple: int, shard: tuple[int, int] = (0, 1)
):
    """Makes the batches of `Dataset.padded_pipeline`.

    Args:
        data: A `Dataset`.
        split: One of its splits.
        batch_size: Images a batch of all machines, rounded up to `multiple`.
        multiple: Every batch is a multiple of it.
        shard: Which part of every batch this machine gets, and of how many parts.

    Returns:
        A `tf.data.Dataset` of `(images, one-hot labels, weights)`.
    """
    host, hosts = shard
    batch_size = -(-batch_size // multiple) * multiple
    padded = -(-len(split) // multiple) * multiple
    indices = np.arange(padded) % len(split)
    # Keras divides by the number of all images, of which the padding is a part. With
    # these weights the mean is that of the real images.
    weights = np.where(np.arange(padded) < len(split), padded / len(split), 0)
    mine = np.concatenate(
        [
            np.array_split(np.arange(padded)[start : start + batch_size], hosts)[host]
            for start in range(0, padded, batch_size)
        ]
    )
    columns = indices[mine], weights[mine].astype("float32")
    return _ordered_batches(data, split, columns, batch_size // hosts)


def untuned(pipeline):
    """Returns a `tf.data.Dataset` that does not tune itself.

    The thread that tunes sleeps for longer and longer, up to a minute. A pipeline that
    ends waits for it, and every validation is a pipeline that ends.

    Args:
        pipeline: A `tf.data.Dataset`.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return pipeline.with_options(options)


# === Steps ===


def _map(pipeline, function):
    return pipeline.map(_without_autograph(function), num_parallel_calls=WORKERS)


def _without_autograph(function):
    """Nothing here branches on tensors, and AutoGraph would take seconds."""
    import tensorflow as tf

    return tf.autograph.experimental.do_not_convert(function)


def _epoch_seed(seed, epoch):
    import tensorflow as tf

    return tf.stack([tf.cast(seed, tf.int64), tf.cast(epoch, tf.int64)])


def _shuffled_batches(count, batch_size, epoch, seed, shard, augmentation):
    """Batches of indices of one epoch, with the numbers of epoch and batch."""
    import tensorflow as tf

    host, hosts = shard
    steps = steps_per_epoch(count, batch_size)
    indices = tf.random.experimental.stateless_shuffle(
        tf.range(count, dtype=tf.int64), _epoch_seed(seed, epoch)
    )
    # Each image several times in a row, of as many fewer images.
    copies = augmentation.repeats
    indices = tf.repeat(indices, copies)[: steps * batch_size]
    numbers = tf.range(steps * batch_size, dtype=tf.int64) % copies

    def own_part(values):
        return tf.reshape(values, (steps, hosts, batch_size // hosts))[:, host]

    return tf.data.Dataset.from_tensor_slices(
        {
            "indices": own_part(indices),
            "copy": own_part(numbers),
            "epoch": tf.fill((steps,), epoch),
            "batch": tf.range(steps, dtype=tf.int64),
        }
    )


def _draw_first_sides(count, seed, augmentation):
    """The side, 0 or 1, from which each image is seen in the first epoch.

    It is `None` if the flips are drawn anew in every epoch.
    """
    import tensorflow as tf

    if augmentation.flip != "alternate":
        return None
    # No epoch has this number.
    draws = _epoch_seed(seed, -1)
    return tf.random.stateless_uniform((count,), draws, 0, 2, tf.int64)


def _find_sides(first_sides, batch):
    """Which images of a batch are mirrored: in turn by epochs, and within one."""
    import tensorflow as tf

    if first_sides is None:
        return None
    sides = tf.gather(first_sides, batch["indices"])
    return (sides + batch["epoch"] + batch["copy"]) % 2 == 1


def _ordered_batches(data, split, columns, batch_size):
    """Batches of indices, and of weights if there are any, with images and labels."""
    import tensorflow as tf

    labels = tf.constant(split.labels)
    store = fit_images(split.images, data.image_size, data.crop, once=False)

    def load(indices, *weights):
        images = tf.cast(store.tensor(indices), tf.float32)
        targets = tf.one_hot(tf.gather(labels, indices), data.num_classes)
        return images, targets, *weights

    pipeline = tf.data.Dataset.from_tensor_slices(columns).batch(batch_size)
    return untuned(_map(pipeline, load).prefetch(2))


def _load_and_crop(store, indices, augmentation, seed, size, mirrored):
    import tensorflow as tf

    if augmentation.crop != "resized":
        images = tf.cast(store.tensor(indices), tf.float32)
        return padded_crop(images, seed, augmentation, mirrored=mirrored)

    def crop(images, seed, mirrored):
        images = tf.cast(images, tf.float32)
        return random_resized_crop(
            images, seed, augmentation, size=size, mirrored=mirrored
        )

    if isinstance(store, ImageArray):
        return crop(store.tensor(indices), seed, mirrored)

    def crop_one(position):
        image = store.tensor(indices[position])[None]
        side = None if mirrored is None else mirrored[position][None]
        return crop(image, tf.random.fold_in(seed, position), side)[0]

    positions = tf.range(tf.size(indices, out_type=tf.int64))
    return tf.map_fn(crop_one, positions, fn_output_signature=tf.float32)


def _mix_early(images, targets, seed, augmentation, epoch, mixes):
    """Mixes a batch, if it comes before the time from which nothing is mixed."""
    import tensorflow as tf

    if not augmentation.mix_off_epoch:
        return mix(images, targets, seed, augmentation)
    if mixes is None:
        early = tf.cast(epoch, tf.float32) < augmentation.mix_off_epoch
    else:
        early = tf.ensure_shape(tf.numpy_function(mixes, [], tf.bool), ())
    return tf.cond(
        early,
        lambda: mix(images, targets, seed, augmentation),
        lambda: (images, targets),
    )
