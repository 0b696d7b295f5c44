"""Arrays in memory or in an .npz file."""

import dataclasses
import os
import pathlib
import zipfile
import zlib

import numpy as np

from cct_keras.data.raw import DataError
from cct_keras.data.raw import RawData
from cct_keras.data.raw import RawSplit

# The usual names of a split's images and labels, the best first.
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
SPLITS_BY_COUNT = {
    1: ("train",),
    2: ("train", "test"),
    3: ("train", "validation", "test"),
}
# Resizing and float16 leave values a little outside 0..1.
TOLERANCE = 1e-3
DARK = 32
CHUNK = 1024
SHOWN = 5
# RuntimeError is what zipfile raises for encrypted members.
MEMBER_ERRORS = (
    ValueError,
    OSError,
    EOFError,
    MemoryError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


def read_arrays(source, name: str = "arrays") -> RawData:
    """A data set from arrays in memory.

    Args:
        source: `(x, y)`, `((x_train, y_train), (x_test, y_test))`, three pairs for
            train, validation and test, or a dict with the keys `x_train`, `y_train`
            and optionally `x_val`, `y_val`, `x_test`, `y_test`, `class_names`.
            Images are raw pixels: integers or floats in 0..255, floats in 0..1,
            bool or uint16. Labels are integers, strings or one-hot rows.
        name: Name of the set.
    """
    if isinstance(source, dict):
        where = f"{name} (keys found: {shorten(source) or 'none'})"
        pairs = _find_pairs(source, where=where)
        names = source.get("class_names")
    else:
        where, names = name, None
        pairs = _split_pairs(source, where=name)
    return make_raw(pairs, name=name, where=where, class_names=names)


def read_npz(path: str | os.PathLike) -> RawData:
    """A data set from an .npz file.

    Args:
        path: File with the keys of `read_arrays`, or `x` and `y`, or `images` and
            `labels`, or MedMNIST's `train_images`, `train_labels` and so on.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path}: not a complete .npz file; keys found: none")
    try:
        with np.load(path, allow_pickle=False) as file:
            where = f"{path} (keys found: {', '.join(file.files) or 'none'})"
            members = _Members(file, where)
            pairs = _find_pairs(members, where=where)
            names = None
            if "class_names" in members:
                names = members["class_names"]
    except zipfile.BadZipFile as error:
        raise DataError(f"{path}: not a complete .npz file: {error}") from error
    return make_raw(pairs, name=path.stem, where=where, class_names=names)


class _Members:
    """The arrays of an .npz file; one that cannot be read is named."""

    def __init__(self, file, where):
        self.file = file
        self.where = where

    def __contains__(self, key):
        return key in self.file.files

    def __getitem__(self, key):
        try:
            array = self.file[key]
        except MEMBER_ERRORS as error:
            if "allow_pickle" in str(error):
                reason = "an object array; numbers or strings are expected"
            else:
                reason = "broken or truncated"
            raise DataError(f"{self.where}: {key} is {reason}") from error
        if not isinstance(array, np.ndarray):
            raise DataError(f"{self.where}: {key} is not an array")
        return array


def _find_pairs(source, *, where):
    pairs = {}
    for split, candidates in KEYS.items():
        for x, y in candidates:
            if (x in source) != (y in source):
                there, missing = (x, y) if x in source else (y, x)
                raise DataError(f"{where}: {there} without {missing}")
            if x in source:
                pairs[split] = source[x], source[y]
                break
    if "train" not in pairs:
        raise DataError(f"{where}: no training images; x_train and y_train expected")
    return pairs


def _split_pairs(source, *, where):
    if isinstance(source, (tuple, list)):
        if len(source) in SPLITS_BY_COUNT and all(_is_pair(item) for item in source):
            return dict(zip(SPLITS_BY_COUNT[len(source)], source, strict=True))
        if len(source) == 2:
            return {"train": tuple(source)}
    raise DataError(
        f"{where}: expected (x, y), two or three such pairs, or a dict with x_train "
        f"and y_train, got {_describe(source)}"
    )


def _is_pair(item):
    # Two images or two labels in a list are no pair: their ranks are equal.
    if not isinstance(item, (tuple, list)) or len(item) != 2:
        return False
    try:
        return np.ndim(item[0]) > np.ndim(item[1])
    except ValueError:
        return False


def _describe(source):
    kind = type(source).__name__
    return f"a {kind} of {len(source)}" if isinstance(source, (tuple, list)) else kind


def make_raw(
    pairs: dict[str, tuple],
    *,
    name: str,
    where: str,
    class_names=None,
) -> RawData:
    """Checks images and labels and brings them to the form of `RawSplit`.

    Args:
        pairs: `(images, labels)` of every split, as they were found.
        name: Name of the set.
        where: What an error names as its source.
        class_names: Names of the classes; the labels themselves without.
    """
    images, labels, notes = {}, {}, []
    for split, (x, y) in pairs.items():
        here = f"{where}: {split}"
        images[split] = _as_images(x, where=here)
        labels[split] = _as_labels(y, where=here)
        if len(images[split]) != len(labels[split]):
            raise DataError(
                f"{here}: {len(images[split])} images but {len(labels[split])} labels"
            )
    scale = _find_scale(images["train"], where=f"{where}: train", notes=notes)
    pixels = {
        split: _as_pixels(x, scale, split=split, where=where, notes=notes)
        for split, x in images.items()
    }
    channels = {split: x.shape[-1] for split, x in pixels.items()}
    if len(set(channels.values())) > 1:
        raise DataError(f"{where}: the channels of the splits differ: {channels}")
    encoded, names = _encode(labels, class_names, where=where, notes=notes)
    splits = {split: RawSplit(pixels[split], encoded[split]) for split in pairs}
    return RawData(name=name, splits=splits, class_names=names, notes=notes)


# === Pixels ===


@dataclasses.dataclass(frozen=True)
class _Scale:
    factor: float
    top: int


def _as_images(x, *, where):
    """An array of shape (n, height, width, channels), of any numeric type."""
    try:
        x = np.asarray(x)
    except ValueError as error:
        raise DataError(f"{where}: the images differ in size") from error
    if x.dtype.kind not in "buif":
        raise DataError(f"{where}: images of type {x.dtype}; raw pixels are expected")
    if x.ndim == 3:
        x = x[..., None]
    if x.ndim != 4:
        raise DataError(
            f"{where}: images of shape {x.shape}; (n, height, width) or "
            "(n, height, width, channels) is expected"
        )
    if not x.size:
        raise DataError(f"{where}: no images; the array has shape {x.shape}")
    if x.shape[1] in (1, 3) and x.shape[3] not in (1, 3, 4):
        x = np.moveaxis(x, 1, 3)
    if x.shape[3] not in (1, 3, 4):
        raise DataError(
            f"{where}: {x.shape[3]} channels; 1 (gray), 3 (RGB) or 4 (RGBA) expected"
        )
    return x


def _find_scale(x, *, where, notes):
    low, high = _pixel_range(x, where=where)
    if x.dtype == np.bool_ or (x.dtype.kind == "f" and high <= 1 + TOLERANCE):
        scale = _Scale(255, 1)
    elif x.dtype == np.uint16 and high > 255:
        scale = _Scale(255 / 65535, 65535)
        notes.append("16-bit pixels were scaled from 0..65535 to 0..255")
    else:
        scale = _Scale(1, 255)
    _check_range(low, high, scale, where=where)
    return scale


def _pixel_range(x, *, where):
    low, high = float(x.min()), float(x.max())
    if not np.isfinite([low, high]).all():
        raise DataError(f"{where}: the images contain NaN or infinity")
    return low, high


def _check_range(low, high, scale, *, where):
    if low < -TOLERANCE or high > scale.top + TOLERANCE:
        raise DataError(
            f"{where}: pixels from {low:g} to {high:g}, expected raw ones in "
            f"0..{scale.top}; normalisation is done for you"
        )


def _as_pixels(x, scale, *, split, where, notes):
    where = f"{where}: {split}"
    low, high = _pixel_range(x, where=where)
    _check_range(low, high, scale, where=where)
    if x.dtype.kind in "bf" and scale.top > 1 and 0 < high <= 1 + TOLERANCE:
        raise DataError(
            f"{where}: pixels from {low:g} to {high:g}, but those of the training "
            f"images lie in 0..{scale.top}; one scale for all splits is expected"
        )
    if x.dtype == np.uint8 and scale.top > 255:
        raise DataError(
            f"{where}: 8-bit pixels, but those of the training images lie in "
            f"0..{scale.top}; one scale for all splits is expected"
        )
    if high * scale.factor < DARK:
        notes.append(
            f"the {split} images are dark: no pixel exceeds "
            f"{high * scale.factor:.0f} of 255"
        )
    if x.dtype == np.uint8 and scale.factor == 1:
        pixels = np.ascontiguousarray(x)
    else:
        pixels = np.empty(x.shape, np.uint8)
        # In chunks, so that the floats of a large set never exist at once.
        for start in range(0, len(x), CHUNK):
            part = x[start : start + CHUNK] * np.float32(scale.factor)
            pixels[start : start + CHUNK] = np.clip(np.rint(part), 0, 255)
    if pixels.shape[-1] == 4:
        notes.append(f"the transparent pixels of {split} were laid over white")
        return over_white(pixels)
    return pixels


def over_white(pixels: np.ndarray) -> np.ndarray:
    """RGB images from a uint8 array of RGBA images."""
    result = np.empty((*pixels.shape[:3], 3), np.uint8)
    for start in range(0, len(pixels), CHUNK):
        part = pixels[start : start + CHUNK].astype(np.float32)
        alpha = part[..., 3:] / 255
        result[start : start + CHUNK] = np.rint(
            part[..., :3] * alpha + 255 * (1 - alpha)
        )
    return result


# === Labels ===


def _as_labels(y, *, where):
    """A vector of int64, bool or str."""
    try:
        y = np.asarray(y)
    except ValueError as error:
        raise DataError(f"{where}: the labels differ in length") from error
    if not y.size:
        raise DataError(f"{where}: no labels; the array has shape {y.shape}")
    if y.ndim == 2 and y.shape[1] > 1:
        y = _from_one_hot(y, where=where)
    elif y.ndim == 2:
        y = y[:, 0]
    if y.ndim != 1:
        raise DataError(f"{where}: labels of shape {y.shape}; (n,) is expected")
    if y.dtype.kind in "SO":
        y = _as_text(y, where=where)
    if y.dtype.kind == "f" and not (np.isfinite(y) & (y == np.rint(y))).all():
        raise DataError(f"{where}: the labels are not whole numbers")
    if y.dtype.kind not in "biufU":
        raise DataError(
            f"{where}: labels of type {y.dtype}; integers or strings are expected"
        )
    return y.astype(np.int64) if y.dtype.kind in "iuf" else y


def _from_one_hot(y, *, where):
    if y.dtype.kind not in "biuf" or not (
        ((y == 0) | (y == 1)).all() and (y.sum(axis=1) == 1).all()
    ):
        raise DataError(f"{where}: labels of shape {y.shape} that are not one-hot")
    return y.argmax(axis=1)


def _as_text(y, *, where):
    if not all(isinstance(label, (str, bytes)) for label in y):
        raise DataError(
            f"{where}: labels of mixed types; integers or strings are expected"
        )
    try:
        texts = [v.decode() if isinstance(v, bytes) else str(v) for v in y]
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: the labels are not UTF-8 text") from error
    return np.array(texts)


def _encode(labels, class_names, *, where, notes):
    """Labels as int64 in 0..k-1, and the names of the k classes."""
    if len({y.dtype.kind for y in labels.values()}) > 1:
        kinds = {split: str(y.dtype) for split, y in labels.items()}
        raise DataError(f"{where}: the splits' labels differ in type: {kinds}")
    values = np.unique(labels["train"])
    if len(values) < 2:
        raise DataError(f"{where}: one class only ({values[0]}); two are needed")
    for split, y in labels.items():
        unknown = np.setdiff1d(y, values)
        if len(unknown):
            raise DataError(
                f"{where}: {split} has labels that train does not have: "
                f"{shorten(unknown)}"
            )
    if class_names is None:
        names = tuple(str(value) for value in values)
    else:
        values, names = _match_names(values, class_names, where=where, notes=notes)
    encoded = {
        split: np.searchsorted(values, y).astype(np.int64)
        for split, y in labels.items()
    }
    return encoded, names


def _match_names(values, class_names, *, where, notes):
    names = _as_text(np.asarray(class_names).reshape(-1), where=f"{where}: class_names")
    names = tuple(str(name) for name in names)
    if len(values) == len(names):
        # Labels that are names have their order from here, whatever the file's.
        return values, tuple(values.tolist()) if values.dtype.kind == "U" else names
    positions = np.arange(len(names))
    if values.dtype.kind == "i" and np.isin(values, positions).all():
        missing = [names[i] for i in np.setdiff1d(positions, values)]
        notes.append(f"classes without training images: {shorten(missing)}")
        return positions, names
    raise DataError(
        f"{where}: {len(names)} class names but {len(values)} classes: "
        f"{shorten(values)}"
    )


def shorten(items) -> str:
    """The first few of many items, for a message."""
    texts = [str(item) for item in items]
    rest = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return ", ".join(texts[:SHOWN]) + rest
