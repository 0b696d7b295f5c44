"""Weights from one model, or file, into another."""

import pathlib
import warnings
import zipfile
from collections import Counter

import h5py
import keras
import numpy as np

from cct_keras.bfloat16 import widen_bfloat16
from cct_keras.layers import ConvTokenizer
from cct_keras.layers import PositionEmbedding
from cct_keras.models.lora import merge_lora
from cct_keras.models.patches import check_divisible_by_patch

# What a model for another task has not, or has fresh.
HEADS = ("head", "head_dist")
TOP = ("pool", *HEADS)
# Arguments of layers that change the function and no shape.
SETTINGS = (
    "num_heads",
    "pre_norm",
    "epsilon",
    "stride",
    "padding",
    "activation",
    "pooling_kernel_size",
    "pooling_stride",
    "pooling_padding",
)
NATIVE_SUFFIXES = (".keras", ".weights.h5")


def load_weights(model: keras.Model, weights) -> None:
    """Loads what the constructors take as `weights`.

    Args:
        model: The model to fill.
        weights: A tag of known weights, a `.weights.h5` or `.keras` file, or
            a checkpoint of the original PyTorch code.
    """
    # Published weights need the converter, which needs the models.
    from cct_keras import pretrained

    pretrained.load(model, weights)


def load_keras_file(model: keras.Model, path) -> None:
    """Loads a `.weights.h5` or `.keras` file into a model of this package.

    Stricter than `model.load_weights`, which takes the first blocks of a deeper
    model without a word; and wider: positions of another grid are resized, and
    a head for another number of classes stays fresh, with a warning.

    Args:
        model: The model to fill.
        path: Path of the file.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise ValueError(
            f"`weights` must be the path of an existing file. Received: {str(path)!r}"
        )
    try:
        if path.suffix == ".keras":
            if not zipfile.is_zipfile(path):
                raise zipfile.BadZipFile("not a zip file")
            source = merge_lora(keras.models.load_model(path, compile=False))
        else:
            source = _load_weights_file(model, path)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a readable weights file: {error}") from error
    transfer_weights(source, model, origin=str(path))


def transfer_weights(source: keras.Model, target: keras.Model, origin: str) -> None:
    """Copies all weights, layer by layer of the same name, or none.

    Args:
        source: The model that has the weights.
        target: The model to fill.
        origin: What errors call the source.
    """
    given, wanted = weighted_layers(source), weighted_layers(target)
    shapes = {name: _shapes(layer) for name, layer in given.items()}
    _check_architecture(shapes, target, origin)
    for name, layer in wanted.items():
        if name in given and name not in TOP:
            _check_settings(given[name], layer, origin)
    fresh = [
        name
        for name, layer in wanted.items()
        if name in TOP and _shapes(layer) != shapes.get(name)
    ]
    for name, layer in wanted.items():
        if name not in fresh:
            _copy_weights(given[name], layer)
    if fresh:
        warnings.warn(
            f"{origin} has no weights of this shape for {' and '.join(fresh)} of "
            f"{target.name!r}: left as initialised.",
            stacklevel=4,
        )


def with_input_shape(model: keras.Model, input_shape: tuple) -> keras.Model:
    """The same trained model for images of another size.

    Learnable positions are interpolated, sine positions made anew; all other
    weights are copied.

    Args:
        model: A model of this package, or one built on it.
        input_shape: The new image shape, without the batch.

    Returns:
        A new model, not compiled.

    Example:

    >>> model = CCT(10, (32, 32, 3), kernel_size=3)
    >>> with_input_shape(model, (48, 64, 3)).input_shape
    (None, 48, 64, 3)
    """
    tokenizer = _tokenizer(model)
    if tokenizer is None:
        raise ValueError(
            "with_input_shape: `model` must have a ConvTokenizer among its layers. "
            f"Received: {model.name!r} with layers "
            f"{[layer.name for layer in model.layers]}"
        )
    if not isinstance(input_shape, (tuple, list)) or not all(
        isinstance(side, int) for side in input_shape
    ):
        raise ValueError(
            "with_input_shape: `input_shape` must be a tuple of integers. "
            f"Received: input_shape={input_shape!r}"
        )
    channel = -1 if tokenizer.data_format == "channels_last" else 1
    old_shape, new_shape = model.input_shape, (None, *input_shape)
    if len(new_shape) != len(old_shape) or new_shape[channel] != old_shape[channel]:
        raise ValueError(
            "with_input_shape: `input_shape` must have the rank and the channels of "
            f"the model's {old_shape[1:]}. Received: input_shape={input_shape!r}"
        )
    images = keras.Input(
        input_shape, dtype=model.input.dtype, name=model.input.name or "images"
    )
    before_tokens = images
    if tokenizer.input is not model.input:
        preprocessing = keras.Model(model.input, tokenizer.input)
        before_tokens = keras.models.clone_model(preprocessing, images).output
    check_divisible_by_patch("with_input_shape", before_tokens.shape, tokenizer)
    grid = tokenizer.compute_grid(before_tokens.shape)

    def resized(layer):
        config = layer.get_config()
        if isinstance(layer, PositionEmbedding):
            config["grid"] = grid
        return type(layer).from_config(config)

    clone = keras.models.clone_model(
        model, input_tensors=images, clone_function=resized
    )
    for layer in model.layers:
        if layer.weights:
            _copy_weights(layer, clone.get_layer(layer.name))
    return clone


def _tokenizer(model):
    found = [layer for layer in model.layers if isinstance(layer, ConvTokenizer)]
    return found[0] if found else None


def weighted_layers(model: keras.Model) -> dict[str, keras.layers.Layer]:
    """`{name: layer}` of the layers with weights, from the tokenizer on."""
    tokenizer = _tokenizer(model)
    layers = model.layers[model.layers.index(tokenizer) if tokenizer else 0 :]
    return {layer.name: layer for layer in layers if layer.weights}


def _check_architecture(given, target, origin):
    """Refuses weights that do not fit, but for positions and the top.

    Args:
        given: `{layer name: shapes}`
        target: The model they are for.
        origin: What the error calls their source.
    """
    wanted = weighted_layers(target)
    missing = [name for name in wanted if name not in given and name not in TOP]
    left_over = [name for name in given if name not in wanted and name not in TOP]
    differing = [
        f"{name} {_first_difference(given[name], layer)}"
        for name, layer in wanted.items()
        if name in given
        and not isinstance(layer, PositionEmbedding)
        and name not in TOP
        and _without_channels(name, given[name])
        != _without_channels(name, _shapes(layer))
    ]
    problems = list_problems(missing, left_over, differing)
    if problems:
        raise ValueError(
            f"{origin} holds weights of another architecture than {target.name!r}: "
            + problems
        )


def list_problems(missing: list, left_over: list, differing: list) -> str:
    """What stands between given and wanted weights, in words; else empty."""
    problems = {"missing": missing, "left over": left_over, "shapes": differing}
    return "; ".join(f"{k}: {', '.join(v)}" for k, v in problems.items() if v)


def _check_settings(source, target, origin):
    """Weights of one shape may belong to two functions: other heads, strides."""
    given, wanted = source.get_config(), target.get_config()
    for key in SETTINGS:
        if given.get(key) != wanted.get(key):
            raise ValueError(
                f"{origin} holds weights of another architecture: {target.name} with "
                f"{key}={given.get(key)!r} for {wanted.get(key)!r}"
            )


def _without_channels(name, shapes):
    """Shapes to compare; the image's channels may differ."""
    if name == "tokenizer" and len(shapes[0]) == 4:
        rows, columns, _, filters = shapes[0]
        shapes = [(rows, columns, filters), *shapes[1:]]
    return sorted(shapes)


