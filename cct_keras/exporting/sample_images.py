"""Images to compare an exported file on, and to calibrate int8 by."""

from typing import NamedTuple

import numpy as np

from cct_keras.data.dataset import Dataset
from cct_keras.data.dataset import load_evaluation_data
from cct_keras.errors import ExportError
from cct_keras.exporting.subject import Subject
from cct_keras.models.architecture import Architecture
from cct_keras.models.cost import architecture_cost
from cct_keras.runtime.resize import central_crop_resize

# Enough to see a difference of the graphs.
COMPARED = 64
# 32 calibration images do as well as 128. onnxruntime keeps the tensors of all images
# in memory, so that large models get fewer.
CALIBRATED = 64
FEWEST_CALIBRATED = 16
CALIBRATION_BYTES = 2**30
# int8 is judged on all images there are, or on as many as two minutes allow.
MOST_JUDGED = 10_000
FEWEST_JUDGED = 1_000
JUDGED_MACS = 4e12


class SampleImages(NamedTuple):
    """Images in the size of the model, and where they are from.

    Attributes:
        pixels: uint8 array `(images, height, width, channels)`.
        labels: Their classes in the order of the model, or `None`.
        origin: Where they are from, in words.
    """

    pixels: np.ndarray
    labels: np.ndarray | None
    origin: str


def photographs(subject: Subject, count: int = COMPARED) -> SampleImages:
    """Cutouts of the two photographs that scikit-learn brings along, and noise.

    Args:
        subject: The model they are for.
        count: How many; a quarter of them is noise.
    """
    from sklearn.datasets import load_sample_images

    generator = np.random.default_rng(0)
    size, channels = subject.preprocessing["image_size"], subject.channels
    photos = load_sample_images().images
    images = []
    for index in range(count):
        photo = photos[index % len(photos)]
        height, width = photo.shape[:2]
        side = int(generator.integers(min(height, width) // 8, min(height, width) + 1))
        top = int(generator.integers(height - side + 1))
        left = int(generator.integers(width - side + 1))
        image = photo[top : top + side, left : left + side]
        if index % 4 == 3:
            image = generator.integers(0, 256, image.shape, "uint8")
        if channels == 1:
            image = image.mean(axis=-1, keepdims=True).astype("uint8")
        images.append(central_crop_resize(image, size))
    return SampleImages(np.stack(images), None, "cutouts of photographs, and noise")


def dataset_images(
    subject: Subject, data, split: str, most: int, data_dir=None
) -> SampleImages:
    """Images of a data set as the model sees them, drawn at random.

    Args:
        subject: The model.
        data: What `load_data` takes, or what it returned.
        split: `"train"` or `"validation"`; see `evaluate` for data without it.
        most: How many images at most.
        data_dir: Where tensorflow-datasets keeps prepared data.
    """
    settings = subject.preprocessing
    if not isinstance(data, Dataset):
        data = load_evaluation_data(
            data,
            split,
            image_size=settings["image_size"],
            channels=subject.channels,
            crop=settings["crop"],
            interpolation=settings["interpolation"],
            trained_on=settings["trained_on"],
            data_dir=data_dir,
        )
    images, labels = getattr(data, split).images, getattr(data, split).labels
    chosen = np.arange(len(labels))
    if len(labels) > most:
        chosen = np.sort(np.random.default_rng(0).permutation(len(labels))[:most])
    pixels = np.stack([_fit(images[index], settings) for index in chosen])
    if pixels.shape[-1] != subject.channels:
        raise ExportError(
            f"the model takes images of {subject.channels} channel(s), and those of "
            f"{data.name} have {pixels.shape[-1]}"
        )
    labels = _labels_of_model(labels[chosen], data.class_names, settings["class_names"])
    return SampleImages(pixels, labels, f"{split} images of {data.name}")


def calibration_count(architecture: Architecture) -> int:
    """How many images int8 is calibrated on.

    Example:

    >>> calibration_count(Architecture.from_variant("cct_2_3x2_32"))
    64
    """
    fitting = CALIBRATION_BYTES // architecture_cost(architecture).activation_bytes
    return max(FEWEST_CALIBRATED, min(CALIBRATED, fitting))


def judged_count(architecture: Architecture) -> int:
    """On how many images the accuracy of int8 is measured.

    Example:

    >>> judged_count(Architecture.from_variant("cct_2_3x2_32"))
    10000
    """
    cost = architecture_cost(architecture)
    macs = cost.macs + cost.attention_macs
    return int(max(FEWEST_JUDGED, min(MOST_JUDGED, JUDGED_MACS // macs)))


def _fit(image, settings):
    return central_crop_resize(
        image,
        settings["image_size"],
        settings["crop"],
        interpolation=settings["interpolation"],
    )


def _labels_of_model(labels, data_names, model_names):
    """Labels in the order of the model's classes; `None` if these are others."""
    if not set(data_names) <= set(model_names):
        return None
    return np.array([model_names.index(name) for name in data_names])[labels]
