"""Checkpoints into models, and models into checkpoints."""

import importlib.util
import logging
import pathlib
import warnings
from collections.abc import Callable

import keras
import numpy as np

from cct_keras.atomic_file import atomic_file
from cct_keras.converter.formats import NAME_TABLES
from cct_keras.converter.formats import Checkpoint
from cct_keras.converter.formats import open_checkpoint
from cct_keras.converter.hub_model import HubModel
from cct_keras.converter.hub_model import open_hub_model
from cct_keras.converter.infer import check_complete
from cct_keras.converter.infer import expected_weights
from cct_keras.converter.infer import infer
from cct_keras.converter.reference import forward
from cct_keras.converter.safetensors_file import write_safetensors
from cct_keras.errors import CheckpointError
from cct_keras.hub import is_hub
from cct_keras.models.architecture import HIDDEN_FILTERS
from cct_keras.models.architecture import Architecture
from cct_keras.models.factory import build_architecture
from cct_keras.models.inspection import architecture_of
from cct_keras.models.inspection import find_tokenizer
from cct_keras.models.transfer import fill
from cct_keras.models.transfer import plain_arrays
from cct_keras.models.weights_argument import open_weights

logger = logging.getLogger("cct_keras")
SAFETENSORS, TORCH_PICKLES = ".safetensors", (".pth", ".pt", ".bin")


def convert(
    source,
    *,
    grid: tuple[int, int] | None = None,
    entry: str | None = None,
    **overrides,
) -> keras.Model:
    """Builds a Keras model from a PyTorch checkpoint.

    It takes those of the original Compact-Transformers code, ViT and DeiT by timm's
    names, which the authors of DeiT use too, those of Hugging Face `transformers`, and
    Google's releases. It needs no torch and runs no code of the file. Family, size,
    kernel, stages, classes, channels and positions are inferred from the tensors.
    Every tensor lands in exactly one weight and every weight is filled, or nothing
    is returned. A file without a head becomes a body (`include_top=False`), or gets a
    fresh head if `num_classes` is given. Files of training scripts, with optimizers,
    options and metrics beside the weights, are read as well.

    Of a repository of the Hugging Face Hub, `hf://user/repo`, the checkpoint is chosen
    and logged. Its JSON files tell the heads, the epsilon, the activation and the image
    size where tensors do not.

    Args:
        source: Path or http(s) URL of a `.pth`, `.pt`, `.bin`, `.ckpt`, `.pth.zip`,
            `.safetensors` or `.npz` file, or of the `.index.json` of a checkpoint in
            several files; a folder that `save_pretrained` wrote; `hf://user/repo`, with
            `@revision` and `/path/of/file` behind it if wanted; or a mapping of arrays
            or torch tensors.
        grid: `(rows, columns)` of the file's positions, if these are not a square.
        entry: Which entry of the file holds the weights, such as `"state_dict"`.
            Defaults to the averaged weights if there are any.
        **overrides: Arguments of the family's constructor. Another `input_shape`
            resizes the positions and adapts the first convolution to its channels;
            another `num_classes` leaves the head as initialized, with a warning;
            `classifier_activation=None` returns logits; `num_heads` and `activation`
            say what a plain checkpoint does not tell.

    Returns:
        A functional `keras.Model`.

    Example:

    >>> model = convert("cct_7_3x1_32_cifar10_300epochs.pth")  # doctest: +SKIP
    >>> model.name  # doctest: +SKIP
    'cct_7_3x1_32'
    """
    if is_hub(source):
        source = open_hub_model(source)
        if source.is_keras:
            return build_keras_model(source, **overrides)
    checkpoint = open_checkpoint(source, entry)
    architecture = infer(checkpoint, grid, known_arguments(overrides))
    check_complete(architecture)
    return build_model(checkpoint, architecture, **overrides)


