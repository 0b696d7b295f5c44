"""How good a model is, and what it says about images."""

import dataclasses
import os
import pathlib

import keras
import numpy as np

from cct_keras.data import Dataset
from cct_keras.data.dataset import load_evaluation_data
from cct_keras.data.folder import list_images
from cct_keras.data.folder import read_image
from cct_keras.data.raw import DataError
from cct_keras.layers import Preprocessing
from cct_keras.models.variants import VARIANTS
from cct_keras.pretrained import create_classifier
from cct_keras.pretrained import is_tag
from cct_keras.training.answers import answer
from cct_keras.training.metrics import classification_metrics
from cct_keras.training.run_folder import MODEL


def evaluate(
    model, data, *, split: str = "test", data_dir=None, batch_size: int = 128
) -> dict:
    """Measures a model on a data set.

    Args:
        model: A model that `train` made, its file, or `VARIANT.TAG`.
        data: What `load_data` takes.
        split: `"test"`, `"validation"` or `"train"`. Of data without such a split,
            it is what `train` cut off these same data, or all of other data.
        data_dir: Where tensorflow-datasets keeps prepared data.
        batch_size: Images a batch.

    Returns:
        `top1`, its 95 % interval `top1_ci95`, `top5`, `loss`, `ece`, `per_class`,
        `confusion`, `count` and `notes`.
    """
    model = load_classifier(model)
    preprocessing = _preprocessing(model)
    if not isinstance(data, Dataset):
        data = load_evaluation_data(
            data,
            split,
            image_size=preprocessing.image_size,
            channels=model.input_shape[-1],
            crop=preprocessing.crop,
            trained_on=preprocessing.trained_on,
            data_dir=data_dir,
        )
    names = preprocessing.class_names
    if names is not None and names != data.class_names:
        data = _in_order_of(names, data)
    metrics = measure(model, data, split, batch_size)[1]
    return {**metrics, "notes": list(data.notes)}


def measure(
    model: keras.Model, data: Dataset, split: str, batch_size: int = 128
) -> tuple[np.ndarray, dict]:
    """Probabilities of all images of a split, and the metrics."""
    parts = [
        answer(model, images)
        for images, _ in data.pipeline(split, batch_size).as_numpy_iterator()
    ]
    probabilities = np.concatenate(parts)
    labels = getattr(data, split).labels
    return probabilities, classification_metrics(
        labels, probabilities, data.class_names
    )


def find_mistakes(data: Dataset, split: str, probabilities, count: int = 24) -> dict:
    """The wrong answers that the model was surest of, with their pictures."""
    part = getattr(data, split)
    predictions, confidences = probabilities.argmax(1), probabilities.max(1)
    wrong = np.flatnonzero(predictions != part.labels)
    worst = wrong[np.argsort(-confidences[wrong], kind="stable")][:count]
    if not len(worst):
        return {}
    return {
        "images": [part.images[i] for i in worst],
        "truths": [data.class_names[part.labels[i]] for i in worst],
        "predictions": [data.class_names[predictions[i]] for i in worst],
        "confidences": [float(confidences[i]) for i in worst],
    }


