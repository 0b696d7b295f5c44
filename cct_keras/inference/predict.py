"""What a model says about images."""

import os
import pathlib

import numpy as np

from cct_keras.data.readers.folder import list_images
from cct_keras.data.readers.folder import read_image
from cct_keras.data.resize import central_crop_resize
from cct_keras.errors import DataError
from cct_keras.inference.classifier import find_preprocessing
from cct_keras.inference.classifier import load_classifier
from cct_keras.inference.decode import decode_predictions
from cct_keras.inference.forward import run_on_batch

BATCH_SIZE = 64


def predict(model, sources, *, top: int = 5) -> list[dict]:
    """Classifies images.

    Args:
        model: What `load_classifier` takes: a model that `train` made, its file or
            folder, or `VARIANT.TAG`.
        sources: Image files, folders of them, or arrays `(height, width, channels)`
            with values from 0 to 255, or floats from 0 to 1; one of these, a list, or
            a batch.
        top: How many classes to name.

    Returns:
        For each image `{"image": ..., "classes": [{"name", "probability"}]}`, or
        `{"image": ..., "error": ...}` for a file that cannot be read.

    Example:

    >>> image = np.zeros((8, 8, 1), "uint8")
    >>> [result] = predict("cct_2_3x2_32.digits", image, top=3)
    >>> result["image"], len(result["classes"])
    ('image 0', 3)
    """
    if top < 1:
        raise DataError(f"`top` must be 1 or more. Received: top={top}")
    model = load_classifier(model)
    preprocessing = find_preprocessing(model)
    channels = model.input_shape[-1]
    names = preprocessing.class_names
    if names is None:
        names = [str(index) for index in range(model.output_shape[-1])]
    rows, batch = [], []

    def classify_batch():
        if batch:
            images = np.stack([image for _, image in batch])
            decoded = decode_predictions(run_on_batch(model, images), names, top)
            for (row, _), classes in zip(batch, decoded, strict=True):
                row["classes"] = classes
            batch.clear()

    for label, source in _expand(sources):
        row = {"image": label}
        rows.append(row)
        try:
            image = _as_image(source, channels)
        except DataError as error:
            row["error"] = str(error)
            continue
        # Images of different sizes make a batch only in the model's size. They are
        # resized as `evaluate` does it, not by the layer inside of the model.
        image = central_crop_resize(
            image,
            preprocessing.image_size,
            preprocessing.crop,
            interpolation=preprocessing.interpolation,
        )
        batch.append((row, image.astype("float32")))
        if len(batch) == BATCH_SIZE:
            classify_batch()
    classify_batch()
    return rows


def _expand(sources):
    """Yields a label for each image, and its path or its array."""
    single_array = getattr(sources, "ndim", 0) in (2, 3)
    if single_array or isinstance(sources, (str, os.PathLike)):
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
