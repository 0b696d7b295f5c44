"""Data sets known by name: rows of plain data, free of heavy imports."""

import re
from typing import NamedTuple


class KnownDataset(NamedTuple):
    """What is known of a data set before its images are read.

    Attributes:
        num_classes: Number of classes.
        mean: Mean of each channel, for pixels scaled to 0..1.
        std: Standard deviation of each channel, for pixels scaled to 0..1.
        crop: Share of an image that evaluation keeps.
        image_size: Side of the images in training; `None` for their own size.
        splits: Which split of tensorflow-datasets to read as `"train"`,
            `"validation"` and `"test"`; `None` for the splits of these names.
    """

    num_classes: int
    mean: tuple | None = None
    std: tuple | None = None
    crop: float = 1.0
    image_size: int | None = None
    splits: dict | None = None


DATASETS = {
    "digits": KnownDataset(10, image_size=16),
    "mnist": KnownDataset(10, (0.1307,), (0.3081,)),
    "fashion_mnist": KnownDataset(10, (0.2860,), (0.3530,)),
    "cifar10": KnownDataset(10, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": KnownDataset(100, (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "oxford_flowers102": KnownDataset(
        102, (0.4353, 0.3773, 0.2872), (0.2966, 0.2455, 0.2698)
    ),
    "imagenet2012": KnownDataset(
        1000,
        (0.485, 0.456, 0.406),
        (0.229, 0.224, 0.225),
        crop=0.9,
        # The labels of its test images were never published.
        splits={"train": "train", "test": "validation"},
    ),
}

# tensorflow-datasets has these names only after it downloaded the images.
CIFAR_NAMES = {
    "cifar10": "airplane automobile bird cat deer dog frog horse ship truck",
    "cifar100": """
        apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy
        bridge bus butterfly camel can castle caterpillar cattle chair chimpanzee
        clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
        flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower
        leopard lion lizard lobster man maple_tree motorcycle mountain mouse
        mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree
        plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea
        seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
        sunflower sweet_pepper table tank telephone television tiger tractor train
        trout tulip turtle wardrobe whale willow_tree wolf woman worm
    """,
}
# Asking tensorflow-datasets for these would take seconds.
CLASS_NAMES = {
    **CIFAR_NAMES,
    **dict.fromkeys(("digits", "mnist"), "0 1 2 3 4 5 6 7 8 9"),
}


def find_known(name: str) -> KnownDataset | None:
    """Returns the row of a data set, or `None` if it has no row.

    Args:
        name: Name in tensorflow-datasets, with or without configuration and version.

    Example:

    >>> find_known("cifar10:3.0.2").num_classes
    10
    """
    return DATASETS.get(re.split("[/:]", name)[0])


def known_class_names(name: str) -> tuple[str, ...]:
    """Returns the names of the classes of a data set, in the order of its labels.

    Args:
        name: A key of `DATASETS`.

    Example:

    >>> known_class_names("cifar10")[:2]
    ('airplane', 'automobile')
    """
    if name in CLASS_NAMES:
        return tuple(CLASS_NAMES[name].split())
    import tensorflow_datasets as tfds

    return tuple(tfds.builder(name).info.features["label"].names)
