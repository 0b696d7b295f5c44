"""`explain`: where a model looks, as maps over the pictures."""

import functools
import numbers
import operator
from collections.abc import Sequence

import keras
import numpy as np

from cct_keras.errors import DataError
from cct_keras.errors import ModelError
from cct_keras.explaining.explanation import Explanation
from cct_keras.explaining.methods import Method
from cct_keras.explaining.methods import choose_head
from cct_keras.explaining.methods import find_method
from cct_keras.explaining.occlusion import occlusion_maps
from cct_keras.explaining.pictures import as_array_or_list
from cct_keras.explaining.pictures import list_pictures
from cct_keras.explaining.pictures import load_picture
from cct_keras.explaining.tracing import FEW_IMAGES
from cct_keras.explaining.tracing import PREDICTED
from cct_keras.explaining.tracing import Tracer
from cct_keras.explaining.tracing import open_tracer
from cct_keras.inference.trained import Trained
from cct_keras.inference.trained import open_trained
from cct_keras.runtime.prediction import map_over_threads
from cct_keras.spelling import did_you_mean

LARGEST_BATCH = 64
# Bytes that the attention of a batch, its gradients and its copies may take.
BATCH_BYTES = 2**30


def explain(
    model,
    images,
    method: str | None = None,
    target: int | str | Sequence[int | str] | None = None,
    *,
    block: int | None = None,
    head: int | None = None,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    class_names: Sequence[str] | None = None,
    batch_size: int | None = None,
    verbose: bool | str = "auto",
) -> Explanation:
    """Shows where a model looks.

    Args:
        model: A Keras model of this package, a `.keras` file, the folder of a run,
            `VARIANT.TAG` of known weights, or a checkpoint that `convert` takes.
        images: Image files, folders of them, arrays `(height, width, channels)` with
            values from 0 to 255, or images of Pillow; one of these, a list, or a batch.
            A model that does not normalize its images takes arrays of floats as they
            are, like `model.predict`.
        method: `"gradient_rollout"` (the default, which `judge_explanations` found
            best), `"gradient"`, `"gradcam"`, `"rollout"`, `"attention"`, `"seqpool"`
            (for models with SeqPool or attention pooling), or `"occlusion"`, which is
            slow and asks nothing but the model.
        target: The class to explain, by name or number, or one for each image. By
            default the class that the model predicts. `"seqpool"`, `"attention"` and
            `"rollout"` are the same for all classes.
        block: For `"attention"`, the block whose attention is shown; by default the
            last one.
        head: For `"attention"`, the head; by default the mean of all.
        mean: Mean of each channel for pixels from 0 to 1, if the model does not tell.
        std: Standard deviation of each channel, likewise.
        class_names: Names of the classes, if the model does not tell.
        batch_size: Images in a batch; by default as many as fit, at most 64.
        verbose: Whether to show a progress bar; by default if there is more than one
            batch.

    Returns:
        An `Explanation`.

    Raises:
        ModelError: The model, the method, the target, the block or the head is not
            there.
        DataError: None of the images can be read.

    Example:

    >>> image = cct_keras.load_data("digits").test.images[0]
    >>> explanation = explain("cct_2_3x2_32.digits", image)
    >>> explanation.maps.shape, explanation.token_maps.shape
    ((1, 16, 16), (1, 4, 4))
    """
    trained = open_trained(model, mean=mean, std=std, class_names=class_names)
    return explain_trained(
        trained,
        images,
        method,
        target,
        block=block,
        head=head,
        batch_size=batch_size,
        verbose=verbose,
    )


def explain_trained(
    trained: Trained,
    images,
    method: str | None = None,
    target=None,
    *,
    block: int | None = None,
    head: int | None = None,
    batch_size: int | None = None,
    verbose: bool | str = "auto",
) -> Explanation:
    """`explain` for a model that is open already."""
    tracer = open_tracer(trained.model)
    row = find_method(method, tracer.readout(trained.model.input_shape))
    if row.name != "attention" and (block, head) != (None, None):
        raise ModelError("`block` and `head` belong to method='attention'")
    sources = list_pictures(images, trained)
    targets = _as_targets(target, len(sources), trained)
    if batch_size is None:
        batch_size = fitting_batch(trained)
    if not isinstance(batch_size, numbers.Integral) or batch_size < 1:
        raise ModelError(f"`batch_size` must be 1 or more. Received: {batch_size}")
    maps = _Maps(trained, tracer, row, few=len(sources) <= FEW_IMAGES)
    shown = len(sources) > batch_size if verbose == "auto" else bool(verbose)
    bar = keras.utils.Progbar(len(sources), unit_name="image") if shown else None
    read = functools.partial(load_picture, trained=trained)
    pictures, kept, values, probabilities, errors = [], [], [], [], {}
    for start in range(0, len(sources), batch_size):
        batch = sources[start : start + batch_size]
        loaded = map_over_threads(lambda pair: read(*pair), batch)
        good = []
        for (name, _), index, result in zip(
            batch, range(start, start + len(batch)), loaded, strict=True
        ):
            if isinstance(result, DataError):
                errors[name] = str(result)
            else:
                good.append((index, *result))
        for indices, group, inputs in _of_one_shape(good):
            found = maps(inputs, targets[indices], batch_size)
            values.extend(found[0])
            probabilities.extend(found[1])
            pictures.extend(group)
            kept.extend(indices)
        if bar is not None:
            bar.update(start + len(batch))
    if not pictures:
        raise DataError(next(iter(errors.values())))
    order = np.argsort(kept, kind="stable")
    probabilities = np.stack(probabilities)[order]
    values = as_array_or_list([values[i] for i in order])
    explained = targets[np.array(kept)[order]]
    explained = np.where(explained == PREDICTED, probabilities.argmax(-1), explained)
    blocks = None
    if row.name == "attention":
        blocks = values
        values = as_array_or_list([choose_head(one, block, head) for one in blocks])
    return Explanation(
        method=row.name,
        meaning=_meaning(row, block, head),
        signed=row.signed,
        token_maps=values,
        attention_maps=blocks,
        probabilities=probabilities,
        targets=explained,
        class_names=tuple(trained.preprocessing["class_names"]),
        pictures=tuple(pictures[i] for i in order),
        errors=errors,
        notes=trained.notes,
    )


