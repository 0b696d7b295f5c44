"""The weights of a model as they would be without adapters."""

import keras
import numpy as np

from cct_keras.errors import QuantizedModelError


def plain_weights(model: keras.Model | keras.layers.Layer) -> dict[str, np.ndarray]:
    """The weights of a model with its adapters merged.

    A layer with an adapter is one that has a method `merged_kernel`; of its weights
    only the merged kernel and the bias are left.

    Args:
        model: A model or a layer, with or without adapters, not quantized.

    Returns:
        `{weight path: array}`

    Example:

    >>> model = cct_keras.CCT(10, (32, 32, 3), num_layers=2, kernel_size=3)
    >>> plain_weights(cct_keras.add_lora(model)).keys() == plain_weights(model).keys()
    True
    """
    check_not_quantized(model)
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


def check_not_quantized(model: keras.Model | keras.layers.Layer) -> None:
    """Refuses a quantized model where its weights are read or written one by one.

    An integer kernel means nothing without its scale, and the float kernel that it was
    made from is gone.

    Args:
        model: A model or a layer.

    Example:

    >>> check_not_quantized(cct_keras.CCT(10, (32, 32, 3), kernel_size=3))
    """
    modes = {layer.quantization_mode for layer in model._flatten_layers()} - {None}
    if modes:
        raise QuantizedModelError(
            f"{model.name!r} is quantized ({', '.join(sorted(modes))}): use the model "
            "from before model.quantize"
        )
