"""A folder of image files, one folder for each class."""

import concurrent.futures
import os
import pathlib
import re
import warnings
from collections.abc import Callable
from collections.abc import Iterable

import numpy as np

from cct_keras.data.arrays import shorten
from cct_keras.data.raw import DataError
from cct_keras.data.raw import RawData
from cct_keras.data.raw import RawSplit

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
# Pillow would also run Ghostscript on an .eps that is called .jpg.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
    "testing": "test",
}
LAYOUT = "<folder>/<class>/*.jpg or <folder>/{train,val,test}/<class>/*.jpg"
GRAY_MODES = {"1", "L", "LA", "La", "I", "F"}
ORIENTATION = 0x0112
WHITE = (255, 255, 255, 255)


def read_folder(root: str | os.PathLike) -> RawData:
    """A data set from a folder with one folder of images for each class.

    Args:
        root: Folder of the form `root/<class>/**/*` or
            `root/{train,val,test}/<class>/**/*`. The files are only listed.
    """
    root = pathlib.Path(root)
    if not root.is_dir():
        raise DataError(f"{root}: no such folder")
    split_folders, ignored = _find_splits(root)
    # Files outside of class folders, of the train folder first.
    stray = [p for folder in split_folders.values() for p in _files(folder)]
    if root not in split_folders.values():
        stray += _files(root)
    found = {split: _list_classes(f) for split, f in split_folders.items()}
    names = tuple(sorted(n for n, paths in found["train"].items() if _images(paths)))
    _check_classes(split_folders["train"], names, _images(stray))
    splits, notes = {}, []
    for split, classes in found.items():
        images = {name: _images(paths) for name, paths in classes.items()}
        empty = [name for name in images if not images[name]]
        unknown = [name for name in images if images[name] and name not in names]
        if unknown:
            raise DataError(
                f"{split_folders[split]}: classes without training images: "
                f"{shorten(unknown)}"
            )
        if empty:
            notes.append(f"{split}: class folders without images: {shorten(empty)}")
        paths = [path for name in names for path in images.get(name, [])]
        counts = [len(images.get(name, [])) for name in names]
        if paths:
            labels = np.repeat(np.arange(len(names), dtype=np.int64), counts)
            splits[split] = RawSplit(paths, labels)
        else:
            notes.append(f"{split}: left out, its class folders hold no images")
    if ignored:
        notes.append(f"folders beside the splits were skipped: {shorten(ignored)}")
    listed = [
        p for classes in found.values() for paths in classes.values() for p in paths
    ]
    others = [path for path in (*listed, *stray) if not _is_image(path)]
    if _images(stray):
        notes.append(_count("images outside of class folders", _images(stray), root))
    if others:
        notes.append(_count("files that are not images", others, root))
    name = root.resolve().name
    return RawData(name=name, splits=splits, class_names=names, notes=notes)


def _count(what, paths, root):
    example = paths[0].relative_to(root)
    return f"{what} were skipped: {len(paths)}, such as {example}"


def _find_splits(root):
    """Folder of every split, and names of the folders that are no split."""
    folders = _folders(root)
    split_folders, others = {}, []
    for folder in folders:
        split = SPLIT_NAMES.get(folder.name.lower())
        if split is None:
            others.append(folder.name)
        elif split in split_folders:
            raise DataError(
                f"{root}: two folders for the {split} split: "
                f"{split_folders[split].name}, {folder.name}"
            )
        else:
            split_folders[split] = folder
    if not split_folders:
        return {"train": root}, []
    # Beside other folders 'train' can be a class, with cars and planes.
    if others and not ("train" in split_folders and _folders(split_folders["train"])):
        return {"train": root}, []
    if "train" not in split_folders:
        raise DataError(
            f"{root}: no train folder beside {shorten(split_folders.values())}; "
            f"expected {LAYOUT}"
        )
    order = [s for s in ("train", "validation", "test") if s in split_folders]
    return {split: split_folders[split] for split in order}, others