class _Maps:
    """Computes the maps of a batch of inputs by one method."""

    def __init__(self, trained: Trained, tracer: Tracer, method: Method, few: bool):
        self.trained = trained
        self.tracer = tracer
        self.method = method
        self.few = few

    def __call__(self, inputs, targets, batch_size):
        grid = self.tracer.readout(inputs.shape).grid
        if self.method.make_maps is None:
            return self._occlude(inputs, targets, grid, batch_size)
        values, probabilities = self.tracer.run(
            self.method.make_maps,
            self.method.watched,
            inputs,
            targets,
            few=self.few,
        )
        return values.reshape(*values.shape[:-1], *grid), probabilities

    def _occlude(self, inputs, targets, grid, batch_size):
        def predict(images):
            undecided = np.full(len(images), PREDICTED)
            return np.concatenate(
                [
                    self.tracer.run(None, (), part, undecided[: len(part)])[1]
                    for part in (
                        images[start : start + batch_size]
                        for start in range(0, len(images), batch_size)
                    )
                ]
            )

        first = self.trained.channels_first
        probabilities = predict(inputs)
        targets = np.where(targets == PREDICTED, probabilities.argmax(-1), targets)
        fill = 0.0
        if self.trained.prepares_images:
            fill = 255 * np.array(self.trained.preprocessing["mean"], "float32")
        maps = []
        for image, target in zip(inputs, targets, strict=True):

            def log_probability(images, target=target):
                images = np.moveaxis(images, -1, 1) if first else images
                return np.log(np.maximum(predict(images)[:, target], 1e-12))

            picture = np.moveaxis(image, 0, -1) if first else image
            maps.append(occlusion_maps(log_probability, picture, grid, fill))
        return np.stack(maps), probabilities


def fitting_batch(trained: Trained) -> int:
    """How many images at once leave their attention in memory."""
    arguments = trained.architecture.arguments
    if None in arguments["input_shape"]:
        return 1
    length = trained.architecture.tokens
    weights = arguments["num_layers"] * arguments["num_heads"] * length**2
    return int(np.clip(BATCH_BYTES // (3 * 4 * weights), 1, LARGEST_BATCH))


def _of_one_shape(loaded):
    """Groups of pictures whose inputs make one array."""
    groups = {}
    for index, picture, image in loaded:
        groups.setdefault(image.shape, []).append((index, picture, image))
    for group in groups.values():
        indices, pictures, images = zip(*group, strict=True)
        yield list(indices), pictures, np.stack(images)


def _as_targets(target, count, trained):
    """The number of the class to explain for every image, or `PREDICTED`."""
    if target is None:
        return np.full(count, PREDICTED)
    several = isinstance(target, (list, tuple)) or getattr(target, "ndim", 0) == 1
    wanted = list(target) if several else [target] * count
    if len(wanted) != count:
        raise ModelError(
            f"`target` must be one class, or one for each of the {count} images. "
            f"Received: {len(wanted)}"
        )
    return np.array([_as_class(one, trained) for one in wanted])


def _as_class(target, trained):
    names = trained.preprocessing["class_names"]
    if isinstance(target, str) and target in names:
        return names.index(target)
    if isinstance(target, str) and not target.removeprefix("-").isdecimal():
        raise ModelError(
            f"`target`: there is no class {target!r}. {did_you_mean(target, names)}"
        )
    try:
        # A fraction is no class, nor is an answer to a question.
        index = int(target) if isinstance(target, str) else operator.index(target)
    except TypeError:
        index = None
    if index is None or isinstance(target, bool) or not 0 <= index < len(names):
        raise ModelError(
            f"`target` must be a class from 0 to {len(names) - 1}, or its name. "
            f"Received: target={target}"
        )
    return index


def _meaning(method, block, head):
    if method.name != "attention":
        return method.meaning
    where = "last block" if block in (None, -1) else f"block {block}"
    return f"{method.meaning}, {where}, " + (
        "mean of the heads" if head is None else f"head {head}"
    )
