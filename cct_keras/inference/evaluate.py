"""How good a model is on a data set."""

import dataclasses
from collections.abc import Callable

import numpy as np

from cct_keras.data.dataset import Dataset
from cct_keras.data.dataset import load_evaluation_data
from cct_keras.errors import DataError
from cct_keras.inference.metrics import classification_metrics
from cct_keras.inference.open_model import open_model
from cct_keras.inference.views import averaged_over_flip
from cct_keras.inference.views import check_views
from cct_keras.runtime.resize import central_crop_resize


def evaluate(
    model,
    data,
    *,
    split: str = "test",
    data_dir=None,
    batch_size: int = 128,
    tta: str | None = None,
) -> dict:
    """Measures a model on a data set.

    Args:
        model: What `load_classifier` takes: a model that `train` made, its file or
            folder, or `VARIANT.TAG`. Or a file that `export` wrote, which needs no
            Keras.
        data: What `load_data` takes, or what it returned.
        split: `"test"`, `"validation"` or `"train"`. If the data have no such split,
            the images that `train` cut off for it are measured, provided that the
            model was trained on these data; otherwise all images are.
        data_dir: Where tensorflow-datasets keeps prepared data.
        batch_size: Images in a batch.
        tta: `"flip"` measures once more with answers that are averaged over every
            image and its mirror image, which takes twice as long. For characters it
            makes no sense.

    Returns:
        `top1`, its 95 % interval `top1_ci95`, `top5`, `loss`, `ece`, `calibration`,
        `per_class`, `confusion` and `count`, as `classification_metrics` describes
        them, and `notes` about the data. With `tta` also `"tta"`: its name, and
        `top1`, `top1_ci95`, `top5`, `loss` and `ece` of the averaged answers.

    Example:

    >>> metrics = evaluate("cct_2_3x2_32.digits", "digits")
    >>> metrics["count"], metrics["top1"] > 0.98
    (360, True)
    """
    check_views(tta)
    engine = open_model(model)
    metadata = engine.metadata
    if not isinstance(data, Dataset):
        data = load_evaluation_data(
            data,
            split,
            image_size=metadata.image_size,
            channels=metadata.channels,
            crop=metadata.crop,
            interpolation=metadata.interpolation,
            trained_on=metadata.trained_on,
            data_dir=data_dir,
        )
    names = metadata.class_names
    if metadata.class_names_known and names != data.class_names:
        data = _with_classes_in_order(data, names)

    def compute(images):
        return engine.probabilities(_fit(images, metadata))

    _, metrics = measure(compute, data, split, batch_size)
    metrics["notes"] = list(data.notes)
    if tta is not None:
        _, averaged = measure(averaged_over_flip(compute), data, split, batch_size)
        kept = ("top1", "top1_ci95", "top5", "loss", "ece")
        metrics["tta"] = {"name": tta, **{name: averaged[name] for name in kept}}
    return metrics


def measure(
    compute: Callable[[np.ndarray], np.ndarray],
    data: Dataset,
    split: str,
    batch_size: int = 128,
) -> tuple[np.ndarray, dict]:
    """Measures a model on a split whose classes are in the order of its outputs.

    Args:
        compute: From a batch of raw images to their probabilities.
        data: The data.
        split: `"test"`, `"validation"` or `"train"`.
        batch_size: Images in a batch.

    Returns:
        The probabilities of all images of the split, and the metrics.
    """
    probabilities = np.concatenate(
        [compute(images) for images in data.batches(split, batch_size)]
    )
    labels = getattr(data, split).labels
    return probabilities, classification_metrics(
        labels, probabilities, data.class_names
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Mistake:
    """A wrongly classified image.

    Attributes:
        image: The image, a uint8 array.
        name: Its file, or its number in the split.
        split: `"test"`, `"validation"` or `"train"`.
        truth: Name of the class that its label says.
        prediction: Name of the class that the model predicts.
        confidence: Probability of that class.
    """

    image: np.ndarray
    name: str
    split: str
    truth: str
    prediction: str
    confidence: float


def find_mistakes(
    data: Dataset, split: str, probabilities: np.ndarray, count: int = 24
) -> list[Mistake]:
    """The wrongly classified images of which the model was most confident.

    Args:
        data: The data.
        split: `"test"`, `"validation"` or `"train"`.
        probabilities: Of all images of the split, as `measure` returns them.
        count: How many to return at most.

    Returns:
        The mistakes, the most confident first.
    """
    found = getattr(data, split)
    predictions, confidences = probabilities.argmax(1), probabilities.max(1)
    wrong = np.flatnonzero(predictions != found.labels)
    worst = wrong[np.argsort(-confidences[wrong], kind="stable")][:count]
    return [
        Mistake(
            found.images[int(i)],
            found.name_of(int(i)),
            split,
            data.class_names[found.labels[i]],
            data.class_names[predictions[i]],
            float(confidences[i]),
        )
        for i in worst
    ]


def _fit(images, metadata):
    """Images of data that were loaded for a model of another size."""
    if images.shape[1:3] == metadata.image_size:
        return images
    settings = (metadata.image_size, metadata.crop)
    return np.stack(
        [
            central_crop_resize(image, *settings, interpolation=metadata.interpolation)
            for image in images
        ]
    )


def _with_classes_in_order(data, names):
    """The data with their labels counted in the order of a model's classes."""
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
