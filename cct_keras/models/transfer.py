"""Weights by their path, from wherever they come, into a model: all of them or none."""

import warnings
from collections.abc import Callable
from collections.abc import Mapping

import keras
import numpy as np

from cct_keras.errors import CheckpointError
from cct_keras.models.architecture import Architecture
from cct_keras.models.families import known_heads
from cct_keras.models.inspection import architecture_of
from cct_keras.models.inspection import find_tokenizer
from cct_keras.models.plain_weights import check_not_quantized
from cct_keras.models.plain_weights import plain_weights

FIRST_KERNEL = "tokenizer/conv_0/kernel"
POSITIONS = "position_embedding/embeddings"
MOST_NAMED = 6
# Parts of an architecture that change no shape.
INVISIBLE = ("num_heads", "epsilon", "stride", "padding", "pooling")


def weighted_layers(model: keras.Model) -> dict[str, keras.layers.Layer]:
    """`{name: layer}` of the layers with weights, from the tokenizer on."""
    layers = model.layers[model.layers.index(find_tokenizer(model)) :]
    return {layer.name: layer for layer in layers if layer.weights}


def fill(
    model: keras.Model,
    arrays: dict[str, np.ndarray],
    *,
    origin: str,
    architecture: Architecture,
    exact: bool = True,
    tells_activation: bool = True,
    name_of: Callable[[str], str | None] = str,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Puts every array into the weight of its path.

    Positions are resized to the model's grid, a first convolution is adapted to its
    channels, and a head for another number of classes is left as initialized, with a
    warning. Whatever else does not fit is refused before anything is changed.

    Args:
        model: A model of this package.
        arrays: `{weight path: array}`; what has been used is taken out.
        origin: What messages call the source of the arrays.
        architecture: The architecture the arrays belong to.
        exact: Whether the source states settings that no shape tells, such as heads
            and strides, so that they have to agree.
        tells_activation: Whether the activation of `architecture` is known and has to
            agree. Otherwise it is assumed, and the model's own counts, with a warning.
        name_of: From a weight path to the name that messages use.
        progress: Called with the number of filled weights and of all.
    """

    def display(path):
        return name_of(path) or path

    check_not_quantized(model)
    weights = {
        weight.path: weight
        for layer in weighted_layers(model).values()
        for weight in layer.weights
    }
    top = ("pool", "fc_norm", "pre_logits", "projection", *known_heads())
    adapted, fresh, differing = {}, [], []
    for path, weight in weights.items():
        is_top = path.split("/")[0] in top
        if path not in arrays:
            if is_top:
                fresh.append(path)
            continue
        if path == POSITIONS:
            continue
        array = np.asarray(arrays[path])
        if path == FIRST_KERNEL and array.ndim == 4:
            array = adapt_channels(array, weight.shape[2])
        if array.shape == tuple(weight.shape):
            adapted[path] = array
        elif is_top:
            fresh.append(path)
        else:
            differing.append(f"{display(path)} {array.shape} for {tuple(weight.shape)}")
    filled = {*arrays, *fresh}
    missing = [display(path) for path in weights if path not in filled]
    left_over = [
        display(path)
        for path in arrays
        if path not in weights and path.split("/")[0] not in top
    ]
    problems = list_problems(missing, left_over, differing)
    wanted = architecture_of(model)
    names = [name for name in wanted.body if exact or name not in INVISIBLE]
    if not tells_activation:
        names.remove("activation")
    problems = problems or _differing_settings(architecture, wanted, names)
    if problems:
        raise CheckpointError(
            f"{origin} holds weights of another architecture than {model.name!r}: "
            + problems
        )
    if not tells_activation and wanted.activation != architecture.activation:
        warnings.warn(
            f"{origin} does not tell its activation, which is taken for "
            f"{wanted.activation!r}; that of published weights is 'gelu'",
            stacklevel=3,
        )
    if POSITIONS in weights:
        table = np.asarray(arrays.pop(POSITIONS), "float32")
        try:
            model.get_layer("position_embedding").load_table(table, architecture.grid)
        except ValueError as error:
            raise CheckpointError(f"{origin}: {error}") from error
    for done, path in enumerate(list(adapted), 1):
        weights[path].assign(np.ascontiguousarray(adapted.pop(path), "float32"))
        # The array may be the last reference to a part of a large file.
        del arrays[path]
        if progress is not None:
            progress(done, done + len(adapted))
    if fresh:
        _warn_of_fresh(model, fresh, origin, architecture)


def _differing_settings(given, wanted, names):
    """Weights of one shape may belong to two functions: other heads, other strides."""
    ours, theirs = wanted.body, given.body
    return ", ".join(
        f"{name}={theirs[name]!r} for {ours[name]!r}"
        for name in names
        if ours[name] != theirs[name]
    )


def _warn_of_fresh(model, fresh, origin, architecture):
    layers = list(dict.fromkeys(path.split("/")[0] for path in fresh))
    heads = [name for name in layers if name in known_heads()]
    classes = model.get_layer(heads[0]).units if heads else None
    if heads and architecture.num_classes not in (0, classes):
        reason = f"has {architecture.num_classes} classes, the model {classes}"
    else:
        reason = f"has no weights for the {' and '.join(layers)} of {model.name!r}"
    verb = "is" if len(layers) == 1 else "are"
    warnings.warn(
        f"{origin} {reason}: the {' and '.join(layers)} {verb} left as initialized",
        stacklevel=4,
    )


def list_problems(missing: list, left_over: list, differing: list) -> str:
    """What stands between given and wanted weights, in words; empty if nothing does."""
    problems = {"missing": missing, "left over": left_over, "shapes": differing}

    def shortened(names):
        more = len(names) - MOST_NAMED
        return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")

    return "; ".join(f"{k}: {shortened(v)}" for k, v in problems.items() if v)


def adapt_channels(kernel: np.ndarray, channels: int) -> np.ndarray:
    """A first convolution for other channels: summed for one, otherwise repeated.

    Args:
        kernel: Array `(height, width, channels, filters)`.
        channels: The channels wanted.
    """
    given = kernel.shape[2]
    if given == channels:
        return kernel
    warnings.warn(
        f"the first convolution was adapted from {given} to {channels} channels",
        stacklevel=4,
    )
    kernel = np.asarray(kernel, "float32")
    if channels == 1:
        return kernel.sum(axis=2, keepdims=True)
    repeats = -(-channels // given)
    return np.tile(kernel, (1, 1, repeats, 1))[:, :, :channels] * (given / channels)


def plain_arrays(model: keras.Model) -> Mapping[str, np.ndarray]:
    """`{weight path: array}` of a model from the tokenizer on, adapters merged."""
    names = weighted_layers(model)
    weights = plain_weights(model).items()
    return {path: x for path, x in weights if path.split("/")[0] in names}
