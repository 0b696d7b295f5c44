"""Kernels and their gradients on every backend, against NumPy in float64."""

import keras
import numpy as np

# Of the largest expected value; in float64 the finite differences are the limit.
TOLERANCE = {"float32": 1e-5, "float64": 1e-7}


def assert_same_function(kernel, reference, *inputs, dtype="float32"):
    """A function of tensors agrees with one of arrays, forward and backward.

    Args:
        kernel: Function of tensors; returns one tensor.
        reference: The same function of float64 arrays.
        *inputs: Its inputs, as arrays.
        dtype: In which the kernel computes.
    """
    inputs = [np.asarray(x, "float64") for x in inputs]
    expected = reference(*inputs)
    upstream = np.random.default_rng(1).standard_normal(expected.shape)
    output = kernel(*(keras.ops.convert_to_tensor(x, dtype) for x in inputs))
    assert keras.backend.standardize_dtype(output.dtype) == dtype
    assert_close(keras.ops.convert_to_numpy(output), expected, dtype)
    found = gradients(kernel, inputs, upstream, dtype)
    wanted = finite_differences(reference, inputs, upstream)
    for ours, theirs in zip(found, wanted, strict=True):
        assert_close(ours, theirs, dtype)


def assert_close(found, expected, dtype="float32"):
    assert found.shape == expected.shape
    scale = max(1.0, np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE[dtype] * scale)


def finite_differences(function, inputs, upstream, step=1e-5):
    """Gradients of `sum(upstream * function(*inputs))` by the inputs."""
    slopes = []
    for i, x in enumerate(inputs):
        slope = np.empty_like(x)
        for place in np.ndindex(x.shape):
            totals = []
            for sign in (1, -1):
                moved = x.copy()
                moved[place] += sign * step
                changed = [*inputs[:i], moved, *inputs[i + 1 :]]
                totals.append((upstream * function(*changed)).sum())
            slope[place] = (totals[0] - totals[1]) / (2 * step)
        slopes.append(slope)
    return slopes


def gradient(function, x, upstream):
    """Gradient of `sum(upstream * function(x))` by `x`, as an array."""
    return gradients(function, [x], upstream)[0]


def gradients(function, inputs, upstream, dtype="float32"):
    """Gradients of `sum(upstream * function(*inputs))`, as arrays."""
    inputs = [np.asarray(x, dtype) for x in inputs]
    upstream = np.asarray(upstream, dtype)
    backend = keras.config.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        # In a graph, as in `fit`.
        @tf.function(autograph=False)
        def run(*inputs):
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                total = tf.reduce_sum(function(*inputs) * upstream)
            return tape.gradient(total, inputs)

        return [slope.numpy() for slope in run(*map(tf.constant, inputs))]
    if backend == "jax":
        import jax

        def total(*inputs):
            return (function(*inputs) * upstream).sum()

        slopes = jax.grad(total, argnums=range(len(inputs)))(*inputs)
        return [np.asarray(slope) for slope in slopes]
    import torch

    inputs = [torch.tensor(x, requires_grad=True) for x in inputs]
    (function(*inputs) * torch.tensor(upstream)).sum().backward()
    return [x.grad.numpy() for x in inputs]
