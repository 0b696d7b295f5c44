"""Pictures of what a model sees in training, and of its predictions."""

import pathlib

from cct_keras.atomic_file import atomic_file
from cct_keras.data.dataset import Dataset
from cct_keras.recipes.recipe import Recipe
from cct_keras.report import pictures
from cct_keras.runtime.image_files import read_image

# Shorter side of a picture in a grid, in pixels.
SHORTER_SIDE = 256


def write_preview(
    path, data: Dataset, recipe: Recipe, *, seed: int = 0
) -> pathlib.Path:
    """Draws a grid of augmented training images with their mixed labels.

    Args:
        path: PNG file to write.
        data: The data, as `load_data` returns them.
        recipe: The recipe that would be trained.
        seed: Seed of the run that would be trained.

    Returns:
        The path.

    Example:

    >>> data = cct_keras.load_data("digits")
    >>> write_preview("preview.png", data, Recipe())  # it writes # doctest: +SKIP
    """
    batches = data.training_pipeline(recipe, epochs=1, seed=seed)
    images, targets = next(batches.take(1).as_numpy_iterator())
    pixels = images.clip(0, 255).round().astype("uint8")
    return _save(pictures.samples(pixels, targets, data.class_names), path)


def write_predictions(path, rows: list[dict]) -> pathlib.Path:
    """Draws a grid of images with their likeliest class and its probability.

    Args:
        path: File to write; its suffix decides the format.
        rows: What `predict` returned for image files; the first 24 that could be
            read are drawn.

    Returns:
        The path.

    Example:

    >>> rows = cct_keras.predict("runs/mine", "photos")  # no such run # doctest: +SKIP
    >>> write_predictions("predictions.png", rows)  # doctest: +SKIP
    """
    rows = [row for row in rows if "classes" in row][: pictures.MOST_PICTURES]
    figure = pictures.predictions(
        [read_image(row["image"], channels=None, shrink=SHORTER_SIDE) for row in rows],
        [row["classes"][0]["name"] for row in rows],
        [row["classes"][0]["probability"] for row in rows],
    )
    return _save(figure, path)


def _save(figure, path):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=110)
    return path
