"""Pictures of any size as the model sees them, and the way back to their own pixels."""

import dataclasses
import pathlib
from collections.abc import Sequence

import keras
import numpy as np

from cct_keras.errors import DataError
from cct_keras.geometry import central_box
from cct_keras.inference.trained import Trained
from cct_keras.runtime.image_files import decode_image
from cct_keras.runtime.image_files import read_image
from cct_keras.runtime.prediction import BRIGHTEST_SHARE
from cct_keras.runtime.prediction import as_pixels
from cct_keras.runtime.prediction import expand_sources
from cct_keras.runtime.resize import central_crop_resize
from cct_keras.runtime.resize import resize

# Longest side of a picture in a figure or on a page, in pixels.
DRAWN_SIDE = 640


@dataclasses.dataclass(frozen=True, eq=False)
class Picture:
    """One picture that was given to be explained.

    Attributes:
        name: Its file, or `image 0` and so on.
        source: A path, an array or an image of Pillow.
        size: Height and width of the upright picture.
        box: Top, left, bottom and right of the part that the model sees.
    """

    name: str
    source: object
    size: tuple[int, int]
    box: tuple[int, int, int, int]

    def spread(self, token_map: np.ndarray) -> np.ndarray:
        """A map over tokens in the coordinates of the picture.

        Every pixel has the value of its token; what the model does not see has 0.

        Args:
            token_map: `(rows, columns)`.

        Returns:
            `(height, width)`.
        """
        top, left, bottom, right = self.box
        spread = np.zeros(self.size, token_map.dtype)
        rows, columns = (
            (np.arange(length) * count) // length
            for length, count in zip(
                (bottom - top, right - left), token_map.shape, strict=True
            )
        )
        spread[top:bottom, left:right] = token_map[rows][:, columns]
        return spread

    def pixels(self) -> np.ndarray:
        """The picture as it is drawn: uint8, 1 or 3 channels, large ones reduced."""
        if isinstance(self.source, pathlib.Path):
            image = read_image(self.source, None, shrink=DRAWN_SIDE)
        elif isinstance(self.source, np.ndarray):
            image = _as_drawn(self.source)
        else:
            image = decode_image(self.source, None)
        longest = max(image.shape[:2])
        if longest <= DRAWN_SIDE:
            return image
        height, width = (
            max(1, round(side * DRAWN_SIDE / longest)) for side in image.shape[:2]
        )
        return resize(image, (height, width))


def list_pictures(sources, trained: Trained) -> list[tuple[str, object]]:
    """Names and sources of all pictures; arrays have their channels last.

    Args:
        sources: Image files, folders of them, arrays or images of Pillow; one of
            these, a list, or a batch.
        trained: The model.
    """
    found = [
        (name, _as_array(source)) for name, source in expand_sources(_as_array(sources))
    ]
    if not found:
        raise DataError("there is no image to explain")
    return [
        (name, _channels_last(source, trained) if _is_array(source) else source)
        for name, source in found
    ]


def load_picture(
    name: str, source, trained: Trained
) -> tuple[Picture, np.ndarray] | DataError:
    """Reads a picture.

    Args:
        name: Its name.
        source: As `list_pictures` returns it.
        trained: The model. One that does not normalize its images takes arrays of
            floats as they are, like `model.predict`; files and integers are normalized
            for it.

    Returns:
        The picture and the input of the model for it, or why it cannot be read.
    """
    settings = trained.preprocessing
    size, crop = settings["image_size"], settings["crop"]
    try:
        floats = _is_array(source) and source.dtype.kind == "f"
        if floats and not trained.prepares_images:
            return _prepared(name, source, trained)
        if None in size:
            raise DataError(
                "the model takes images of any size and does not resize them: give "
                "arrays of floats, as model.predict takes them"
            )
        pixels = as_pixels(source, trained.channels)
        original = pixels.shape[:2]
        seen = central_crop_resize(
            pixels, size, crop, interpolation=settings["interpolation"]
        )
    except DataError as error:
        return error
    box = (0, 0, *original)
    if original != tuple(size):
        box = central_box(*original, size, crop)
    images = trained.as_input(seen[None])
    return Picture(name, source, original, box), images[0]


def _prepared(name, source, trained):
    """An array that is the input of the model already."""
    shape = trained.architecture.arguments["input_shape"]
    fits = source.ndim == 3 and all(
        side in (None, found) for side, found in zip(shape, source.shape, strict=True)
    )
    if not fits:
        raise DataError(
            f"the model takes arrays of shape {tuple(shape)}. Received: {source.shape}"
        )
    size = source.shape[:2]
    images = source.astype("float32")
    if not np.isfinite(images).all():
        raise DataError("pixels must be finite. Received an array with NaN or infinity")
    if trained.channels_first:
        images = np.moveaxis(images, -1, 0)
    return Picture(name, source, size, (0, 0, *size)), images


def _as_array(source):
    """A tensor of the backend as an array; anything else as it is."""
    return keras.ops.convert_to_numpy(source) if keras.ops.is_tensor(source) else source


def _is_array(source):
    return isinstance(source, np.ndarray)


def _channels_last(array, trained):
    first = array.ndim == 3 and trained.channels_first
    if first and array.shape[0] == trained.channels:
        return np.moveaxis(array, 0, -1)
    return array


def _as_drawn(array):
    """An array of any kind as a picture of 1 or 3 channels."""
    image = array[..., None] if array.ndim == 2 else array
    if image.dtype.kind == "f":
        image = image.astype("float32")
        low, high = float(image.min()), float(image.max())
        if low < 0 or high > 255:
            # Normalized images have lost their scale.
            image = 255 * (image - low) / max(high - low, 1e-12)
        elif high <= BRIGHTEST_SHARE:
            image = (255 * image).clip(0, 255)
    elif image.dtype.kind == "b":
        image = 255 * image.astype(np.uint8)
    if image.shape[2] not in (1, 3):
        # What has other channels than colors is drawn by its brightness.
        image = image.mean(axis=-1, keepdims=True)
    return np.rint(image).astype(np.uint8)


def as_array_or_list(arrays: Sequence[np.ndarray]) -> np.ndarray | list[np.ndarray]:
    """One array if all have the same shape, and otherwise a list."""
    if len({array.shape for array in arrays}) == 1:
        return np.stack(arrays)
    return list(arrays)
