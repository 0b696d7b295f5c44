"""Pairs of an array of images and an array of labels, one pair a split."""

from collections.abc import Mapping

from cct_keras.data.raw import RawData
from cct_keras.data.raw import RawSplit
from cct_keras.data.readers.labels import as_labels
from cct_keras.data.readers.labels import encode_labels
from cct_keras.data.readers.pixels import DARK
from cct_keras.data.readers.pixels import as_images
from cct_keras.data.readers.pixels import as_pixels
from cct_keras.data.readers.pixels import find_scale
from cct_keras.data.readers.pixels import over_white
from cct_keras.errors import DataError

# The usual names of a split's images and labels; the first that is found counts.
KEYS = {
    "train": (
        ("x_train", "y_train"),
        ("train_images", "train_labels"),
        ("x", "y"),
        ("images", "labels"),
    ),
    "validation": (
        ("x_val", "y_val"),
        ("x_valid", "y_valid"),
        ("x_validation", "y_validation"),
        ("val_images", "val_labels"),
    ),
    "test": (("x_test", "y_test"), ("test_images", "test_labels")),
}


def find_pairs(source: Mapping, *, where: str) -> dict[str, tuple]:
    """Finds the images and labels of every split by their usual names.

    Args:
        source: Arrays by name.
        where: What an error names as its source.

    Example:

    >>> find_pairs({"x": [[[0]]], "y": [1]}, where="mine")
    {'train': ([[[0]]], [1])}
    """
    pairs = {}
    for split, candidates in KEYS.items():
        for x, y in candidates:
            if (x in source) != (y in source):
                present, missing = (x, y) if x in source else (y, x)
                raise DataError(f"{where}: {present} without {missing}")
            if x in source:
                pairs[split] = source[x], source[y]
                break
    if "train" not in pairs:
        raise DataError(f"{where}: no training images; x_train and y_train expected")
    return pairs


def data_from_pairs(
    pairs: dict[str, tuple], *, name: str, where: str, class_names=None
) -> RawData:
    """Checks images and labels and brings them to the form of `RawSplit`.

    Args:
        pairs: `(images, labels)` of every split, as they were found.
        name: Name of the data set.
        where: What an error names as its source.
        class_names: Names of the classes; by default the labels themselves.

    Example:

    >>> pairs = {"train": ([[[0]], [[255]]], ["black", "white"])}
    >>> data_from_pairs(pairs, name="mine", where="mine").class_names
    ('black', 'white')
    """
    images, labels = {}, {}
    for split, (x, y) in pairs.items():
        here = f"{where}: {split}"
        images[split] = as_images(x, where=here)
        labels[split] = as_labels(y, where=here)
        if len(images[split]) != len(labels[split]):
            raise DataError(
                f"{here}: {len(images[split])} images but {len(labels[split])} labels"
            )
    images, notes = _scale_images(images, where=where)
    channels = {split: x.shape[-1] for split, x in images.items()}
    if len(set(channels.values())) > 1:
        raise DataError(f"{where}: the channels of the splits differ: {channels}")
    labels, names, more_notes = encode_labels(labels, class_names, where=where)
    return RawData(
        name=name,
        splits={split: RawSplit(images[split], labels[split]) for split in pairs},
        class_names=names,
        notes=(*notes, *more_notes),
    )


def _scale_images(images, *, where):
    """Brings the pixels of all splits to 0..255 by the scale of the training images."""
    notes, scaled = [], {}
    scale = find_scale(images["train"], where=f"{where}: train")
    if scale.highest > 255:
        notes.append("16-bit pixels were scaled from 0..65535 to 0..255")
    for split, x in images.items():
        pixels, brightest = as_pixels(x, scale, where=f"{where}: {split}")
        if brightest < DARK:
            notes.append(
                f"the {split} images are dark: no pixel exceeds {brightest:.0f} of 255"
            )
        if pixels.shape[-1] == 4:
            notes.append(f"the transparent pixels of {split} were laid over white")
            pixels = over_white(pixels)
        scaled[split] = pixels
    return scaled, notes
