"""The weights of a model as they would be without adapters."""

import keras
import numpy as np


def plain_weights(model: keras.Model | keras.layers.Layer) -> dict[str, np.ndarray]:
    """The weights of a model with its adapters merged.

    A layer with an adapter is one that has a method `merged_kernel`; of its weights
    only the merged kernel and the bias are left.

    Args:
        model: A model or a layer, with or without adapters.

    Returns:
        `{weight path: array}`

    Example:

    >>> model = cct_keras.CCT(10, (32, 32, 3), num_layers=2, kernel_size=3)
    >>> plain_weights(cct_keras.add_lora(model)).keys() == plain_weights(model).keys()
    True
    """
    arrays = {weight.path: weight.numpy() for weight in model.weights}
    for layer in model._flatten_layers():
        if not hasattr(layer, "merged_kernel"):
            continue
        for weight in layer.weights:
            if weight is layer.kernel:
                arrays[weight.path] = layer.merged_kernel()
            elif weight is not layer.bias:
                del arrays[weight.path]
    return arrays
