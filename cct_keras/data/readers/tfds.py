"""Data sets of TensorFlow Datasets, by their names."""

import contextlib
import difflib
import os
import pathlib
import re
import shutil
import tempfile

import numpy as np

from cct_keras.cache import cache_folder
from cct_keras.data.known import find_known
from cct_keras.data.raw import RawData
from cct_keras.data.raw import RawSplit
from cct_keras.data.readers.messages import shorten
from cct_keras.data.readers.pixels import over_white
from cct_keras.data.store import memory_budget
from cct_keras.errors import DataError
from cct_keras.runtime.packages import import_package

SPLITS = ("train", "validation", "test")
# A name, a configuration and a version, as in `emnist/letters:3.1.0`.
NAME = re.compile(r"[\w-]+(/[\w.+-]+)?(:[\d.]+)?")
VERSION = re.compile(r"\d+\.\d+\.\d+")
BATCH = 256
LABELS = "labels.npy"


def is_tfds_name(source) -> bool:
    """Whether a source looks like a name, such as `"cifar10"` or `"emnist/letters"`."""
    return isinstance(source, str) and NAME.fullmatch(source) is not None


def read_tfds(
    name: str,
    data_dir: str | os.PathLike | None = None,
    splits: dict[str, str] | None = None,
) -> RawData:
    """Reads an image classification data set of TensorFlow Datasets.

    A prepared data set is read without a network; any other one is downloaded first.

    Args:
        name: `"cifar10"`, `"emnist/letters"` or `"mnist:3.0.1"`.
        data_dir: Folder of the prepared data sets; by default `TFDS_DATA_DIR` or
            `~/tensorflow_datasets`.
        splits: What to read as `"train"`, `"validation"` and `"test"`, such as
            `{"train": "train[:90%]", "validation": "train[90%:]"}`. By default what
            `cct_keras.data.known` says, or the splits of these names.

    Returns:
        Arrays, if the images have one size and fit in memory. Otherwise their files,
        which are taken out of the prepared data set once and kept in the cache.

    Example:

    >>> read_tfds("cifar10")  # Needs the images.  # doctest: +SKIP
    """
    # TensorFlow is no package that tensorflow-datasets asks for by itself.
    import_package("tensorflow", "tensorflow")
    tfds = import_package("tensorflow_datasets", "tensorflow-datasets")
    known = find_known(name)
    if splits is None and known is not None:
        splits = known.splits
    with _quiet_logging():
        notes = []
        builder = _find_builder(tfds, name, data_dir, notes)
        image_key, label_key = _find_features(tfds, name, builder.info)
        if not builder.is_prepared():
            _prepare(name, builder)
        reader = _Reader(tfds, name, builder, image_key, label_key)
        found = {}
        for split, instruction in _choose_splits(name, builder.info, splits).items():
            images = reader.read(instruction)
            # Some data sets mark test images whose labels are secret by -1.
            labeled = images.labels >= 0
            if not labeled.all():
                count = len(labeled) - labeled.sum()
                notes.append(f"{split}: {count} images without a label were left out")
                images = images.select(labeled)
            if len(images):
                found[split] = images
            elif split == "train":
                raise DataError(f"{name}: {instruction} has no images with labels")
    return RawData(
        name=name,
        splits=found,
        class_names=tuple(builder.info.features[label_key].names),
        notes=tuple(notes),
        known=known,
    )


@contextlib.contextmanager
def _quiet_logging():
    from absl import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


# === Builders ===


def _find_builder(tfds, name, data_dir, notes):
    base = re.split("[/:]", name)[0]
    # The list of community data sets would be fetched from the network.
    known = tfds.list_builders(with_community_datasets=False)
    if base not in known:
        return _builder_without_code(tfds, name, data_dir, known)
    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except Exception as error:
        raise DataError(f"{name}: {_first_line(error)}") from error
    if builder.is_prepared() or ":" in name:
        return builder
    folder = _newest(builder.data_path.parent)
    if folder is None:
        return builder
    notes.append(
        f"{name}: version {folder.name} was read, as {builder.version} is not prepared"
    )
    return _from_folder(tfds, name, folder)


def _builder_without_code(tfds, name, data_dir, known):
    base, config, version = re.fullmatch(
        r"([^/:]*)/?([^:]*):?(.*)", name, re.DOTALL
    ).groups()
    default = os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")
    root = pathlib.Path(data_dir or default).expanduser()
    folder = _newest(root / base / config, version) if base else None
    if folder is not None:
        return _from_folder(tfds, name, folder)
    configs = sorted((root / base).glob("*/*/dataset_info.json")) if base else []
    if configs and not config:
        names = sorted({f"{base}/{path.parent.parent.name}" for path in configs})
        if len(names) == 1:
            return _builder_without_code(tfds, f"{names[0]}:{version}", data_dir, known)
        raise DataError(f"{name}: several configurations, name one of {shorten(names)}")
    # `did_you_mean` would list all of the many names if none of them is similar.
    similar = difflib.get_close_matches(base, known)
    hint = f". Did you mean: {', '.join(similar)}?" if similar else ""
    raise DataError(
        f"{name}: no such file or folder, no such data set in TensorFlow Datasets, "
        f"and none prepared in {root}{hint}"
    )


def _newest(folder, version=""):
    """Finds a prepared version of `<name>/<config>`, by default the newest."""
    paths = [pathlib.Path(path) for path in folder.glob("*/dataset_info.json")]
    versions = [p.parent for p in paths if VERSION.fullmatch(p.parent.name)]
    if version:
        versions = [path for path in versions if path.name == version]
    return max(versions, key=_version_key, default=None)


def _version_key(path):
    return tuple(int(part) for part in path.name.split("."))


