"""The splits of a data set: what the source lacks is cut off its training images."""

import numpy as np

from cct_keras.data.fingerprint import digest_images
from cct_keras.data.fingerprint import fingerprint
from cct_keras.data.raw import RawData
from cct_keras.data.sizes import measure_images
from cct_keras.errors import DataError

SPLITS = ("train", "validation", "test")


def cut_missing_splits(
    raw: RawData, *, validation: float, test: float, seed: int, smallest: int = 0
) -> RawData:
    """Cuts the splits that a source lacks off its training images.

    Args:
        raw: The data set.
        validation: Share of the training images that become the validation split.
            The test split is cut off first.
        test: Share of the training images that become the test split.
        seed: Seed of the choice.
        smallest: A split that would have fewer images than this is not cut off; it
            stays empty.

    Returns:
        A data set with all three splits, with a note about each cut.

    Example:

    >>> from cct_keras.data.readers.digits import read_digits
    >>> data = cut_missing_splits(read_digits(), validation=0.1, test=0.2, seed=0)
    >>> {name: len(split) for name, split in data.splits.items()}
    {'train': 1293, 'test': 360, 'validation': 144}
    """
    splits, notes = dict(raw.splits), []
    for name, share in (("test", test), ("validation", validation)):
        if name in splits:
            continue
        if not 0 < share < 1:
            raise DataError(
                f"`{name}` must be a share between 0 and 1. Received: {name}={share!r}"
            )
        whole = splits["train"]
        chosen = stratified_choice(whole.labels, share, seed)
        if chosen.sum() < smallest:
            splits[name] = whole.select(np.zeros(len(whole), bool))
            if name == "test":
                notes.append(
                    f"no test split, and {len(whole):,} images are too few to cut one "
                    "off"
                )
            continue
        if not chosen.any():
            raise DataError(
                f"{raw.name}: {len(whole)} training images are too few to cut a "
                f"{name} split of {share:.0%} off"
            )
        splits[name], splits["train"] = whole.select(chosen), whole.select(~chosen)
        notes.append(
            f"no {name} split: {chosen.sum():,} of {len(whole):,} training images "
            f"were cut off for it, class by class (seed {seed})"
        )
    return raw.with_splits(splits, notes)


def check_split(split: str) -> None:
    """Refuses what is no name of a split.

    Args:
        split: `"train"`, `"validation"` or `"test"`.
    """
    if split not in SPLITS:
        raise DataError(
            f"`split` must be one of: {', '.join(SPLITS)}. Received: split={split!r}"
        )


def select_split(raw: RawData, split: str, trained_on: dict | None = None) -> RawData:
    """Selects the split that a model is to be measured on.

    Args:
        raw: The data set.
        split: `"train"`, `"validation"` or `"test"`.
        trained_on: The `fingerprint` of the data that the model was trained on, and
            how their splits were `cut` off.

    Returns:
        A data set with this split alone. Where the source lacks splits, and the model
        was trained on this source, the splits are cut as in training. Otherwise, if
        the source lacks this split, it is all images.

    Example:

    >>> from cct_keras.data.readers.digits import read_digits
    >>> list(select_split(read_digits(), "validation").splits)
    ['validation']
    """
    check_split(split)
    cut = None
    if not set(SPLITS) <= set(raw.splits):
        cut = _cut_as_in_training(raw, trained_on)
        if cut is not None and len(cut.splits[split]):
            return raw.with_splits({split: cut.splits[split]})
    if split in raw.splits:
        return raw.with_splits({split: raw.splits[split]})
    whole = raw.splits["train"]
    note = f"no {split} split: all {len(whole):,} images are measured"
    if cut is not None:
        note += ", with those that the model was trained on"
    return raw.with_splits({split: whole}, [note])


def _cut_as_in_training(raw, trained_on):
    """Cuts the splits as in training; None if the model was trained on other data."""
    if trained_on is None:
        return None
    try:
        cut, _ = measure_images(cut_missing_splits(raw, **trained_on["cut"]))
    except DataError:
        return None
    same = fingerprint(cut, digest_images(cut)) == trained_on["fingerprint"]
    return cut if same else None


def stratified_choice(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Chooses the same share of every class.

    scikit-learn's stratified splits refuse a class of one image, and more classes
    than chosen images. Here the only image of a class is never chosen, and small
    classes take turns.

    Args:
        labels: Classes of the images.
        share: Share of the images to choose.
        seed: Seed of the choice.

    Returns:
        Whether each image is chosen.

    Example:

    >>> chosen = stratified_choice(np.array([0] * 8 + [1] * 4 + [2]), 0.25, seed=0)
    >>> np.bincount(np.array([0] * 8 + [1] * 4 + [2])[chosen], minlength=3).tolist()
    [2, 1, 0]
    """
    position = np.full(len(labels), np.inf)
    generator = np.random.default_rng(seed)
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        if len(members) > 1:
            position[members] = (np.arange(len(members)) + 0.5) / len(members)
    # Small classes have their images at the same positions, so that only a random
    # order among equals lets them take turns.
    order = generator.permutation(len(labels))
    order = order[np.argsort(position[order], kind="stable")]
    chosen = np.zeros(len(labels), bool)
    chosen[order[: round(share * len(labels))]] = True
    return chosen & np.isfinite(position)