def predict(model, sources, *, top: int = 5) -> list[dict]:
    """What a model says about images.

    Args:
        model: A model that `train` made, its file, or `VARIANT.TAG`.
        sources: Image files, folders of them, or arrays `(height, width,
            channels)` with values from 0 to 255, or floats from 0 to 1; one, a
            list, or a batch.
        top: How many classes to name.

    Returns:
        For each image `{"image": ..., "classes": [{"name", "probability"}]}`, or
        `{"image": ..., "error": ...}` for a file that cannot be read.

    Example:

    >>> predict("model.keras", ["photo.jpg"], top=1)  # doctest: +SKIP
    [{'image': 'photo.jpg', 'classes': [{'name': 'cat', 'probability': 0.93}]}]
    """
    if top < 1:
        raise DataError(f"`top` must be 1 or more. Received: top={top}")
    model = load_classifier(model)
    preprocessing = _preprocessing(model)
    count = model.output_shape[-1]
    names = preprocessing.class_names or tuple(str(i) for i in range(count))
    rows, batch = [], []

    def flush():
        if batch:
            images = np.stack([image for _, image in batch])
            for (row, _), found in zip(batch, answer(model, images), strict=True):
                row["classes"] = [
                    {"name": names[i], "probability": float(found[i])}
                    for i in np.argsort(-found, kind="stable")[:top]
                ]
            batch.clear()

    for label, source in _expand(sources):
        row = {"image": label}
        rows.append(row)
        try:
            image = _as_image(source, model.input_shape[-1])
        except DataError as error:
            row["error"] = str(error)
            continue
        fitted = preprocessing.fit_size(image[None].astype("float32"))
        batch.append((row, keras.ops.convert_to_numpy(fitted)[0]))
        if len(batch) == 64:
            flush()
    flush()
    return rows


def load_classifier(model) -> keras.Model:
    """A model that takes raw images and knows its classes.

    Args:
        model: A file or run folder of `train`, or the name of known weights,
            `VARIANT.TAG`. A model is returned as it is.

    Returns:
        A Keras model: images of any size with values from 0 to 255 in,
        probabilities out.

    Example:

    >>> model = load_classifier("cct_2_3x2_32.cifar10_jpeg")
    >>> model.predict(images)  # doctest: +SKIP
    """
    if isinstance(model, keras.Model):
        return model
    path = pathlib.Path(model)
    if path.is_dir():
        path = path / MODEL
    elif not path.exists():
        variant, _, tag = str(model).partition(".")
        if variant in VARIANTS and tag not in ("", "keras", "h5") and is_tag(tag):
            return create_classifier(variant, tag)
    if not path.is_file():
        raise DataError(f"no such model file: {model}")
    try:
        return keras.models.load_model(path, compile=False)
    except (ValueError, OSError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not a Keras model file: {error}") from error


def _preprocessing(model):
    for layer in model.layers:
        if isinstance(layer, Preprocessing):
            return layer
    raise DataError(
        f"{model.name!r} does not know how to prepare images: it has no "
        "`Preprocessing` layer, as models that `train` saves have"
    )


def _in_order_of(names, data):
    """The data set with its labels in the order of a model's classes."""
    unknown = sorted(set(data.class_names) - set(names))
    if unknown:
        raise DataError(
            f"the model does not know these classes of {data.name}: "
            f"{', '.join(unknown[:10])}"
        )
    order = np.array([names.index(name) for name in data.class_names])
    splits = {
        name: dataclasses.replace(
            getattr(data, name), labels=order[getattr(data, name).labels]
        )
        for name in ("train", "validation", "test")
    }
    return dataclasses.replace(data, class_names=names, **splits)


def _expand(sources):
    single = getattr(sources, "ndim", 0) in (2, 3)
    if single or isinstance(sources, (str, os.PathLike)):
        sources = [sources]
    for index, source in enumerate(sources):
        if not isinstance(source, (str, os.PathLike)):
            yield f"image {index}", np.asarray(source)
            continue
        path = pathlib.Path(source)
        if path.is_dir():
            found = list_images(path)
            if not found:
                raise DataError(f"there is no image in {path}")
            yield from ((str(file), file) for file in found)
        else:
            yield str(path), path


def _as_image(source, channels):
    if isinstance(source, pathlib.Path):
        if not source.is_file():
            raise DataError(f"no such file: {source}")
        return read_image(source, channels)
    image = source[..., None] if source.ndim == 2 else source
    if image.ndim != 3 or image.shape[-1] != channels:
        raise DataError(
            f"the model takes images of {channels} channels. Received an array of "
            f"shape {source.shape}"
        )
    if image.dtype.kind == "f" and image.max() <= 1:
        return 255 * image
    return image
