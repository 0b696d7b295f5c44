"""Cheap random masks for dropout on large tensors."""

import math

import keras
import numpy as np


def keep_mask(shape, rate: float, seed_generator):
    """Booleans that are true with probability `1 - rate`.

    Random numbers are what dropout costs most, so they are no better than they must be:
    of 16 bits each on TensorFlow and torch, which is exact to 2 ** -17, and a hash of
    their place on JAX, where XLA needs a hundred times as long for its own.

    Args:
        shape: Shape of the mask.
        rate: Probability of `False`.
        seed_generator: A `keras.random.SeedGenerator`.

    Returns:
        A tensor of booleans, on torch one of the CPU.
    """
    seed = seed_generator.next()
    if keras.config.backend() == "jax":
        return _jax_hash(shape, seed) >= _share(rate, 32)
    bits = _tensorflow_bits if keras.config.backend() == "tensorflow" else _torch_bits
    return bits(shape, seed) >= int(_share(rate, 16)) - 2**15


def _share(rate, bits):
    """The same share of the integers of so many bits, but never all."""
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
    # All 64 bits are random, the sign too.
    words.random_(-(2**63), None, generator=generator)
    return words.view(torch.int16)[:count].reshape(shape)


def _jax_hash(shape, seed):
    """Numbers of 32 bits; XLA computes them where they are used and stores none."""
    import jax
    import jax.numpy as jnp

    def mix(x):
        """The finaliser `lowbias32`."""
        x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
        x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
        return x ^ (x >> 16)

    first, second = seed.astype("uint32")
    first = mix(first ^ mix(second + jnp.uint32(0x9E3779B9)))
    second = mix(first + second)
    place = jax.lax.iota("uint32", math.prod(shape)).reshape(shape)
    return mix(mix(place ^ first) + second)
