"""What a user should know of a data set before training on it."""

import numpy as np

from cct_keras.data.known import CIFAR_NAMES
from cct_keras.data.raw import RawData


def inspect(
    raw: RawData, sizes: np.ndarray, digests: dict[str, list[bytes]]
) -> list[str]:
    """Looks for what makes accuracies differ from what one would expect.

    Args:
        raw: A data set with all three splits.
        sizes: Heights and widths of all images.
        digests: Hashes of all images, by split.

    Returns:
        Notes, one line each.
    """
    return [*_note_jpeg_cifar(raw, sizes), *_note_duplicates(digests)]


def _note_jpeg_cifar(raw, sizes):
    """Recognizes CIFAR as JPEG files, on which published accuracies do not hold."""
    split = raw.splits["train"]
    if not split.has_files or not (sizes == 32).all():
        return []
    if not all(path.suffix.lower() in (".jpg", ".jpeg") for path in split.images):
        return []
    return [
        f"this is {name.upper().replace('CIFAR', 'CIFAR-')} (JPEG): compression took "
        "some detail away, expect 1 to 3 points less than published accuracies"
        for name, words in CIFAR_NAMES.items()
        if sorted(raw.class_names) == sorted(words.split())
    ]


def _note_duplicates(digests):
    notes = []
    for split, other in (
        ("test", "train"),
        ("validation", "train"),
        ("test", "validation"),
    ):
        known = set(digests[other])
        count = sum(digest in known for digest in digests[split])
        if count:
            notes.append(
                f"{count:,} of {len(digests[split]):,} images of {split} are also in "
                f"{other}: its accuracy will look better than it is"
            )
    return notes
