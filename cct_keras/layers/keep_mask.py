"""Cheap random masks for dropout on large tensors."""

import keras

BITS = 16


def keep_mask(shape, rate: float, seed_generator):
    """Booleans that are true with probability `1 - rate`, of 16 random bits each.

    A float takes 32 of them, and random bits are what dropout costs most. The
    probability is exact to 2 ** -17.

    Args:
        shape: Shape of the mask.
        rate: Probability of `False`.
        seed_generator: A `keras.random.SeedGenerator`.

    Returns:
        A tensor of booleans of TensorFlow or JAX.
    """
    threshold = round(rate * 2**BITS)
    if keras.config.backend() == "tensorflow":
        return _tensorflow_bits(shape, seed_generator) >= threshold
    import jax

    return jax.random.bits(seed_generator.next(), shape, "uint16") >= threshold


def _tensorflow_bits(shape, seed_generator):
    import tensorflow as tf

    *outer, last = shape
    half = (last + 1) // 2
    words = tf.random.stateless_uniform(
        (*outer, half),
        seed=tf.cast(seed_generator.next(), "int32"),
        minval=None,
        maxval=None,
        dtype="int32",
    )
    return tf.reshape(tf.bitcast(words, "uint16"), (*outer, 2 * half))[..., :last]
