"""The splits of a data set: what the source lacks is cut off its training images."""

import numpy as np

from cct_keras.data.fingerprint import digest_images
from cct_keras.data.fingerprint import fingerprint
from cct_keras.data.raw import RawData
from cct_keras.data.raw import concatenate
from cct_keras.data.sizes import measure_images
from cct_keras.errors import DataError

SPLITS = ("train", "validation", "test")


def cut_missing_splits(
    raw: RawData,
    *,
    validation: float,
    test: float,
    seed: int,
    smallest: int = 0,
    folds: int | None = None,
    fold: int | None = None,
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
        folds: For cross-validation: into how many test splits the images are divided.
            All splits are then those of `cut_fold`.
        fold: For cross-validation: which of them is the test split, from 1.

    Returns:
        A data set with all three splits, with a note about each cut.

    Example:

    >>> from cct_keras.data.readers.digits import read_digits
    >>> data = cut_missing_splits(read_digits(), validation=0.1, test=0.2, seed=0)
    >>> {name: len(split) for name, split in data.splits.items()}
    {'train': 1293, 'test': 360, 'validation': 144}
    """
    if folds is not None:
        pool = pool_for_folds(raw)
        return cut_fold(pool, folds, fold, validation=validation, seed=seed)
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
            f"were cut off for it, class by class (split seed {seed})"
        )
    return raw.with_splits(splits, notes)


# === Cross-validation ===


def pool_for_folds(raw: RawData) -> RawData:
    """Brings the images that cross-validation tests on together.

    Args:
        raw: The data set, as it was read.

    Returns:
        A data set whose one split, `"train"`, has all images but those of a test split
        that the source has of its own, which no fold may see. A note tells of it.
    """
    parts = [raw.splits[x] for x in ("train", "validation") if x in raw.splits]
    pool = raw.with_splits({"train": concatenate(parts)})
    if "test" not in raw.splits:
        return pool
    return pool.with_notes(
        [
            f"{raw.name} has a test split of its own: its "
            f"{len(raw.splits['test']):,} images are left out, and the folds test on "
            f"the other {len(pool.splits['train']):,}"
        ]
    )


def cut_fold(
    pool: RawData, folds: int, fold: int, *, validation: float, seed: int
) -> RawData:
    """Cuts the splits of one fold of a cross-validation.

    Args:
        pool: What `pool_for_folds` returned.
        folds: Number of folds. Each image is in the test split of exactly one of them.
        fold: Number of the fold, from 1.
        validation: Share of the other images that become the validation split.
        seed: Seed of the choice.

    Returns:
        A data set with all three splits, with a note about the cut.

    Example:

    >>> from cct_keras.data.readers.digits import read_digits
    >>> data = cut_fold(pool_for_folds(read_digits()), 5, 1, validation=0.1, seed=0)
    >>> {name: len(split) for name, split in data.splits.items()}
    {'train': 1034, 'validation': 115, 'test': 288}
    """
    masks = fold_masks(pool, folds, fold, validation=validation, seed=seed)
    whole = pool.splits["train"]
    return pool.with_splits(
        {name: whole.select(mask) for name, mask in masks.items()},
        [fold_note(masks, folds, fold, seed)],
    )


def fold_masks(
    pool: RawData, folds: int, fold: int, *, validation: float, seed: int
) -> dict[str, np.ndarray]:
    """Which images are in which split of one fold; see `cut_fold`.

    Returns:
        By the name of the split, one bool for each image of the pool.
    """
    labels = pool.splits["train"].labels
    check_folds(pool, folds)
    test = deal_folds(labels, folds, seed) == fold - 1
    rest = np.flatnonzero(~test)
    chosen = stratified_choice(labels[rest], validation, seed)
    if not chosen.any():
        raise DataError(
            f"{pool.name}: {len(rest)} images are too few to cut a validation split of "
            f"{validation:.0%} off"
        )
    held_out = np.zeros(len(labels), bool)
    held_out[rest[chosen]] = True
    return {"train": ~test & ~held_out, "validation": held_out, "test": test}


def fold_note(masks: dict, folds: int, fold: int, seed: int) -> str:
    """What a user should know of one fold."""
    test, whole = masks["test"].sum(), len(masks["test"])
    return (
        f"fold {fold} of {folds}: {test:,} of {whole:,} images are tested, class by "
        "class, every image in exactly one fold; "
        f"{masks['validation'].sum():,} others validate (split seed {seed})"
    )


def check_folds(pool: RawData, folds: int) -> None:
    """Refuses folds that would not all have an image of every class."""
    counts = np.bincount(pool.splits["train"].labels, minlength=len(pool.class_names))
    smallest = int(counts.argmin())
    if not 2 <= folds <= counts[smallest]:
        raise DataError(
            "`folds` must be from 2 to the number of images of the smallest class, "
            f"{counts[smallest]} of {pool.class_names[smallest]!r} in {pool.name}. "
            f"Received: folds={folds}"
        )


def deal_folds(labels: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Deals images out to folds, class by class, so that the folds are even.

    scikit-learn's `StratifiedKFold` warns of small classes, and has no answer for an
    image that is alone in its class: without it nothing would be known of the class.

    Args:
        labels: Classes of the images.
        folds: Number of folds.
        seed: Seed of the order.

    Returns:
        The fold of each image, from 0; -1 for those that are alone in their class.

    Example:

    >>> deal_folds(np.array([0, 1, 0]), 5, seed=0).tolist()
    [0, -1, 1]
    """
    generator = np.random.default_rng(seed)
    fold = np.full(len(labels), -1)
    dealt = 0
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        if len(members) > 1:
            # Dealt on where the class before ended, so that the folds are even.
            fold[members] = (dealt + np.arange(len(members))) % folds
            dealt += len(members)
    return fold


# === Evaluation ===


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
        was trained on this source, the splits are cut as in training; and so are those
        of a fold of a cross-validation, whatever the source has. Otherwise, if the
        source lacks this split, it is all images.

    Example:

    >>> from cct_keras.data.readers.digits import read_digits
    >>> list(select_split(read_digits(), "validation").splits)
    ['validation']
    """
    check_split(split)
    cut = None
    folds = trained_on is not None and trained_on["cut"].get("folds")
    if folds or not set(SPLITS) <= set(raw.splits):
        cut = _cut_as_in_training(raw, trained_on)
        if cut is not None and len(cut.splits[split]):
            notes = []
            if folds and split in raw.splits:
                notes.append(
                    f"the {split} split is that of fold {trained_on['cut']['fold']} "
                    f"of {folds} in which the model was trained, not that of "
                    f"{raw.name}"
                )
            return raw.with_splits({split: cut.splits[split]}, notes)
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