def build_keras_model(source: HubModel, **overrides) -> keras.Model:
    """The model in a Keras file of this package on the hub, without preprocessing."""
    opened = open_weights(source)
    check_complete(opened.architecture)
    return build_architecture(opened.architecture, weights=opened, **overrides)


def known_arguments(overrides: dict) -> dict:
    """Constructor arguments, `input_shape` with the channels last."""
    known = dict(overrides)
    shape = known.get("input_shape")
    if shape is not None and known.get("data_format") == "channels_first":
        known["input_shape"] = (*shape[1:], shape[0])
    return known


def build_model(
    checkpoint: Checkpoint,
    architecture: Architecture,
    progress: Callable[[int, int], None] | None = None,
    **overrides,
) -> keras.Model:
    """A model of an inferred architecture, filled with the checkpoint's tensors."""
    model = build_architecture(architecture, **overrides)
    grid, own_grid = architecture.grid, architecture_of(model).grid
    sized = {"input_shape", "input_tensor"} & set(overrides)
    if not sized and None not in (grid, own_grid) and grid != own_grid:
        raise CheckpointError(
            f"the image size for a grid of {grid} is not known with this "
            "tokenizer: pass input_shape=(height, width, channels)"
        )
    arrays = arrays_by_path(checkpoint, architecture)
    fill(
        model,
        arrays,
        origin="the checkpoint",
        architecture=architecture,
        exact=False,
        name_of=checkpoint.table.name_of,
        progress=progress,
    )
    # What was used is gone. Who asks for a body, or another head, knows what goes.
    parts = sorted({path.split("/")[0] for path in arrays})
    if parts and not architecture.num_classes and not overrides.get("num_classes"):
        logger.info("not needed in a body with this `pooling`: %s", ", ".join(parts))
    return model


def arrays_by_path(
    checkpoint: Checkpoint, architecture: Architecture
) -> dict[str, np.ndarray]:
    """A checkpoint's tensors by the paths of this package, in the layout of Keras."""
    name_of = checkpoint.table.name_of
    return {
        path: to_keras_layout(checkpoint.tensors[name_of(path)])
        for path in expected_weights(architecture, checkpoint)
    }


def to_keras_layout(array: np.ndarray) -> np.ndarray:
    """torch's axes of a linear or convolution weight in the order of Keras."""
    if array.ndim == 4:
        return array.transpose(2, 3, 1, 0)
    return array.T if array.ndim == 2 else array


def to_torch_layout(array: np.ndarray) -> np.ndarray:
    """The reverse of `to_keras_layout`."""
    if array.ndim == 4:
        return array.transpose(3, 2, 0, 1)
    return array.T if array.ndim == 2 else array


def largest_difference(
    model: keras.Model, checkpoint: Checkpoint, architecture: Architecture
) -> float:
    """How far a converted model is from the checkpoint, on a fixed image.

    The checkpoint's side is computed in NumPy from its own tensors.

    Args:
        model: The model in the checkpoint's own architecture.
        checkpoint: The checkpoint.
        architecture: What was inferred from it.

    Returns:
        The largest difference of the logits, or of the tokens of a body.
    """
    shape = architecture.arguments["input_shape"]
    image = np.random.default_rng(0).standard_normal((1, *shape)).astype("float32")
    with np.errstate(all="ignore"):
        expected = forward(
            checkpoint.tensors,
            image,
            num_heads=architecture.arguments["num_heads"],
            stride=architecture.stride,
            padding=architecture.padding,
            pool=architecture.pooling,
            epsilon=architecture.epsilon,
            activation=architecture.activation,
            top_pooling=architecture.top_pooling,
        )
    if find_tokenizer(model).data_format == "channels_first":
        image = image.transpose(0, 3, 1, 2)
    output = model.output
    if architecture.num_classes:
        output = model.get_layer("predictions").input
    logits = keras.Model(model.input, output)
    difference = keras.ops.convert_to_numpy(logits(image, training=False)) - expected
    return float(np.abs(difference).max())


