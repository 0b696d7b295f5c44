"""`inspect_model`: what a model learned, in the figures of the ViT paper."""

import dataclasses
import os
import pathlib

import numpy as np
from keras import ops

from cct_keras.data.dataset import Dataset
from cct_keras.errors import ModelError
from cct_keras.explaining import learned_figures
from cct_keras.explaining.explain import fitting_batch
from cct_keras.explaining.images import draw_images
from cct_keras.explaining.learned_page import write_inspection
from cct_keras.explaining.methods import attention_maps
from cct_keras.explaining.methods import seqpool_maps
from cct_keras.explaining.tracing import PREDICTED
from cct_keras.explaining.tracing import Trace
from cct_keras.explaining.tracing import open_tracer
from cct_keras.inference.trained import Trained
from cct_keras.inference.trained import open_trained
from cct_keras.layers.position_embedding import PositionEmbedding
from cct_keras.models.inspection import find_tokenizer

# Principal components of a patch embedding, as many as the ViT paper shows.
COMPONENTS = 28


@dataclasses.dataclass(frozen=True, eq=False)
class Inspection:
    """What a model learned.

    Attributes:
        filters: `(count, height, width, channels)`: the filters of the first
            convolution, or for patches the principal components of their embedding.
        filters_are_components: Whether `filters` are principal components.
        explained_variance: Of each component its share of the variance; `None` for
            the filters of a convolution.
        position_similarity: `(rows, columns, rows, columns)`, the cosine similarity of
            the position of each token to those of all tokens; `None` for a model
            without positions.
        images: How many images the following were measured on; 0 without data.
        attention_distance: `(blocks, heads)`, how far a head looks on average, in
            pixels of the model's images; `None` without data.
        uniform_distance: How far a head looks that attends to all tokens alike.
        head_attention: `(blocks, heads, rows, columns)`, what the head of the model
            reads through each attention head, the mean of all images.
        pool_weights: `(rows, columns)`, what SeqPool, or attention pooling, favors on
            average; `None` for a model without one.
        pool_deviation: Standard deviation of these weights over the images.
        image_size: Height and width of the model's images.
        name: Name of the model.
    """

    filters: np.ndarray
    filters_are_components: bool
    explained_variance: np.ndarray | None
    position_similarity: np.ndarray | None
    images: int = 0
    attention_distance: np.ndarray | None = None
    uniform_distance: float | None = None
    head_attention: np.ndarray | None = None
    pool_weights: np.ndarray | None = None
    pool_deviation: np.ndarray | None = None
    image_size: tuple[int, int] = (0, 0)
    name: str = ""

    def plot(self) -> dict:
        """Draws everything that is known.

        Returns:
            `{name: matplotlib.figure.Figure}` with any of `filters`, `positions`,
            `distance`, `heads` and `pool`.
        """
        return learned_figures.draw_all(self)

    def save(self, folder: str | os.PathLike) -> pathlib.Path:
        """Writes the figures, the numbers and a page.

        Args:
            folder: Where to write; it is made if it does not exist.

        Returns:
            The page, `learned.html`.
        """
        return write_inspection(self, pathlib.Path(folder))


def inspect_model(
    model,
    data=None,
    *,
    split: str = "validation",
    count: int = 128,
    seed: int = 0,
    data_dir=None,
) -> Inspection:
    """Shows what a model learned.

    Args:
        model: As for `explain`; without data it needs no head.
        data: What `load_data` takes, or what it returned. Without it only the weights
            are inspected.
        split: Images to measure the attention on.
        count: How many of them; the ViT paper takes 128.
        seed: Seed by which they are drawn.
        data_dir: Where tensorflow-datasets keeps prepared data.

    Returns:
        An `Inspection`.

    Example:

    >>> inspection = inspect_model("cct_2_3x2_32.digits", "digits")
    >>> inspection.filters.shape, inspection.position_similarity.shape
    ((64, 3, 3, 1), (4, 4, 4, 4))
    >>> inspection.attention_distance.shape
    (2, 2)
    """
    # Attention is measured as the head reads it; the weights are there without one.
    trained = open_trained(model, needs_head=data is not None)
    if data is not None and None in trained.preprocessing["image_size"]:
        raise ModelError(
            "a model for images of any size can be inspected without data only"
        )
    filters, variance = _first_filters(trained.model)
    known = {
        "filters": filters,
        "filters_are_components": variance is not None,
        "explained_variance": variance,
        "position_similarity": _position_similarity(trained.model),
        "image_size": trained.preprocessing["image_size"],
        "name": trained.model.name,
    }
    if data is not None:
        known |= _measure(trained, data, split, count, seed, data_dir)
    return Inspection(**known)


