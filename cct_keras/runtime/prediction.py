"""From pictures of any kind to the answers of a model."""

import itertools
import os
import pathlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np

from cct_keras.errors import DataError
from cct_keras.runtime.engine import Engine
from cct_keras.runtime.image_files import decode_image
from cct_keras.runtime.image_files import read_image
from cct_keras.runtime.listing import list_images
from cct_keras.runtime.metadata import Metadata
from cct_keras.runtime.ranking import likeliest_classes
from cct_keras.runtime.resize import central_crop_resize

BATCH_SIZE = 64
# Numbers in a batch; fewer images make one if they are very large.
BATCH_NUMBERS = 2**27
# Floats up to here are shares of white: resizing leaves some of them a little above 1.
BRIGHTEST_SHARE = 1.001


def classify(engine: Engine, sources, top: int) -> list[dict]:
    """Names the likeliest classes of images.

    Args:
        engine: The model; a Keras model is one too, see `cct_keras.predict`.
        sources: Image files, folders of them, arrays or images of Pillow; one of
            these, a list, or a batch.
        top: How many classes to name.

    Returns:
        For each image `{"image": ..., "classes": [{"name", "probability"}]}`, or
        `{"image": ..., "error": ...}` for a file that cannot be read.
    """
    check_top(top)
    names, rows = engine.metadata.class_names, []
    for labels, images in load_batches(sources, engine.metadata):
        readable = [image for image in images if not isinstance(image, DataError)]
        decoded = iter(())
        if readable:
            probabilities = engine.probabilities(np.stack(readable))
            decoded = iter(likeliest_classes(probabilities, names, top))
        for label, image in zip(labels, images):
            if isinstance(image, DataError):
                rows.append({"image": label, "error": str(image)})
            else:
                rows.append({"image": label, "classes": next(decoded)})
    return rows


def check_top(top: int) -> None:
    """Refuses to name no class."""
    if top < 1:
        raise DataError(f"`top` must be 1 or more. Received: top={top}")


def load_batches(
    sources, metadata: Metadata
) -> Iterator[tuple[list[str], list[np.ndarray | DataError]]]:
    """Reads images and brings them into the size of a model.

    Args:
        sources: As for `classify`.
        metadata: What the model takes.

    Yields:
        Names of a batch of images, and for each its pixels or the reason why it cannot
        be read.
    """

    def load(source):
        try:
            return load_image(source, metadata)
        except DataError as error:
            return error

    height, width = metadata.image_size
    size = max(1, BATCH_NUMBERS // (height * width * metadata.channels))
    expanded = expand_sources(sources)
    while batch := list(itertools.islice(expanded, min(size, BATCH_SIZE))):
        labels, images = zip(*batch)
        yield list(labels), map_over_threads(load, images)


def load_image(source, metadata: Metadata) -> np.ndarray:
    """Makes of a picture what the graph of a model takes.

    Args:
        source: A `pathlib.Path`, an image of Pillow, or an array of pixels from 0 to
            255, or of floats from 0 to 1.
        metadata: What the model takes.

    Returns:
        float32 array `(height, width, channels)` of values from 0 to 255.
    """
    # Images of different sizes make a batch only in the model's size.
    return central_crop_resize(
        as_pixels(source, metadata.channels),
        metadata.image_size,
        metadata.crop,
        interpolation=metadata.interpolation,
    ).astype(np.float32, copy=False)


def map_over_threads(function: Callable, items: Sequence) -> list:
    """What a function returns for each item, computed in threads."""
    if len(items) == 1:
        return [function(items[0])]
    # Its import takes as long as a small picture.
    import concurrent.futures

    with concurrent.futures.ThreadPoolExecutor() as pool:
        return list(pool.map(function, items))


def expand_sources(sources) -> Iterator[tuple[str, object]]:
    """Lists images one by one.

    Args:
        sources: As for `classify`.

    Yields:
        A label for each image, and its path, its array or its image of Pillow.
    """
    is_array = getattr(sources, "ndim", 0) in (2, 3)
    if is_array or _is_pillow(sources) or isinstance(sources, (str, os.PathLike)):
        sources = [sources]
    if not isinstance(sources, Iterable):
        raise DataError(
            "images must be files, folders, arrays or images of Pillow. Received: "
            f"{type(sources).__name__}"
        )
    for index, source in enumerate(sources):
        if not isinstance(source, (str, os.PathLike)):
            yield f"image {index}", source
            continue
        path = pathlib.Path(source)
        if path.is_dir():
            found = list_images(path)
            if not found:
                raise DataError(f"there is no image in {path}")
            yield from ((str(file), file) for file in found)
        else:
            yield str(path), path


def _is_pillow(source):
    return hasattr(source, "getexif")


def as_pixels(source, channels: int) -> np.ndarray:
    """Reads one image in its own size.

    Args:
        source: As for `load_image`.
        channels: 1 for gray images, 3 for color.

    Returns:
        Array `(height, width, channels)` of values from 0 to 255.
    """
    if isinstance(source, pathlib.Path):
        if not source.is_file():
            raise DataError(f"no such file: {source}")
        return read_image(source, channels)
    if _is_pillow(source):
        return decode_image(source, channels)
    source = np.asarray(source)
    image = source[..., None] if source.ndim == 2 else source
    if image.ndim != 3 or image.shape[-1] != channels or not image.size:
        raise DataError(
            f"the model takes images of {channels} channels. Received an array of "
            f"shape {source.shape}"
        )
    if image.dtype.kind not in "uifb":
        raise DataError(f"pixels must be numbers. Received an array of {image.dtype}")
    if image.dtype.kind == "b":
        return 255 * image.astype(np.uint8)
    low, high = image.min(), image.max()
    if not (np.isfinite(low) and np.isfinite(high)):
        raise DataError("pixels must be finite. Received an array with NaN or infinity")
    if image.dtype.kind == "f":
        return np.minimum(255 * image, 255) if high <= BRIGHTEST_SHARE else image
    if low < 0 or high > 255:
        raise DataError(f"pixels must be from 0 to 255. Received: {low} to {high}")
    return image