def to_checkpoint(model: keras.Model) -> tuple[Checkpoint, Architecture]:
    """A model as the checkpoint that its original authors would have, in memory."""
    try:
        architecture = architecture_of(model)
        arrays = plain_arrays(model)
    except ValueError as error:
        raise CheckpointError(
            f"{model.name!r} has no counterpart among checkpoints: {error}"
        ) from error
    tokenizer = find_tokenizer(model)
    if tokenizer.num_conv_layers > 1 and tokenizer.hidden_dim != HIDDEN_FILTERS:
        raise CheckpointError(
            f"the tokenizer of {model.name!r} has no counterpart in the original "
            f"architecture: hidden_dim={tokenizer.hidden_dim} for {HIDDEN_FILTERS}"
        )
    table = NAME_TABLES[architecture.row.name_table]
    tensors = {}
    for path, array in arrays.items():
        name = table.name_of(path)
        if name is None:
            raise CheckpointError(
                f"{path} of {model.name!r} has no counterpart in the original "
                "architecture"
            )
        tensors[name] = np.ascontiguousarray(to_torch_layout(array), "float32")
    return Checkpoint(tensors, table, {}, architecture), architecture


def to_torch(model: keras.Model, path) -> None:
    """Writes a model for the original PyTorch classes, `strict=True`.

    ViT and DeiT are written by timm's names. Adapters are merged. A `.safetensors`
    file also records the architecture, which `convert` reads back. The original classes
    compute the exact GELU: weights of another activation are for classes of your own.

    Args:
        model: A model of this package; of the Compact-Transformers with its top.
        path: A `.safetensors` file, or a `.pth`, `.pt` or `.bin` file, which
            needs torch.
    """
    path = pathlib.Path(path)
    checkpoint, architecture = to_checkpoint(model)
    warn_of_lost_layers(model)
    if not architecture.num_classes and not checkpoint.table.has_bodies:
        raise CheckpointError(
            f"to_torch: {model.name!r} has no top; the original classes need one"
        )
    if path.suffix == SAFETENSORS:
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            record = {"cct_keras": architecture.to_json()}
            write_safetensors(file, checkpoint.tensors, record)
    elif path.suffix in TORCH_PICKLES:
        _warn_of_lost_settings(architecture)
        _write_pickle(checkpoint.tensors, path)
    else:
        raise CheckpointError(
            f"to_torch: `path` must end in {', '.join((SAFETENSORS, *TORCH_PICKLES))}. "
            f"Received: {str(path)!r}"
        )


def _write_pickle(tensors, path):
    if importlib.util.find_spec("torch") is None:
        raise CheckpointError(
            f"to_torch: a {path.suffix} file needs torch; write a .safetensors "
            "file instead, or install torch"
        )
    import torch

    with atomic_file(path) as temporary:
        content = {name: torch.from_numpy(array) for name, array in tensors.items()}
        torch.save(content, temporary)


def _warn_of_lost_settings(architecture):
    grid, activation = architecture.grid, architecture.activation
    if activation != "gelu":
        warnings.warn(
            f"to_torch: the file does not tell activation={activation!r}, which the "
            "original classes do not have; pass it to convert, or write a .safetensors "
            "file",
            stacklevel=3,
        )
    if grid is not None and grid[0] != grid[1]:
        warnings.warn(
            f"to_torch: the file does not tell that its positions are a grid of "
            f"{grid}; pass it as `grid` to convert, or write a .safetensors file",
            stacklevel=3,
        )


def warn_of_lost_layers(model: keras.Model) -> None:
    """Warns of preprocessing, which a checkpoint cannot hold."""
    tokenizer = find_tokenizer(model)
    before = [
        layer.name
        for layer in model.layers[: model.layers.index(tokenizer)]
        if not isinstance(layer, keras.layers.InputLayer)
    ]
    if before:
        warnings.warn(
            f"{', '.join(before)} before the tokenizer of {model.name!r} "
            "is not part of the file",
            stacklevel=3,
        )