# === From the weights ===


def _first_filters(model):
    """The filters of the first convolution, or the components of the patches."""
    tokenizer = find_tokenizer(model)
    kernel = ops.convert_to_numpy(tokenizer.convs[0].kernel).astype("float32")
    filters = np.moveaxis(kernel, -1, 0)
    patches = tokenizer.stride == tokenizer.kernel_size and not tokenizer.padding
    if not patches:
        return filters, None
    flat = filters.reshape(len(filters), -1)
    _, scales, components = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)
    shares = scales**2 / max((scales**2).sum(), 1e-12)
    count = min(COMPONENTS, len(components))
    return components[:count].reshape(count, *filters.shape[1:]), shares[:count]


def _position_similarity(model):
    layers = [x for x in model.layers if isinstance(x, PositionEmbedding)]
    if not layers:
        return None
    table = ops.convert_to_numpy(layers[0].embeddings)[0].astype("float32")
    table = table[layers[0].num_prefix_tokens :]
    table = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    return (table @ table.T).reshape(*layers[0].grid, *layers[0].grid)


# === From images ===


def _measure(trained: Trained, data: Dataset, split, count, seed, data_dir) -> dict:
    images, _ = draw_images(trained, data, split, count, seed, data_dir)
    tracer = open_tracer(trained.model)
    readout = tracer.readout(trained.model.input_shape)
    rows, columns = readout.grid
    height, width = trained.preprocessing["image_size"]
    between = _distances(readout.grid, (height / rows, width / columns))

    def look(trace: Trace):
        distances = attention_distances(trace.attention, between, readout.prefix)
        heads = attention_maps(trace)
        parts = [ops.reshape(x, (-1, x.shape[1] * x.shape[2])) for x in [distances]]
        parts.append(ops.reshape(heads, (-1, int(np.prod(heads.shape[1:])))))
        if trace.pool is not None:
            parts.append(seqpool_maps(trace))
        return ops.concatenate(parts, axis=-1)

    batch, found = fitting_batch(trained), []
    for start in range(0, len(images), batch):
        inputs = trained.as_input(images[start : start + batch])
        targets = np.full(len(inputs), PREDICTED)
        found.append(tracer.run(look, (), inputs, targets)[0])
    values = np.concatenate(found)
    arguments = trained.architecture.arguments
    shape = (arguments["num_layers"], arguments["num_heads"])
    heads = int(np.prod(shape))
    distances, maps, pool = np.split(
        values, [heads, heads + heads * rows * columns], axis=1
    )
    return {
        "images": len(images),
        "attention_distance": distances.mean(axis=0).reshape(shape),
        "uniform_distance": float(between.mean()),
        "head_attention": maps.mean(axis=0).reshape(*shape, rows, columns),
        "pool_weights": pool.mean(axis=0).reshape(readout.grid) if pool.size else None,
        "pool_deviation": pool.std(axis=0).reshape(readout.grid) if pool.size else None,
    }


def attention_distances(attention, between, prefix: int = 0):
    """How far each head looks: the mean distance of what a token attends to.

    Args:
        attention: For each block `(batch, heads, tokens, tokens)`.
        between: `(image tokens, image tokens)`, the distance of each pair.
        prefix: How many tokens before those of the image are left out; what is
            attended to among the others is made to sum to 1.

    Returns:
        Tensor `(batch, blocks, heads)`.
    """
    between, found = ops.convert_to_tensor(between), []
    for weights in attention:
        weights = weights[:, :, prefix:, prefix:]
        total = ops.sum(weights, axis=-1)
        distance = ops.sum(weights * between, axis=-1) / ops.maximum(total, 1e-12)
        found.append(ops.mean(distance, axis=-1))
    return ops.stack(found, axis=1)


def _distances(grid, cell):
    """Distances between the centers of all tokens, in pixels."""
    y, x = np.mgrid[: grid[0], : grid[1]].reshape(2, -1).astype("float32")
    across = (x[:, None] - x[None]) * cell[1]
    down = (y[:, None] - y[None]) * cell[0]
    return np.hypot(across, down).astype("float32")
