"""Images of a data set to look at a model with."""

import numbers

import numpy as np

from cct_keras.data.dataset import Dataset
from cct_keras.data.dataset import load_evaluation_data
from cct_keras.data.splits import check_split
from cct_keras.errors import DataError
from cct_keras.inference.trained import Trained
from cct_keras.runtime.resize import central_crop_resize


def draw_images(
    trained: Trained, data, split: str, count: int, seed: int = 0, data_dir=None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Images as the model sees them, drawn at random.

    Args:
        trained: The model.
        data: What `load_data` takes, or what it returned.
        split: `"test"`, `"validation"` or `"train"`; see `evaluate` for data without.
        count: How many images at most.
        seed: Seed by which they are drawn.
        data_dir: Where tensorflow-datasets keeps prepared data.

    Returns:
        uint8 array `(images, *image_size, channels)`, and their classes in the order of
        the model; `None` if these are not the classes of the model.
    """
    check_split(split)
    settings = trained.preprocessing
    if not isinstance(data, Dataset):
        data = load_evaluation_data(
            data,
            split,
            image_size=settings["image_size"],
            channels=trained.channels,
            crop=settings["crop"],
            interpolation=settings["interpolation"],
            trained_on=settings["trained_on"],
            data_dir=data_dir,
        )
    found = getattr(data, split)
    if not isinstance(count, numbers.Integral) or count < 1:
        raise DataError(f"`count` must be 1 or more. Received: count={count}")
    chosen = np.random.default_rng(seed).permutation(len(found))[:count]
    images = np.stack(
        [
            central_crop_resize(
                found.images[int(index)],
                settings["image_size"],
                settings["crop"],
                interpolation=settings["interpolation"],
            )
            for index in chosen
        ]
    )
    if images.shape[-1] != trained.channels:
        raise DataError(
            f"the model takes images of {trained.channels} channel(s), and those of "
            f"{data.name} have {images.shape[-1]}"
        )
    names = settings["class_names"]
    if not set(data.class_names) <= set(names):
        return images, None
    order = np.array([names.index(name) for name in data.class_names])
    return images, order[found.labels[chosen]]
