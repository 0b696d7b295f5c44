"""tf.data pipelines: the same images in the same order under the same seed.

Every random number is a function of (seed, epoch, batch), drawn without state, so
that neither threads nor an interruption change what a run sees.
"""

import os

import numpy as np

from cct_keras.data.crops import padded_crop
from cct_keras.data.crops import random_resized_crop
from cct_keras.data.mixing import mix
from cct_keras.data.mixing import random_erasing
from cct_keras.data.policies import auto_augment
from cct_keras.data.policies import parse_rand_augment
from cct_keras.data.policies import rand_augment
from cct_keras.data.store import ImageArray
from cct_keras.layers.preprocessing import central_box

# More would keep many batches in memory.
WORKERS = min(8, os.cpu_count() or 1)


def steps_per_epoch(count: int, batch_size: int) -> int:
    """Full batches in an epoch; a set smaller than a batch makes one."""
    return max(1, count // batch_size)


def training_pipeline(data, recipe, epochs: range, seed: int, shard=(0, 1)):
    """See `Dataset.training_pipeline`."""
    import tensorflow as tf

    split = data.train
    labels = tf.constant(split.labels)
    size = min(recipe.batch_size, len(split))
    steps = steps_per_epoch(len(split), recipe.batch_size)
    host, hosts = shard

    def order(epoch):
        """Batches of indices of one epoch."""
        indices = tf.random.experimental.stateless_shuffle(
            tf.range(len(split), dtype=tf.int64), _seed(seed, epoch)
        )
        # The first images of the new order, each several times in a row.
        indices = tf.repeat(indices, recipe.repeats)[: steps * size]
        indices = tf.reshape(indices, (steps, hosts, size // hosts))
        return tf.data.Dataset.from_tensor_slices(
            {
                "indices": indices[:, host],
                "epoch": tf.fill((steps,), epoch),
                "batch": tf.range(steps, dtype=tf.int64),
            }
        )

    def begin(batch):
        # Hosts draw apart; the first as if it were alone.
        number = batch["batch"] + 1 + host * steps
        draws = tf.random.split(
            tf.random.fold_in(_seed(seed, batch["epoch"]), number), 4
        )
        images = _crop(split.images, batch["indices"], data, recipe, draws[0])
        images = _augment(images, data, recipe, draws[1])
        return images, {**batch, "draws": draws}

    def finish(images, batch):
        draws = batch["draws"]
        if recipe.erase_prob:
            images = random_erasing(
                images,
                draws[2],
                probability=recipe.erase_prob,
                mean=data.mean,
                std=data.std,
            )
        targets = tf.one_hot(tf.gather(labels, batch["indices"]), data.num_classes)
        if recipe.mixup or recipe.cutmix:
            images, targets = _mix(images, targets, batch["epoch"], recipe, draws[3])
        smooth = recipe.label_smoothing
        return images, targets * (1 - smooth) + smooth / data.num_classes

    stateful = recipe.augment == "keras_cv"
    # Its draws depend on all that came before.
    first = 0 if stateful else epochs.start
    numbers = tf.data.Dataset.range(first, epochs.stop)
    if recipe.teacher_views:
        numbers = numbers.map(_as_written(lambda e: e % recipe.teacher_views))
    pipeline = numbers.flat_map(_as_written(order))
    pipeline = pipeline.map(_as_written(begin), num_parallel_calls=WORKERS)
    if stateful:
        augment = _keras_cv_augment(data, seed)
        pipeline = pipeline.map(lambda images, batch: (augment(images), batch))
        pipeline = pipeline.skip(steps * (epochs.start - first))
    pipeline = pipeline.map(_as_written(finish), num_parallel_calls=WORKERS)
    return untuned(pipeline.prefetch(2))


def evaluation_pipeline(data, split, batch_size: int):
    """See `Dataset.pipeline`."""
    import tensorflow as tf

    return _in_order(data, split, tf.range(len(split), dtype=tf.int64), batch_size)


def padded_pipeline(data, split, batch_size: int, multiple: int, shard=(0, 1)):
    """See `Dataset.padded_pipeline`."""
    host, hosts = shard
    batch_size = -(-batch_size // multiple) * multiple
    padded = -(-len(split) // multiple) * multiple
    indices = np.arange(padded) % len(split)
    # Keras divides by all images, and the padding is none: with this the mean is that
    # of the real ones.
    weights = np.where(np.arange(padded) < len(split), padded / len(split), 0)
    mine = np.concatenate(
        [
            np.array_split(np.arange(padded)[start : start + batch_size], hosts)[host]
            for start in range(0, padded, batch_size)
        ]
    )
    return _in_order(
        data,
        split,
        indices[mine],
        batch_size // hosts,
        weights[mine].astype("float32"),
    )


def _in_order(data, split, indices, batch_size, *weights):
    import tensorflow as tf

    labels = tf.constant(split.labels)

    def load(indices, *weights):
        images = _gather(split.images, indices, lambda image: _fit(image, data))
        targets = tf.one_hot(tf.gather(labels, indices), data.num_classes)
        return images, targets, *weights

    pipeline = tf.data.Dataset.from_tensor_slices((indices, *weights)).batch(batch_size)
    pipeline = pipeline.map(_as_written(load), num_parallel_calls=WORKERS)
    return untuned(pipeline.prefetch(2))


def untuned(pipeline):
    """A `tf.data.Dataset` that does not tune itself.

    The thread that tunes sleeps for longer and longer, up to a minute, and a
    pipeline that ends, as that of every validation does, waits for it.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return pipeline.with_options(options)


def _as_written(function):
    """Nothing here branches on tensors: AutoGraph would only cost seconds."""
    import tensorflow as tf

    return tf.autograph.experimental.do_not_convert(function)


def _seed(seed, epoch):
    import tensorflow as tf

    return tf.stack([tf.cast(seed, tf.int64), tf.cast(epoch, tf.int64)])


def _gather(store, indices, fit):
    """The images of a batch as float32, each through `fit` if they differ in size."""
    import tensorflow as tf

    if isinstance(store, ImageArray):
        return fit(tf.cast(store.tensor(indices), tf.float32))

    def one(index):
        return fit(tf.cast(store.tensor(index), tf.float32)[None])[0]

    return tf.map_fn(one, indices, fn_output_signature=tf.float32)


def _fit(images, data):
    """What evaluation sees of images."""
    import tensorflow as tf

    if images.shape[1:3] == data.image_size:
        return images
    height, width = tf.unstack(tf.shape(images)[1:3])
    top, left, bottom, right = central_box(
        height, width, data.image_size, data.crop, tf.minimum, tf.maximum
    )
    images = tf.image.resize(
        images[:, top:bottom, left:right], data.image_size, "bicubic", antialias=True
    )
    return tf.clip_by_value(images, 0.0, 255.0)


def _crop(store, indices, data, recipe, seed):
    import tensorflow as tf

    flip = recipe.flip
    if flip == "auto":
        flip = 0.5 if data.channels == 3 else 0.0
    kind = recipe.crop
    if kind == "auto":
        ready = isinstance(store, ImageArray) and store.array.shape[1:3] == (
            data.image_size
        )
        kind = "padded" if ready else "resized"
    if kind != "resized":
        images = _gather(store, indices, lambda image: _fit(image, data))
        padding = recipe.crop_padding if kind == "padded" else 0
        padding = round(padding * min(data.image_size))
        return padded_crop(images, seed, padding=padding, flip=flip)

    def crop(images, seed):
        return random_resized_crop(
            images, seed, size=data.image_size, scale=recipe.crop_scale, flip=flip
        )

    if isinstance(store, ImageArray):
        return crop(tf.cast(store.tensor(indices), tf.float32), seed)

    def one(entry):
        position, index = entry
        image = tf.cast(store.tensor(index), tf.float32)
        return crop(image[None], tf.random.fold_in(seed, position))[0]

    positions = tf.range(tf.size(indices, out_type=tf.int64))
    return tf.map_fn(one, (positions, indices), fn_output_signature=tf.float32)


def _augment(images, data, recipe, seed):
    kind = recipe.augment
    if kind == "auto-color":
        kind = "auto" if data.channels == 3 else "none"
    if kind in ("none", "keras_cv"):
        return images
    fill = [255 * value for value in data.mean]
    if kind == "auto":
        return auto_augment(images, seed, fill=fill)
    return rand_augment(images, seed, fill=fill, **parse_rand_augment(kind))


def _keras_cv_augment(data, seed):
    """keras-cv's RandAugment at the published strength, image by image."""
    import keras_cv
    import tensorflow as tf

    # Some of its operations take their seeds from here.
    tf.random.set_seed(seed)
    if data.channels != 3:
        raise ValueError("augment='keras_cv' takes colour images only")
    augment = keras_cv.layers.RandAugment(
        value_range=(0, 255),
        augmentations_per_image=2,
        magnitude=0.9,
        magnitude_stddev=0.05,
        rate=0.5,
        seed=seed,
    )
    # Given a batch, it works on ten images at a time, which then race for their draws.
    return lambda images: tf.map_fn(augment, images, parallel_iterations=1)


def _mix(images, targets, epoch, recipe, seed):
    import tensorflow as tf

    def mixed():
        return mix(
            images,
            targets,
            seed,
            mixup=recipe.mixup,
            cutmix=recipe.cutmix,
            probability=recipe.mix_prob,
            switch_probability=recipe.mix_switch_prob,
        )

    if not recipe.mix_off_epoch:
        return mixed()
    still_on = tf.cast(epoch, tf.float32) < recipe.mix_off_epoch
    return tf.cond(still_on, mixed, lambda: (images, targets))
