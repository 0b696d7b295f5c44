"""The random numbers of a process that no variable of a model holds."""

import contextlib
import random
from collections.abc import Iterator

import keras
import numpy as np


def torch_random_states() -> list[np.ndarray]:
    """States of torch's own generators, from which Keras' dropout draws on torch.

    Returns:
        An array for each generator; none on other backends.
    """
    if keras.config.backend() != "torch":
        return []
    import torch

    states = [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]
    return [state.numpy().copy() for state in states]


def set_torch_random_states(states: list[np.ndarray]) -> None:
    """Restores what `torch_random_states` returned.

    Args:
        states: The states; nothing happens if there are none.
    """
    if states:
        import torch

        states = [torch.from_numpy(state) for state in states]
        torch.set_rng_state(states[0])
        if len(states) - 1 == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(states[1:])


@contextlib.contextmanager
def unchanged_random_state() -> Iterator[None]:
    """A context after which Python, NumPy and torch draw as if it had not been.

    Example:

    >>> with unchanged_random_state():
    ...     first = random.random()
    >>> random.random() == first
    True
    """
    python, numpy, torch = (
        random.getstate(),
        np.random.get_state(),
        torch_random_states(),
    )
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        set_torch_random_states(torch)
