"""Pictures of what a model sees in training, and of what it says."""

import pathlib

from cct_keras.atomic_file import atomic_file
from cct_keras.data.folder import read_image
from cct_keras.training import figures
from cct_keras.training.recipe import Recipe
from cct_keras.training.trainer import load_for

# Shorter side of a picture in a grid
SHRINK = 256


def write_preview(
    path,
    data,
    recipe: Recipe,
    *,
    image_size: int | tuple[int, int] | None = None,
    data_dir=None,
    seed: int = 0,
) -> pathlib.Path:
    """Writes a grid of augmented images with their mixed labels.

    Args:
        path: PNG file to write.
        data: What `load_data` takes.
        recipe: The recipe that would be trained.
        image_size: As for `train`.
        data_dir: As for `train`.
        seed: As for `train`.

    Returns:
        The path.
    """
    data = load_for(data, recipe, image_size=image_size, data_dir=data_dir, seed=seed)
    batches = data.training_pipeline(recipe, epochs=1, seed=seed)
    images, targets = next(batches.take(1).as_numpy_iterator())
    pixels = images.clip(0, 255).round().astype("uint8")
    return _save(figures.samples(pixels, targets, data.class_names), path)


def write_predictions(path, rows: list[dict]) -> pathlib.Path:
    """Writes a grid of images with the likeliest class and its probability.

    Args:
        path: File to write; its suffix decides the format.
        rows: What `predict` returned for image files; the first 24 that could be
            read are drawn.

    Returns:
        The path.
    """
    rows = [row for row in rows if "classes" in row][: figures.MOST_PICTURES]
    figure = figures.predictions(
        [read_image(row["image"], channels=None, shrink=SHRINK) for row in rows],
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
