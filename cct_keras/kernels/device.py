"""The one place that decides between formulations for a CPU and for an accelerator."""

import contextlib
from collections.abc import Iterator

import keras

_pretend_accelerator = False


def tuned_for_cpu(x) -> bool:
    """Whether a kernel should take the formulation that was tuned for CPUs.

    On a GPU or TPU, and on backends nothing was tuned for, a kernel uses the backend's
    own operation instead.

    Args:
        x: A tensor that the kernel works on. On torch its device decides; TensorFlow
            and JAX are asked for their devices, as their tensors have none while a
            function is traced.

    Example, skipped as a test because it depends on the machine:

    >>> tuned_for_cpu(keras.ops.ones((2, 3)))  # doctest: +SKIP
    True
    """
    if _pretend_accelerator:
        return False
    backend = keras.config.backend()
    if backend == "torch":
        return x.device.type == "cpu"
    if backend == "jax":
        import jax

        return jax.default_backend() == "cpu"
    if backend == "tensorflow":
        import tensorflow as tf

        devices = tf.config.list_logical_devices()
        return all(device.device_type == "CPU" for device in devices)
    return False


@contextlib.contextmanager
def pretend_accelerator() -> Iterator[None]:
    """Lets kernels compute as on an accelerator, wherever they are, for tests.

    Functions that were traced or compiled before keep the choice of that time.

    Example:

    >>> with pretend_accelerator():
    ...     tuned_for_cpu(keras.ops.ones((2, 3)))
    False
    """
    global _pretend_accelerator
    before, _pretend_accelerator = _pretend_accelerator, True
    try:
        yield
    finally:
        _pretend_accelerator = before