def _check_classes(folder, names, loose):
    if len(names) > 1:
        return
    if names:
        inner = folder / names[0]
        hint = f"; or is {inner} meant?" if len(_folders(inner)) > 1 else ""
        fault = f"one class only ({names[0]})"
    else:
        hint = ""
        fault = "images but no class folders" if loose else "no images"
    raise DataError(f"{folder}: {fault}; expected {LAYOUT}{hint}")


def _list_classes(folder):
    """All files of every class folder, in sorted order."""
    return {path.name: list(_walk(path)) for path in _folders(folder)}


def _walk(folder):
    for place, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(name for name in folders if _is_visible(name))
        for name in sorted(files):
            if _is_visible(name):
                yield pathlib.Path(place, name)


def _refuse(error):
    raise DataError(f"{error.filename}: {error.strerror}") from error


def _folders(folder):
    return [path for path in _entries(folder) if path.is_dir()]


def _files(folder):
    return [path for path in _entries(folder) if path.is_file()]


def _entries(folder):
    try:
        return sorted(path for path in folder.iterdir() if _is_visible(path.name))
    except OSError as error:
        _refuse(error)


def _is_visible(name):
    return name[0] != "." and name != "__MACOSX"


def _is_image(path):
    return path.suffix.lower() in SUFFIXES


def _images(paths):
    return [path for path in paths if _is_image(path)]


def list_images(folder: pathlib.Path) -> list[pathlib.Path]:
    """All image files below a folder, in sorted order."""
    return _images(_walk(folder))


# === Files ===


def read_image(
    path: str | os.PathLike,
    channels: int | None = 3,
    *,
    shrink: int | None = None,
) -> np.ndarray:
    """The pixels of an image file, upright, transparency over white.

    Args:
        path: A JPEG, PNG, WebP, BMP, GIF or TIFF file; of several frames the first.
        channels: 1 or 3; None for 1 of a gray image and 3 of any other.
        shrink: If the shorter side is greater, the image is reduced to this.

    Returns:
        A uint8 array `(height, width, channels)`.
    """
    if channels not in (None, 1, 3):
        raise ValueError(f"read_image: channels must be 1, 3 or None, got {channels}")
    if shrink is not None and shrink < 1:
        raise ValueError(f"read_image: shrink must be positive, got {shrink}")
    # Pillow's decoders raise almost anything for a broken file.
    try:
        with _open(path) as image:
            return _decode(image, channels, shrink)
    except Exception as error:
        raise DataError(f"{path}: {_reason(path, error)}") from error


def read_headers(
    paths: Iterable[str | os.PathLike],
) -> tuple[np.ndarray, np.ndarray, dict]:
    """Sizes and channels of image files, without decoding them.

    Args:
        paths: The files.

    Returns:
        sizes: Integer array `(n, 2)` of upright heights and widths.
        channels: Integer array `(n,)`: 1 for gray images, 3 otherwise.
        broken: Reason by path, for files that are no images. Their sizes and
            channels are 0.
    """
    paths = list(paths)
    found, broken = read_images(paths, _read_header)
    rows = np.array([row or (0, 0, 0) for row in found], np.int64).reshape(-1, 3)
    return rows[:, :2], rows[:, 2], broken


def read_images(
    paths: Iterable[str | os.PathLike], read: Callable
) -> tuple[list[np.ndarray | None], dict]:
    """Applies a function to files, over a pool of threads.

    Args:
        paths: The files.
        read: Function of a path that raises `DataError` for a broken file, such as
            `read_image`.

    Returns:
        results: What `read` returned, in order; None for broken files.
        broken: Reason by path.
    """
    paths, broken = list(paths), {}

    def attempt(path):
        try:
            return read(path)
        except DataError as error:
            broken[path] = str(error).removeprefix(f"{path}: ")
            return None

    with concurrent.futures.ThreadPoolExecutor() as pool:
        results = list(pool.map(attempt, paths))
    return results, {path: broken[path] for path in paths if path in broken}


def _open(path):
    from PIL import Image

    _silence_pillow()
    return Image.open(path, formats=FORMATS)


