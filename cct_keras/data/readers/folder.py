"""A folder of image files, one folder for each class."""

import itertools
import os
import pathlib

import numpy as np

from cct_keras.data.raw import RawData
from cct_keras.data.raw import RawSplit
from cct_keras.data.readers.messages import shorten
from cct_keras.errors import DataError
from cct_keras.runtime.listing import is_image
from cct_keras.runtime.listing import is_visible
from cct_keras.runtime.listing import refuse_folder
from cct_keras.runtime.listing import walk_files

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


def is_folder(source) -> bool:
    """Whether a source is a folder."""
    return isinstance(source, pathlib.Path) and source.is_dir()


def read_folder(root: str | os.PathLike) -> RawData:
    """Lists a data set in a folder that has one folder of images for each class.

    Args:
        root: Folder of the form `root/<class>/**/*` or
            `root/{train,val,test}/<class>/**/*`. The files are only listed; broken
            files are found later.

    Example:

    >>> read_folder("photos").class_names  # Needs the files.  # doctest: +SKIP
    ('cat', 'dog')
    """
    root = pathlib.Path(root)
    if not root.is_dir():
        raise DataError(f"{root}: no such folder")
    split_folders, ignored = _find_splits(root)
    files = {split: _list_classes(f) for split, f in split_folders.items()}
    loose = _files_outside_of_classes(root, split_folders.values())
    names = tuple(sorted(n for n, paths in files["train"].items() if _images(paths)))
    _check_classes(split_folders["train"], names, _images(loose))
    splits, notes = {}, []
    for split, classes in files.items():
        images = {name: _images(paths) for name, paths in classes.items()}
        _check_trained_on(split_folders[split], images, names)
        empty = [name for name in images if not images[name]]
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
    in_classes = itertools.chain(*(c.values() for c in files.values()))
    notes += _note_skipped(root, [*itertools.chain(*in_classes), *loose], loose)
    return RawData(
        name=root.resolve().name, splits=splits, class_names=names, notes=tuple(notes)
    )


def _files_outside_of_classes(root, split_folders):
    """Lists files beside the class folders, those of the train folder first."""
    folders = [*split_folders]
    if root not in folders:
        folders.append(root)
    return [path for folder in folders for path in _files(folder)]


def _note_skipped(root, files, loose):
    skipped = {
        "images outside of class folders": _images(loose),
        "files that are not images": [path for path in files if not is_image(path)],
    }
    return [
        f"{what} were skipped: {len(paths)}, such as {paths[0].relative_to(root)}"
        for what, paths in skipped.items()
        if paths
    ]


def _find_splits(root):
    """Finds the folder of every split, and the names of all other folders."""
    split_folders, others = {}, []
    for folder in _folders(root):
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
    # Beside folders of cars and planes, 'train' is a class and not a split.
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


def _check_trained_on(folder, images, names):
    unknown = [name for name in images if images[name] and name not in names]
    if unknown:
        raise DataError(
            f"{folder}: classes without training images: {shorten(unknown)}"
        )


def _list_classes(folder):
    """Lists all files of every class folder, in sorted order."""
    return {path.name: list(walk_files(path)) for path in _folders(folder)}


def _folders(folder):
    return [path for path in _entries(folder) if path.is_dir()]


def _files(folder):
    return [path for path in _entries(folder) if path.is_file()]


def _entries(folder):
    try:
        return sorted(path for path in folder.iterdir() if is_visible(path.name))
    except OSError as error:
        refuse_folder(error)


def _images(paths):
    return [path for path in paths if is_image(path)]
