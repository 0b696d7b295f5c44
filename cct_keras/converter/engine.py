"""Between a checkpoint's tensors and a model's weights, each exactly once."""

import warnings
from collections.abc import Callable

import keras
import numpy as np

from cct_keras.converter.formats import table_of
from cct_keras.converter.torch_file import CheckpointError
from cct_keras.models.lora import merge_lora
from cct_keras.models.transfer import adapt_channels
from cct_keras.models.transfer import list_problems
from cct_keras.models.transfer import weighted_layers


def named_weights(model: keras.Model) -> dict[str, keras.Variable]:
    """`{name in the checkpoint: weight}` of a model of this package."""
    table, weights = table_of(model), {}
    for layer in weighted_layers(model).values():
        for weight in layer.weights:
            name = table.checkpoint_name(weight.path)
            if name is None:
                raise CheckpointError(
                    f"{weight.path} of {model.name!r} has no counterpart in the "
                    "original architecture"
                )
            if name in weights:
                raise CheckpointError(f"{model.name!r} has two weights for {name}")
            weights[name] = weight
    return weights


def to_keras_layout(array: np.ndarray) -> np.ndarray:
    """torch's axes of a linear or convolution weight in Keras' order."""
    if array.ndim == 4:
        return array.transpose(2, 3, 1, 0)
    return array.T if array.ndim == 2 else array


def to_torch_layout(array: np.ndarray) -> np.ndarray:
    """The reverse of `to_keras_layout`."""
    if array.ndim == 4:
        return array.transpose(3, 2, 0, 1)
    return array.T if array.ndim == 2 else array


def fill(
    model: keras.Model,
    state: dict[str, np.ndarray],
    grid: tuple | None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Puts every tensor of a checkpoint into its weight.

    Positions are resized to the model's grid, a first convolution adapted to
    the model's channels; a head for another number of classes stays fresh.

    Args:
        model: A model of this package.
        state: Weights by original name; what was used is taken out.
        grid: `(rows, columns)` of the checkpoint's positions.
        progress: Called with the number of filled weights and of all.
    """
    table, weights = table_of(model), named_weights(model)
    missing = [name for name in weights if name not in state]
    left_over = [
        name for name in state if name not in weights and not name.startswith(table.top)
    ]
    heads = [name.rpartition(".")[0] for name in table.heads]
    assignments, fresh, differing = [], [], []
    for name, weight in weights.items():
        if name in missing or name == table.positions:
            continue
        array = to_keras_layout(np.asarray(state[name]))
        if name == table.first_kernel:
            array = adapt_channels(array, weight.shape[2])
        if array.shape == tuple(weight.shape):
            assignments.append((name, weight, array))
        elif name.rpartition(".")[0] in heads:
            fresh.append(name)
        else:
            differing.append(f"{name} {array.shape} for {tuple(weight.shape)}")
    problems = list_problems(missing, left_over, differing)
    if problems:
        raise CheckpointError(
            f"the checkpoint is of another architecture than {model.name!r}: {problems}"
        )
    if table.positions in weights:
        layer = model.get_layer("position_embedding")
        layer.load_table(np.asarray(state[table.positions], "float32"), grid)
    total = len(assignments)
    while assignments:
        name, weight, array = assignments.pop()
        weight.assign(np.ascontiguousarray(array, "float32"))
        # Memory for the weights of the model comes from those of the file.
        del state[name], array
        if progress is not None:
            progress(total - len(assignments), total)
    if fresh:
        warnings.warn(
            f"the checkpoint has {state[table.heads[0]].shape[0]} classes, the "
            f"model {weights[table.heads[0]].shape[1]}: its head stays fresh",
            stacklevel=3,
        )


def state_of(model: keras.Model) -> dict[str, np.ndarray]:
    """The weights of a model as the original's state dict, adapters merged."""
    return {
        name: np.ascontiguousarray(to_torch_layout(weight.numpy()), "float32")
        for name, weight in named_weights(merge_lora(model)).items()
    }