def _silence_pillow():
    # For the process and not within catch_warnings, which is not thread-safe.
    rule = ("ignore", None, Warning, re.compile(r"PIL\."), 0)
    if rule not in warnings.filters:
        warnings.filterwarnings("ignore", module=r"PIL\.")


def _reason(path, error):
    from PIL import Image
    from PIL import UnidentifiedImageError

    if isinstance(error, DataError):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, UnidentifiedImageError):
        empty = os.path.getsize(path) == 0
        return "empty file" if empty else f"not one of {', '.join(FORMATS)}"
    if isinstance(error, Image.DecompressionBombError):
        return "too many pixels, possibly a decompression bomb"
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


def _read_header(path):
    from PIL import Image

    try:
        with _open(path) as image:
            width, height = image.size
            # The method of PNG files would decode the image; TIFF sizes are upright.
            orientation = _orientation(image, Image.Image.getexif)
            if orientation >= 5 and image.format != "TIFF":
                width, height = height, width
            return height, width, 1 if _is_gray(image) else 3
    except Exception as error:
        raise DataError(f"{path}: {_reason(path, error)}") from error


def _orientation(image, getexif):
    # Corrupt EXIF data is no reason to refuse an image.
    try:
        value = getexif(image).get(ORIENTATION, 1)
    except Exception:
        return 1
    return value if value in range(1, 9) else 1


def _is_gray(image):
    if image.mode == "P":
        colors = np.reshape(image.getpalette("RGB"), (-1, 3))
        return bool((colors == colors[:, :1]).all())
    return image.mode in GRAY_MODES or image.mode.startswith("I;")


def _decode(image, channels, shrink):
    from PIL import Image

    width, height = image.size
    target = box = None
    if shrink is not None and min(width, height) > shrink:
        ratio = shrink / min(width, height)
        target = max(shrink, round(width * ratio)), max(shrink, round(height * ratio))
        # Of JPEG files this decodes a half, a quarter or an eighth.
        _, box = image.draft(None, target) or (None, None)
    image.load()
    orientation = _orientation(image, type(image).getexif)
    mode = "L" if (channels or (1 if _is_gray(image) else 3)) == 1 else "RGB"
    image = _convert(image, mode)
    if target is not None:
        image = image.resize(target, Image.Resampling.BICUBIC, box)
    pixels = np.asarray(_turn(image, orientation))
    return np.array(pixels if pixels.ndim == 3 else pixels[..., None])


def _convert(image, mode):
    from PIL import Image

    if image.mode.startswith("I;") or image.mode in ("I", "F"):
        image = _from_deep(image)
    elif image.has_transparency_data:
        canvas = Image.new("RGBA", image.size, WHITE)
        canvas.alpha_composite(image.convert("RGBA"))
        image = canvas.convert("RGB")
    elif image.mode == "P":
        image = image.convert("RGB")
    return image if image.mode == mode else image.convert(mode)


def _from_deep(image):
    """An 8-bit image from a gray one of 16 bits; Pillow itself would clip it."""
    from PIL import Image

    pixels = np.asarray(image)
    if image.mode == "F" or pixels.min() < 0 or pixels.max() > 65535:
        raise DataError("gray pixels of 32 bits; 8 or 16 bits are expected")
    # Older versions of Pillow read 16 bits as mode I.
    return Image.fromarray(np.rint(pixels / 257).astype(np.uint8))


def _turn(image, orientation):
    # ImageOps.exif_transpose fails on EXIF data that it cannot write back.
    from PIL import Image

    turn = Image.Transpose
    methods = {
        2: turn.FLIP_LEFT_RIGHT,
        3: turn.ROTATE_180,
        4: turn.FLIP_TOP_BOTTOM,
        5: turn.TRANSPOSE,
        6: turn.ROTATE_270,
        7: turn.TRANSVERSE,
        8: turn.ROTATE_90,
    }
    return image.transpose(methods[orientation]) if orientation > 1 else image
