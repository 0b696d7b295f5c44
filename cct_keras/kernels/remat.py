"""Computing a function again in the backward pass, to save memory."""

import contextlib
from collections.abc import Callable
from collections.abc import Sequence

import keras


def remat(
    function: Callable, seed_generators: Sequence[keras.random.SeedGenerator] = ()
) -> Callable:
    """`keras.remat` for functions that draw random numbers.

    Args:
        function: A function of one tensor. Between the passes only its input is kept.
        seed_generators: The generators it draws from. It gets the same seeds in both
            passes, so that dropout drops the same.

    Returns:
        A function of one tensor that computes the same.

    Example:

    >>> keras.ops.shape(remat(keras.ops.sin)(keras.ops.zeros(3)))
    (3,)
    """

    def run(x):
        seeds = [generator.next() for generator in seed_generators]

        def with_fixed_seeds(x):
            with _fixed_seeds(seed_generators, seeds):
                return function(x)

        return keras.remat(with_fixed_seeds)(x)

    return run


@contextlib.contextmanager
def _fixed_seeds(generators, seeds):
    """Makes generators return the given seeds for a while."""
    for generator, seed in zip(generators, seeds, strict=True):
        generator.next = lambda ordered=True, seed=seed: seed
    try:
        yield
    finally:
        for generator in generators:
            del generator.next
