import importlib.util
import pathlib
import warnings

import keras
import numpy as np

from cct_keras.atomic_file import atomic_file
from cct_keras.converter.engine import fill
from cct_keras.converter.engine import state_of
from cct_keras.converter.formats import infer
from cct_keras.converter.formats import read_weights
from cct_keras.converter.formats import table_of
from cct_keras.converter.formats import variant_of
from cct_keras.converter.reference import forward
from cct_keras.converter.safetensors_file import write_safetensors
from cct_keras.converter.table import Architecture
from cct_keras.converter.torch_file import CheckpointError
from cct_keras.layers import PositionEmbedding
from cct_keras.layers.position_embedding import square_grid
from cct_keras.models.factory import build_family

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
    names, which the authors of DeiT use too, and those of Hugging Face
    `transformers`. It needs no torch and runs no code of the file. Family, size,
    kernel, stages, classes, channels and positions are inferred from the tensors.
    Every tensor lands in exactly one weight and every weight is filled, or nothing
    is returned.

    Args:
        source: Path or http(s) URL of a `.pth`, `.pt`, `.bin`, `.pth.zip` or
            `.safetensors` file, or a mapping of arrays or torch tensors.
        grid: `(rows, columns)` of the file's positions, if not a square.
        entry: Which entry of the file holds the weights, such as
            `"state_dict"`. Defaults to the averaged weights if there are any.
        **overrides: Arguments of the family's constructor. Another
            `input_shape` resizes the positions and adapts the first convolution
            to its channels; another `num_classes` leaves the head fresh, with a
            warning; `classifier_activation=None` returns logits.

    Returns:
        A functional `keras.Model`.

    Example:

    >>> model = convert("cct_7_3x1_32_cifar10_300epochs.pth")
    >>> model.name
    'cct_7_3x1_32'
    """
    state, told = read_weights(source, entry)
    architecture = infer(state, grid, **{**told, **overrides})
    return build(architecture, state, **overrides)


def build(
    architecture: Architecture, state: dict, progress=None, **overrides
) -> keras.Model:
    """A model of an inferred architecture, filled; `state` is used up."""
    family, arguments, grid = architecture
    variant = variant_of(architecture)
    name = {} if variant is None else {"name": variant}
    model = build_family(family, {**arguments, **name}, overrides)
    positions = _positions(model)
    sized = {"input_shape", "input_tensor"} & set(overrides)
    if positions is not None and grid not in (None, positions.grid) and not sized:
        raise CheckpointError(
            f"the image size for a grid of {grid} is not known with this "
            "tokenizer: pass input_shape=(height, width, channels)"
        )
    fill(model, state, grid, progress)
    return model


def largest_difference(
    model: keras.Model, state: dict, architecture: Architecture
) -> float:
    """How far a converted model is from the checkpoint, on a fixed image.

    The checkpoint's side is computed in NumPy from its own tensors.

    Args:
        model: The model in the checkpoint's own architecture.
        state: Weights by original name.
        architecture: What was inferred from them.

    Returns:
        The largest difference of the logits.
    """
    shape = architecture.arguments["input_shape"]
    image = np.random.default_rng(0).standard_normal((1, *shape)).astype("float32")
    heads = architecture.arguments["num_heads"]
    epsilon = architecture.arguments.get("epsilon", 1e-5)
    with np.errstate(all="ignore"):
        expected = forward(state, image, num_heads=heads, epsilon=epsilon)
    if model.get_layer("tokenizer").data_format == "channels_first":
        image = image.transpose(0, 3, 1, 2)
    logits = keras.Model(model.input, model.get_layer("predictions").input)
    difference = keras.ops.convert_to_numpy(logits(image, training=False)) - expected
    return float(np.abs(difference).max())


def load_checkpoint(model: keras.Model, source) -> None:
    """Fills a model with a checkpoint of its architecture."""
    state, _ = read_weights(source)
    positions, grid = _positions(model), None
    table = table_of(state).positions
    if positions is not None and table in state:
        # A grid that is no square can only be the model's own.
        length = state[table].shape[1] - positions.num_prefix_tokens
        grid = square_grid(length) or positions.grid
    heads = model.get_layer("block_0").num_heads
    shape = model.input_shape
    fill(model, state, infer(state, grid, num_heads=heads, input_shape=shape).grid)


def _positions(model):
    layers = [x for x in model.layers if isinstance(x, PositionEmbedding)]
    return layers[0] if layers else None


def to_torch(model: keras.Model, path) -> None:
    """Writes a model for the original PyTorch classes, `strict=True`.

    ViT and DeiT are written by timm's names.

    Args:
        model: A model of this package, with its top.
        path: A `.safetensors` file, or a `.pth`, `.pt` or `.bin` file, which
            needs torch.
    """
    path = pathlib.Path(path)
    state = state_of(model)
    note_lost_layers(model)
    positions = _positions(model)
    if positions is not None and positions.grid[0] != positions.grid[1]:
        warnings.warn(
            f"to_torch: the file does not tell that its positions are a grid of "
            f"{positions.grid}; pass it as `grid` to convert",
            stacklevel=2,
        )
    if table_of(model).heads[0] not in state:
        raise CheckpointError(
            f"to_torch: {model.name!r} has no top; the original classes need one"
        )
    if path.suffix == SAFETENSORS:
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            write_safetensors(file, state)
    elif path.suffix in TORCH_PICKLES:
        if importlib.util.find_spec("torch") is None:
            raise CheckpointError(
                f"to_torch: a {path.suffix} file needs torch; write a .safetensors "
                "file instead, or install torch"
            )
        import torch

        with atomic_file(path) as temporary:
            tensors = {name: torch.from_numpy(array) for name, array in state.items()}
            torch.save(tensors, temporary)
    else:
        raise CheckpointError(
            f"to_torch: `path` must end in {', '.join((SAFETENSORS, *TORCH_PICKLES))}. "
            f"Received: {str(path)!r}"
        )


def note_lost_layers(model: keras.Model) -> None:
    """Warns of preprocessing, which a file of weights cannot hold."""
    names = [layer.name for layer in model.layers]
    before = [
        layer.name
        for layer in model.layers[: names.index("tokenizer")]
        if not isinstance(layer, keras.layers.InputLayer)
    ]
    if before:
        warnings.warn(
            f"{', '.join(before)} before the tokenizer of {model.name!r} "
            "is not part of the file",
            stacklevel=3,
        )