def adapt_channels(kernel: np.ndarray, channels: int) -> np.ndarray:
    """A first convolution for other channels: summed for one, else repeated.

    Args:
        kernel: Array `(height, width, channels, filters)`.
        channels: The channels wanted.
    """
    given = kernel.shape[2]
    if given == channels:
        return kernel
    warnings.warn(
        f"the first convolution was adapted from {given} to {channels} channels",
        stacklevel=2,
    )
    kernel = np.asarray(kernel, "float32")
    if channels == 1:
        return kernel.sum(axis=2, keepdims=True)
    repeats = -(-channels // given)
    return np.tile(kernel, (1, 1, repeats, 1))[:, :, :channels] * (given / channels)


def _first_difference(shapes, layer):
    shapes, wanted = Counter(shapes), Counter(_shapes(layer))
    return f"{min(shapes - wanted, default='none')} for {min(wanted - shapes)}"


def _shapes(layer):
    return [tuple(weight.shape) for weight in layer.weights]


def _copy_weights(source, target):
    if isinstance(target, PositionEmbedding):
        target.load_table(source.embeddings.numpy(), grid=source.grid)
    elif isinstance(target, ConvTokenizer):
        kernel, *others = source.get_weights()
        channels = target.convs[0].kernel.shape[2]
        target.set_weights([adapt_channels(kernel, channels), *others])
    else:
        target.set_weights(source.get_weights())


def _load_weights_file(model, path):
    """A twin of `model` as far as the file goes, with the file's head."""
    stored = stored_layers(path)
    shapes = {name: list(datasets.values()) for name, datasets in stored.items()}
    if any("attention/qkv/vars/2" in datasets for datasets in stored.values()):
        raise ValueError(
            f"{path} holds weights with adapters: merge_lora the model before, or save "
            "it as a .keras file"
        )
    _check_architecture(shapes, model, str(path))
    if "position_embedding" in stored:
        # First by itself: Keras would bury an error about the table.
        table, grid = stored_positions(path)
        model.get_layer("position_embedding").load_table(table, grid)

    def twin_layer(layer):
        config = layer.get_config()
        if layer.name in HEADS:
            shapes = stored.get(layer.name, {})
            config["units"] = shapes.get("vars/1", [layer.units])[0]
        return type(layer).from_config(config)

    # Cut to what this package built: Keras refuses layers the file has not.
    tokenizer = _tokenizer(model)
    known = [layer for layer in model.layers if layer.name in stored]
    ends = [layer.output for layer in known if layer.name in HEADS]
    part = keras.Model(tokenizer.input, ends or known[-1].output)
    shape = list(tokenizer.input.shape)
    channel_axis = -1 if tokenizer.data_format == "channels_last" else 1
    shape[channel_axis] = shapes["tokenizer"][0][2]
    twin = keras.models.clone_model(
        part, input_tensors=keras.Input(batch_shape=shape), clone_function=twin_layer
    )
    twin.load_weights(path)
    return twin


def stored_layers(path):
    """`{layer name: {dataset: shape}}` of a `.weights.h5` file, by path or open."""
    layers = {}
    with h5py.File(path) as file:
        for group in file.get("layers", {}).values():
            shapes = _dataset_shapes(group)
            if shapes:
                layers[str(group["vars"].attrs.get("name", group.name))] = shapes
    return layers


def stored_positions(path) -> tuple[np.ndarray, np.ndarray]:
    """The position table of a `.weights.h5` file, by path or open, and its grid."""
    with h5py.File(path) as file:
        store = file["layers/position_embedding/vars"]
        table, grid = store["embeddings"][...], store["grid"][...]
    if table.dtype.kind == "V":  # How Keras stores bfloat16.
        table = widen_bfloat16(table.view("<u2"))
    return table, grid


def _dataset_shapes(group):
    shapes = {}

    def visit(key, item):
        if isinstance(item, h5py.Dataset):
            shapes[key] = item.shape

    group.visititems(visit)
    return shapes
