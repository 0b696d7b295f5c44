"""How an image outside of a model gets the size of the model.

Inside a model the layer `Preprocessing` computes the same with the operations of the
backend; a test compares the two.
"""

import numpy as np

from cct_keras.geometry import central_box


def central_crop_resize(
    image: np.ndarray,
    size: tuple[int, int],
    crop: float = 1.0,
    *,
    interpolation: str = "bicubic",
) -> np.ndarray:
    """Cuts the center out of an image and resizes it, as evaluation sees it.

    An image that has exactly the requested size is taken as cut already and returned
    as it is.

    Args:
        image: Array `(height, width, channels)` with values from 0 to 255.
        size: Height and width of the result.
        crop: Share of the largest centered box of this aspect ratio that is kept.
        interpolation: `"bicubic"` or `"bilinear"`, antialiased where the image
            shrinks, or `"nearest"`.

    Returns:
        An array `(*size, channels)` with values from 0 to 255: uint8 for a uint8
        image, float32 for any other one.

    Example:

    >>> photo = np.zeros((480, 640, 3), "uint8")
    >>> central_crop_resize(photo, (224, 224), crop=0.9).shape
    (224, 224, 3)
    """
    if image.dtype != np.uint8:
        image = image.astype(np.float32, copy=False)
    if image.shape[:2] == tuple(size):
        return image
    top, left, bottom, right = central_box(*image.shape[:2], size, crop)
    return resize(image[top:bottom, left:right], size, interpolation=interpolation)


def resize(
    image: np.ndarray, size: tuple[int, int], *, interpolation: str = "bicubic"
) -> np.ndarray:
    """Resizes an image with Pillow.

    Args:
        image: uint8 or float32 array `(height, width, channels)` with values from 0
            to 255.
        size: Height and width of the result.
        interpolation: `"bicubic"`, `"bilinear"` or `"nearest"`.

    Returns:
        An array `(*size, channels)` of the same type.

    Example:

    >>> resize(np.zeros((4, 4, 1), "uint8"), (8, 6)).shape
    (8, 6, 1)
    """
    from PIL import Image

    height, width = size
    method = Image.Resampling[interpolation.upper()]
    resized = np.empty((height, width, image.shape[-1]), np.float32)
    # Channel by channel as floats: with integers Pillow would clip the overshoot of
    # the rows before it goes on with the columns, and differ from other libraries.
    for channel in range(image.shape[-1]):
        plane = Image.fromarray(image[..., channel].astype(np.float32))
        resized[..., channel] = plane.resize((width, height), method)
    resized = resized.clip(0, 255)
    if image.dtype == np.uint8:
        return np.rint(resized).astype(np.uint8)
    return resized
