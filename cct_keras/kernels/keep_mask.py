"""Random masks for dropout on large tensors, made cheap on a CPU."""

import math

import keras
import numpy as np


def keep_mask(shape: tuple, rate: float, seed_generator: keras.random.SeedGenerator):
    """Booleans that are true with probability `1 - rate`.

    Random numbers are what dropout costs most on a CPU, so these are only as good as
    dropout needs them: of 16 bits each on TensorFlow and torch, which meets the rate to
    `2 ** -17`, and a hash of their position on JAX, where XLA takes a hundred times as
    long for its own. On an accelerator the backend's own dropout is the better choice.

    Args:
        shape: Shape of the mask.
        rate: Probability of `False`.
        seed_generator: Gives the seed; the same seed gives the same mask.

    Returns:
        A tensor of booleans; on torch it is on the CPU.

    Example:

    >>> keras.ops.shape(keep_mask((2, 64, 64), 0.1, keras.random.SeedGenerator(7)))
    (2, 64, 64)
    """
    seed = seed_generator.next()
    if keras.config.backend() == "jax":
        return _jax_hash(shape, seed) >= _threshold(rate, 32)
    bits = _tensorflow_bits if keras.config.backend() == "tensorflow" else _torch_bits
    # The bits are signed integers.
    return bits(shape, seed) >= int(_threshold(rate, 16)) - 2**15


def _threshold(rate, bits):
    """The number below which lies this share of all integers with so many bits."""
    # Even the highest rate keeps the largest integer.
    return np.uint32(min(round(rate * 2**bits), 2**bits - 1))


def _tensorflow_bits(shape, seed):
    import tensorflow as tf

    *outer, last = shape
    half = (last + 1) // 2
    words = tf.random.stateless_uniform(
        (*outer, half),
        seed=tf.cast(seed, "int32"),
        minval=None,
        maxval=None,
        dtype="int32",
    )
    return tf.reshape(tf.bitcast(words, "int16"), (*outer, 2 * half))[..., :last]


def _torch_bits(shape, seed):
    import torch

    first, second = seed.tolist()
    generator = torch.Generator().manual_seed((first + second) % 2**32)
    count = math.prod(shape)
    words = torch.empty((count + 3) // 4, dtype=torch.int64)
    # With these limits all 64 bits are random, the sign included.
    words.random_(-(2**63), None, generator=generator)
    return words.view(torch.int16)[:count].reshape(shape)


def _jax_hash(shape, seed):
    """Numbers of 32 bits; XLA computes them where they are used and stores none."""
    import jax
    import jax.numpy as jnp

    def mix(x):
        """The integer hash function `lowbias32`."""
        x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
        x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
        return x ^ (x >> 16)

    first, second = seed.astype("uint32")
    first = mix(first ^ mix(second + jnp.uint32(0x9E3779B9)))
    second = mix(first + second)
    position = jax.lax.iota("uint32", math.prod(shape)).reshape(shape)
    return mix(mix(position ^ first) + second)
