"""Grids of pictures with a caption each."""

import math
import warnings
from collections.abc import Sequence

import numpy as np

from cct_keras.drawing.style import NothingToDraw
from cct_keras.drawing.style import new_figure
from cct_keras.drawing.style import percent
from cct_keras.drawing.style import shortened
from cct_keras.drawing.style import styled

MOST_PICTURES = 24
COLUMNS = 6
WIDTH_INCHES = 1.8
CAPTION_LENGTH = 25
# Up to this side pictures show their pixels instead of a blur.
SMALL_PICTURE = 128


@styled
def predictions(
    images: Sequence[np.ndarray], names: Sequence[str], confidences: Sequence[float]
):
    """Pictures with the caption "predicted 98 %".

    Args:
        images: uint8 arrays `(height, width, channels)` of 1 or 3 channels, of
            any sizes. The first 24 are drawn.
        names: Name of each predicted class.
        confidences: Probability of each predicted class.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    pairs = zip(names, confidences, strict=True)
    return _picture_grid(images, [_with_confidence(*pair) for pair in pairs])


@styled
def samples(
    images: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
    class_names: Sequence[str],
):
    """Training images with their labels as captions, and their shares if two are mixed.

    Args:
        images: As for `predictions`.
        targets: Share of every class in each image.
        class_names: In the order of the shares.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    captions = []
    for target in targets:
        first, second = np.argsort(-target)[:2]
        # Label smoothing gives all classes that are not in the picture the same share.
        mixed = target[second] - target.min() > 1e-3
        captions.append(
            "\n".join(
                _with_confidence(class_names[i], target[i]) for i in (first, second)
            )
            if mixed
            else shortened(class_names[first], CAPTION_LENGTH)
        )
    return _picture_grid(images, captions)


def _with_confidence(name, confidence):
    text = percent(confidence)
    return f"{shortened(name, CAPTION_LENGTH - len(text) - 1)} {text}"


def _picture_grid(images, captions):
    if len(images) != len(captions):
        raise ValueError(f"{len(images)} images have {len(captions)} captions")
    if not captions:
        raise NothingToDraw("there is no picture to draw")
    images, captions = images[:MOST_PICTURES], captions[:MOST_PICTURES]
    columns = min(len(images), COLUMNS)
    rows = math.ceil(len(images) / columns)
    lines = max(caption.count("\n") + 1 for caption in captions)
    figure = new_figure(WIDTH_INCHES * columns, (1.75 + 0.15 * lines) * rows)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid:
        axes.axis("off")
    for axes, image, caption in zip(grid, images, captions, strict=False):
        _picture(axes, image)
        axes.set_title(
            caption,
            fontsize=_fitting_size(caption),
            fontweight="normal",
            loc="center",
            pad=3,
            parse_math=False,
        )
    return figure


def _fitting_size(caption):
    """Font size at which a caption is no wider than its picture."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=8)
    with warnings.catch_warnings():
        # Drawing warns of letters that the font lacks, and once is enough.
        warnings.simplefilter("ignore", UserWarning)
        width = max(
            text_to_path.get_text_width_height_descent(line, font, ismath=False)[0]
            for line in caption.split("\n")
        )
    return 8 * min(1, (72 * WIDTH_INCHES - 8) / max(width, 1))


def _picture(axes, image):
    image = np.asarray(image)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (1, 3):
        raise ValueError(
            "`images` must be uint8 of shape (height, width, 1 or 3). "
            f"Received: {image.dtype} of shape {image.shape}"
        )
    axes.set_anchor("N")
    small = max(image.shape[:2]) <= SMALL_PICTURE
    axes.imshow(
        image[..., 0] if image.shape[2] == 1 else image,
        cmap="gray",
        vmin=0,
        vmax=255,
        interpolation="nearest" if small else "antialiased",
    )