def _from_folder(tfds, name, folder):
    try:
        return tfds.builder_from_directory(folder)
    except Exception as error:
        raise DataError(
            f"{name}: the copy in {folder} is broken: {_first_line(error)}"
        ) from error


def _prepare(name, builder):
    # Builders run the code of many authors, which may raise any error.
    try:
        builder.download_and_prepare()
    except Exception as error:
        folder = pathlib.Path(builder.data_path)
        root = pathlib.Path(builder.data_dir_root)
        raise DataError(
            f"{name}: cannot be downloaded and prepared ({_first_line(error)}); give "
            "as `data_dir=` a folder that holds a prepared copy in "
            f"{folder.relative_to(root)}"
        ) from error


def _first_line(error):
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__


def _find_features(tfds, name, info):
    """Finds the keys of the image and of the label."""
    features = dict(info.features) if hasattr(info.features, "keys") else {}
    images = [
        key
        for key, feature in features.items()
        if isinstance(feature, tfds.features.Image)
        and not isinstance(feature, tfds.features.LabeledImage)
    ]
    labels = [
        key
        for key, feature in features.items()
        if isinstance(feature, tfds.features.ClassLabel) and feature.num_classes
    ]
    if len(images) == len(labels) == 1:
        return images[0], labels[0]
    # CIFAR-100 has coarse labels too; its description says which are meant.
    keys = info.supervised_keys
    if isinstance(keys, tuple) and keys[0] in images and keys[-1] in labels:
        return keys[0], keys[-1]
    listed = [f"{key} ({type(value).__name__})" for key, value in features.items()]
    raise DataError(
        f"{name}: one Image and one ClassLabel are expected, "
        f"found {', '.join(listed) or type(info.features).__name__}"
    )


# === Examples ===


def _choose_splits(name, info, splits):
    available = list(info.splits)
    if splits is None:
        splits = {split: split for split in SPLITS if split in available}
    if "train" not in splits or not set(splits) <= set(SPLITS):
        raise DataError(
            f"{name}: splits must map train, and may map validation and test, to "
            f"some of {', '.join(available) or 'none'}; got {splits}"
        )
    return {split: splits[split] for split in SPLITS if split in splits}


def _image_file(folder, index):
    # A million files in one folder are too many for some file systems.
    return folder / f"{index // 1000:04}" / f"{index:07}.image"


class _Reader:
    """Reads splits of a prepared data set."""

    def __init__(self, tfds, name, builder, image_key, label_key):
        self.tfds = tfds
        self.name = name
        self.builder = builder
        self.image_key = image_key
        self.label_key = label_key

    def read(self, instruction) -> RawSplit:
        """Reads a split or a slice of one, such as `train[:10%]`."""
        try:
            shape = self.builder.info.features[self.image_key].shape
            if None in shape:
                return self._extract(instruction)
            dataset = self._dataset(instruction)
            count = int(dataset.cardinality())
            if count < 0 or count * int(np.prod(shape)) > memory_budget() // 2:
                return self._extract(instruction)
            return self._read_batches(dataset, count)
        except DataError:
            raise
        except Exception as error:
            raise DataError(
                f"{self.name}: {instruction} cannot be read: {_first_line(error)}"
            ) from error

    def _dataset(self, instruction, decoders=None):
        keys = {self.image_key: True, self.label_key: True}
        return self.builder.as_dataset(
            split=instruction,
            decoders=self.tfds.decode.PartialDecoding(keys, decoders),
            read_config=self.tfds.ReadConfig(try_autocache=False),
            shuffle_files=False,
        )

    def _read_batches(self, dataset, count):
        images, labels, start = None, np.empty(count, np.int64), 0
        for batch in self.tfds.as_numpy(dataset.batch(BATCH)):
            pixels = self._as_pixels(batch[self.image_key])
            if images is None:
                images = np.empty((count, *pixels.shape[1:]), np.uint8)
            images[start : start + len(pixels)] = pixels
            labels[start : start + len(pixels)] = batch[self.label_key]
            start += len(pixels)
        if start != count:
            raise DataError(f"{self.name}: only {start} of {count} examples are there")
        return RawSplit([] if images is None else images, labels)

    def _extract(self, instruction):
        """Writes each image to a file, so that it can be read at any time."""
        info = self.builder.info
        label = re.sub(r"[^\w.-]+", "_", f"{info.full_name} {instruction}")
        folder = cache_folder() / "images" / label
        if not (folder / LABELS).is_file():
            folder.parent.mkdir(parents=True, exist_ok=True)
            temporary = pathlib.Path(tempfile.mkdtemp(dir=folder.parent, prefix="."))
            try:
                self._write_files(instruction, temporary)
                os.replace(temporary, folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        labels = np.load(folder / LABELS)
        return RawSplit([_image_file(folder, i) for i in range(len(labels))], labels)

    def _write_files(self, instruction, folder):
        skip = {self.image_key: self.tfds.decode.SkipDecoding()}
        examples = self.tfds.as_numpy(self._dataset(instruction, skip))
        labels = []
        for i, example in enumerate(examples):
            path = _image_file(folder, i)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(example[self.image_key])
            labels.append(example[self.label_key])
        np.save(folder / LABELS, np.array(labels, np.int64))

    def _as_pixels(self, images):
        if images.dtype == np.uint16:
            images = np.rint(images / np.float32(257)).astype(np.uint8)
        if images.dtype != np.uint8 or images.shape[-1] not in (1, 3, 4):
            raise DataError(
                f"{self.name}: images of type {images.dtype} with {images.shape[-1]} "
                "channels; uint8 or uint16 with 1, 3 or 4 are expected"
            )
        return over_white(images) if images.shape[-1] == 4 else images
