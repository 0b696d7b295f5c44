"""`load_data`: any source of images to three splits that are ready to train on."""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import re
import sys

import numpy as np

from cct_keras.data.arrays import read_arrays
from cct_keras.data.arrays import read_npz
from cct_keras.data.folder import read_folder
from cct_keras.data.folder import read_headers
from cct_keras.data.folder import read_image
from cct_keras.data.folder import read_images
from cct_keras.data.idx import is_idx_folder
from cct_keras.data.idx import read_idx
from cct_keras.data.known import CIFAR_NAMES
from cct_keras.data.known import DATASETS
from cct_keras.data.known import KnownDataset
from cct_keras.data.named import read_digits
from cct_keras.data.named import read_tfds
from cct_keras.data.raw import DataError
from cct_keras.data.raw import RawData
from cct_keras.data.raw import RawSplit
from cct_keras.data.store import ImageArray
from cct_keras.data.store import ImageFiles
from cct_keras.data.store import RaggedImages
from cct_keras.data.store import memory_budget
from cct_keras.download import cache_folder
from cct_keras.layers.preprocessing import central_box

LARGEST_NATIVE_SIZE = 64
# Training images keep this much more than the model sees, for crops to choose from.
MARGIN = 1.25
HASHED_BYTES = 4 * 2**30


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """Images and labels of one part of a data set.

    Attributes:
        images: A store; see `cct_keras.data.store`.
        labels: int64, `(count,)`.
    """

    images: ImageArray | RaggedImages | ImageFiles
    labels: np.ndarray

    def __len__(self):
        return len(self.labels)


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Three splits and what a model needs to know of them.

    Attributes:
        name: Where it came from.
        class_names: In the order of the labels.
        image_size: Height and width at which a model sees the images.
        channels: 1 for grey images, 3 for colour.
        mean: Of each channel, for pixels scaled to 0..1.
        std: Of each channel.
        crop: Share of an image that evaluation keeps.
        train: Images in their own size, the large ones reduced.
        validation: Images in exactly `image_size`.
        test: Images in exactly `image_size`.
        fingerprint: Hash of all images and labels.
        cut: How splits that the source lacks are cut off: the shares `validation`
            and `test`, and the `seed`.
        notes: What a user should know: skipped files, cut splits, duplicates.
    """

    name: str
    class_names: tuple[str, ...]
    image_size: tuple[int, int]
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop: float
    train: Split
    validation: Split
    test: Split
    fingerprint: str
    cut: dict
    notes: tuple[str, ...]

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """`input_shape` of a model for these images."""
        return (*self.image_size, self.channels)

    def pipeline(self, split: str = "test", batch_size: int = 128):
        """Batches of `(images, one-hot labels)` in order, the last one shorter.

        Args:
            split: `"train"`, `"validation"` or `"test"`.
            batch_size: Images a batch.

        Returns:
            A `tf.data.Dataset`; images are float32 with values from 0 to 255.
        """
        from cct_keras.data.pipeline import evaluation_pipeline

        return evaluation_pipeline(self, getattr(self, split), batch_size)

    def padded_pipeline(
        self,
        split: str,
        batch_size: int,
        *,
        multiple: int,
        shard: tuple[int, int] = (0, 1),
    ):
        """As `pipeline`, in batches that split evenly over devices and machines.

        Args:
            split: `"train"`, `"validation"` or `"test"`.
            batch_size: Images a batch of all machines, rounded up to `multiple`.
            multiple: Every batch is a multiple of it, padded with weights of zero.
            shard: Which part of every batch, of how many.

        Returns:
            A `tf.data.Dataset` of `(images, one-hot labels, weights)`. Losses and
            metrics with these weights are those of the images without padding.
        """
        from cct_keras.data.pipeline import padded_pipeline

        return padded_pipeline(self, getattr(self, split), batch_size, multiple, shard)

    def training_pipeline(
        self,
        recipe,
        *,
        first_epoch: int = 0,
        epochs: int | None = None,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
    ):
        """Shuffled, augmented, mixed batches of all epochs, one after the other.

        Args:
            recipe: A `Recipe`. With `teacher_views`, epoch `e` is that of number
                `e % teacher_views` again.
            first_epoch: Epoch to begin with; what it sees does not depend on it.
            epochs: Where to end; by default with the recipe.
            seed: Seed of the order and of the augmentation.
            shard: Which part of every batch, of how many, for several machines.

        Returns:
            A `tf.data.Dataset` of `(images, soft labels)`.
        """
        from cct_keras.data.pipeline import training_pipeline

        epochs = recipe.total_epochs if epochs is None else epochs
        return training_pipeline(self, recipe, range(first_epoch, epochs), seed, shard)

    def describe(self) -> str:
        """One line: what there is of it."""
        height, width = self.image_size
        counts = " / ".join(
            f"{len(split):,}" for split in (self.train, self.validation, self.test)
        )
        return (
            f"{self.name}: {counts} images to train, validate, test; "
            f"{self.num_classes} classes; {height} x {width} x {self.channels}"
        )


def load_data(
    source,
    *,
    image_size: int | tuple[int, int] | None = None,
    default_size: int = LARGEST_NATIVE_SIZE,
    multiple: int = 1,
    channels: int | None = None,
    crop: float = 1.0,
    validation: float = 0.1,
    test: float = 0.15,
    seed: int = 0,
    data_dir: str | os.PathLike | None = None,
) -> Dataset:
    """Reads a data set of images, wherever it is.

    Args:
        source: `"digits"` (comes with scikit-learn); a name of
            tensorflow-datasets, such as `"cifar10"`; a folder of image files
            `<class>/*` or `{train,val,test}/<class>/*`; an `.npz` file with
            `x_train`, `y_train`, `x_test`, `y_test`; a folder of idx files as of
            MNIST; or arrays `(x, y)` or `((x_train, y_train), (x_test, y_test))`.
        image_size: Side, or height and width, at which a model sees the images.
            By default their own, if they are all alike and small, and else
            `default_size`.
        default_size: See `image_size`.
        multiple: Both sides become multiples of it, for models of patches.
        channels: 1 or 3. By default 1 if all images are grey.
        crop: Share of an image that evaluation keeps.
        validation: Share of the training images that is cut off where the source
            has no validation split; the classes keep their proportions.
        test: The same, where it has no test split.
        seed: Seed of these cuts.
        data_dir: Where tensorflow-datasets keeps its prepared data.

    Returns:
        A `Dataset`.

    Example:

    >>> data = load_data("digits")
    >>> data.input_shape, data.num_classes
    ((16, 16, 1), 10)
    """
    if isinstance(source, Dataset):
        return source
    raw, known = _read(source, data_dir)
    notes = list(raw.notes)
    _cut_splits(raw, validation, test, seed, notes)
    sizes, grey = _look_at(raw, notes)
    channels = channels or (1 if grey else 3)
    if image_size is None:
        image_size = (known and known.image_size) or _choose_size(sizes, default_size)
    image_size = as_size(image_size, multiple)

    notes += _recognise_jpeg_cifar(raw, sizes)
    digests = _all_digests(raw)
    notes += _report_duplicates(digests)
    fingerprint = _fingerprint(raw, digests)
    splits = _load_images(raw, sizes, image_size, channels, crop, notes)
    mean, std = _normalisation(
        known, splits["train"].images, channels, f"{fingerprint[:32]}-{image_size}"
    )
    return Dataset(
        name=raw.name,
        class_names=raw.class_names,
        image_size=image_size,
        channels=channels,
        mean=mean,
        std=std,
        crop=crop,
        **splits,
        fingerprint=fingerprint,
        cut={"validation": validation, "test": test, "seed": seed},
        notes=tuple(notes),
    )


def load_evaluation_data(
    source,
    split: str,
    *,
    image_size: tuple[int, int],
    channels: int,
    crop: float,
    trained_on: dict | None = None,
    data_dir=None,
) -> Dataset:
    """Reads what a model is to be measured on.

    Args:
        source: As for `load_data`.
        split: `"train"`, `"validation"` or `"test"`. Where the source has none of
            that name, it is what training had cut off, if the model was trained on
            this source, and else all images.
        image_size: Height and width of the model's images.
        channels: Channels of the model's images.
        crop: Share of an image that is kept.
        trained_on: What the model knows of its data.
        data_dir: Where tensorflow-datasets keeps its prepared data.

    Returns:
        A `Dataset` of which only this split is to be used.
    """
    raw, _ = _read(source, data_dir)
    notes = list(raw.notes)
    if not {"train", "validation", "test"} <= set(raw.splits):
        raw = _cut_as_in_training(raw, trained_on, split, notes)
    raw.splits = {split: raw.splits[split]}
    sizes, _ = _look_at(raw, notes)
    splits = _load_images(raw, sizes, image_size, channels, crop, notes)
    return Dataset(
        name=raw.name,
        class_names=raw.class_names,
        image_size=image_size,
        channels=channels,
        mean=(),
        std=(),
        crop=crop,
        **dict.fromkeys(("train", "validation", "test"), splits[split]),
        fingerprint="",
        cut={},
        notes=tuple(notes),
    )


def _cut_as_in_training(raw, trained_on, split, notes):
    if trained_on is not None:
        cut = dataclasses.replace(raw, splits=dict(raw.splits))
        try:
            _cut_splits(cut, **trained_on["cut"], notes=[])
            _look_at(cut, [])
            known = _fingerprint(cut, _all_digests(cut)) == trained_on["fingerprint"]
        except DataError:
            known = False
        if known:
            return cut
    if split in raw.splits:
        return raw
    whole = raw.splits["train"]
    notes.append(f"no {split} split: all {len(whole.labels):,} images are measured")
    return dataclasses.replace(raw, splits={split: whole})


def _read(source, data_dir) -> tuple[RawData, KnownDataset | None]:
    """The raw data, and what is known of them if they came by name."""
    if not isinstance(source, (str, os.PathLike)):
        return read_arrays(source), None
    path = pathlib.Path(source).expanduser()
    if path.is_dir():
        read = read_idx if is_idx_folder(path) else read_folder
        return read(path), None
    if path.is_file():
        if path.suffix != ".npz":
            raise DataError(
                f"{path}: a data set is a folder, an .npz file or a name; "
                "this is another file"
            )
        return read_npz(path), None
    if not re.fullmatch(r"[\w-]+(/[\w.+-]+)?(:[\d.]+)?", str(source)):
        raise DataError(f"no such file or folder: {source}")
    known = DATASETS.get(re.split("[/:]", str(source))[0])
    if source == "digits":
        return read_digits(), known
    return read_tfds(str(source), data_dir, splits=known and known.splits), known


# === Splits ===


def _cut_splits(raw, validation, test, seed, notes):
    """Cuts off what the source does not have."""
    for name, share in (("test", test), ("validation", validation)):
        if name in raw.splits:
            continue
        if not 0 < share < 1:
            raise DataError(
                f"`{name}` must be a share between 0 and 1. Received: {share!r}"
            )
        chosen = _stratified_choice(raw.splits["train"].labels, share, seed)
        if not chosen.any():
            raise DataError(
                f"{raw.name}: {len(chosen)} training images are too few to cut a "
                f"{name} split of {share:.0%} off"
            )
        whole = raw.splits["train"]
        raw.splits[name] = _select(whole, np.flatnonzero(chosen))
        raw.splits["train"] = _select(whole, np.flatnonzero(~chosen))
        notes.append(
            f"no {name} split: {chosen.sum():,} of {len(chosen):,} training images "
            f"were cut off for it, class by class (seed {seed})"
        )


def _stratified_choice(labels, share, seed):
    """Of every class the same share; the only image of a class is never chosen."""
    position = np.full(len(labels), np.inf)
    generator = np.random.default_rng(seed)
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        if len(members) > 1:
            position[members] = (np.arange(len(members)) + 0.5) / len(members)
    # In random order, as small classes have their images at the same positions.
    order = generator.permutation(len(labels))
    order = order[np.argsort(position[order], kind="stable")]
    chosen = np.zeros(len(labels), bool)
    chosen[order[: round(share * len(labels))]] = True
    return chosen & np.isfinite(position)


def _select(split, indices):
    if isinstance(split.images, np.ndarray):
        images = split.images[indices]
    else:
        images = [split.images[i] for i in indices]
    return RawSplit(images, split.labels[indices])


# === Sizes ===


def _look_at(raw, notes):
    """Sizes of all images, and whether all are grey; broken files are dropped."""
    sizes, grey, broken = [], True, {}
    for split in raw.splits.values():
        if _is_files(split):
            found, channels, unreadable = read_headers(split.images)
            broken |= unreadable
            good = [i for i, path in enumerate(split.images) if path not in unreadable]
            split.images = [split.images[i] for i in good]
            split.labels = split.labels[good]
            found, channels = found[good], channels[good]
        else:
            shapes = np.array([image.shape for image in split.images]).reshape(-1, 3)
            found, channels = shapes[:, :2], shapes[:, 2]
        sizes.append(found)
        grey &= bool((channels == 1).all())
    _note_broken(broken, notes)
    _check_not_empty(raw)
    return np.concatenate(sizes), grey


def _check_not_empty(raw):
    for name, split in raw.splits.items():
        if not len(split.labels):
            raise DataError(f"{raw.name}: there is no readable image in {name}")


def _is_files(split):
    first = next(iter(split.images), None)
    return isinstance(first, pathlib.Path)


def _choose_size(sizes, default_size):
    alike = (sizes == sizes[0]).all()
    small = sizes.max() <= LARGEST_NATIVE_SIZE and default_size <= LARGEST_NATIVE_SIZE
    return tuple(sizes[0].tolist()) if alike and small else default_size


def as_size(image_size: int | tuple[int, int], multiple: int = 1) -> tuple[int, int]:
    """Height and width from a side or from both, as multiples of a patch."""
    size = (image_size,) * 2 if isinstance(image_size, int) else tuple(image_size)
    if len(size) != 2 or not all(isinstance(side, int) and side > 0 for side in size):
        raise DataError(
            "`image_size` must be a side or a height and a width. "
            f"Received: {image_size!r}"
        )
    return tuple(-(-side // multiple) * multiple for side in size)


# === Images ===


def _load_images(raw, sizes, image_size, channels, crop, notes):
    shrink = round(MARGIN * max(image_size))
    factor = np.minimum(1, shrink / sizes.min(axis=1))
    in_memory = channels * (sizes.prod(axis=1) * factor**2).sum() <= memory_budget()
    if not in_memory and any(map(_is_files, raw.splits.values())):
        notes.append("the images do not fit in memory and are read in every epoch")
    readers = {
        "train": functools.partial(_training_image, channels, shrink),
        "evaluation": functools.partial(_evaluation_image, channels, image_size, crop),
    }
    splits, broken = {}, {}
    for name, split in raw.splits.items():
        read = readers["train" if name == "train" else "evaluation"]
        if _is_files(split):
            if not in_memory:
                size = None if name == "train" else image_size
                store = ImageFiles(split.images, split.labels, read, channels, size)
                splits[name] = Split(store, split.labels)
                continue
            images, unreadable = read_images(split.images, read)
            broken |= unreadable
            good = [i for i, image in enumerate(images) if image is not None]
            split.labels = split.labels[good]
            images = [images[i] for i in good]
        elif _is_ready(split.images, image_size, channels, shrink, name):
            images = split.images
        else:
            images = [read(image) for image in split.images]
        if len(images):
            splits[name] = Split(_in_memory(images), split.labels)
    _note_broken(broken, notes)
    _check_not_empty(raw)
    return splits


def _training_image(channels, shrink, source):
    image = _as_array(source, channels, shrink)
    height, width = image.shape[:2]
    if min(height, width) <= shrink:
        return image
    factor = shrink / min(height, width)
    size = round(height * factor), round(width * factor)
    return _resize(image, size, (0, 0, height, width))


def _evaluation_image(channels, image_size, crop, source):
    """What `Preprocessing` makes of an image, before it normalises."""
    image = _as_array(source, channels)
    if image.shape[:2] == image_size:
        return image
    return _resize(image, image_size, central_box(*image.shape[:2], image_size, crop))


def _resize(image, size, box):
    from PIL import Image

    top, left, bottom, right = box
    planes = [
        Image.fromarray(np.ascontiguousarray(image[..., channel])).resize(
            size[::-1], Image.Resampling.BICUBIC, box=(left, top, right, bottom)
        )
        for channel in range(image.shape[-1])
    ]
    return np.stack([np.asarray(plane) for plane in planes], axis=-1)


def _as_array(source, channels, shrink=None):
    if isinstance(source, pathlib.Path):
        return read_image(source, channels, shrink=shrink)
    if source.shape[-1] == channels:
        return source
    if channels == 3 and source.shape[-1] == 1:
        return np.repeat(source, 3, axis=-1)
    if channels == 1 and source.shape[-1] == 3:
        # Luminance as Pillow computes it.
        grey = source @ np.array([0.299, 0.587, 0.114])
        return grey.round().astype("uint8")[..., None]
    raise DataError(
        f"images of {source.shape[-1]} channels cannot be read with {channels}"
    )


def _is_ready(images, image_size, channels, shrink, name):
    """Whether an array can stay as it is; one image would be copied after another."""
    if not isinstance(images, np.ndarray) or images.shape[-1] != channels:
        return False
    size = images.shape[1:3]
    return size == image_size or (name == "train" and min(size) <= shrink)


def _in_memory(images):
    if isinstance(images, np.ndarray):
        return ImageArray(images)
    if all(image.shape == images[0].shape for image in images):
        return ImageArray(np.stack(images))
    return RaggedImages(images)


# === Inspection ===


def _note_broken(broken, notes):
    for path in list(broken)[:10]:
        print(f"skipped {path}: {broken[path]}", file=sys.stderr)
    if broken:
        named = ", ".join(str(path) for path in list(broken)[:10])
        more = f" and {len(broken) - 10} more" if len(broken) > 10 else ""
        notes.append(f"{len(broken)} broken files were skipped: {named}{more}")


def _recognise_jpeg_cifar(raw, sizes):
    """CIFAR as JPEG files is another data set than the one papers report on."""
    split = raw.splits["train"]
    if not _is_files(split) or not (sizes == 32).all():
        return []
    if not all(path.suffix.lower() in (".jpg", ".jpeg") for path in split.images):
        return []
    for name, words in CIFAR_NAMES.items():
        if sorted(raw.class_names) == sorted(words.split()):
            title = name.upper().replace("CIFAR", "CIFAR-")
            return [
                f"this is {title} (JPEG): compression took some detail away, expect "
                "1 to 3 points less than published accuracies"
            ]
    return []


def _all_digests(raw):
    """A hash of each image; of very many bytes in files their names and sizes."""
    files = (split.images for split in raw.splits.values() if _is_files(split))
    total = sum(path.stat().st_size for paths in files for path in paths)

    def digest(image):
        if not isinstance(image, pathlib.Path):
            content = image.tobytes()
        elif total <= HASHED_BYTES:
            content = image.read_bytes()
        else:
            name = f"{image.parent.name}/{image.name}"
            content = f"{name} {image.stat().st_size}".encode()
        return hashlib.blake2b(content, digest_size=12).digest()

    return {
        name: [digest(image) for image in split.images]
        for name, split in raw.splits.items()
    }


def _report_duplicates(digests):
    notes = []
    for here, there in (
        ("test", "train"),
        ("validation", "train"),
        ("test", "validation"),
    ):
        other = set(digests[there])
        count = sum(digest in other for digest in digests[here])
        if count:
            notes.append(
                f"{count:,} of {len(digests[here]):,} images of {here} are also in "
                f"{there}: its accuracy will look better than it is"
            )
    return notes


def _fingerprint(raw, digests):
    total = hashlib.sha256(json.dumps(raw.class_names).encode())
    for name in ("train", "validation", "test"):
        total.update(b"".join(digests[name]))
        total.update(raw.splits[name].labels.astype("<i8").tobytes())
    return total.hexdigest()


def _normalisation(known, images, channels, label):
    if known and known.mean and len(known.mean) == channels:
        return known.mean, known.std
    # Reduced images vary less: the size is part of the label.
    label = re.sub(r"\W+", "-", f"{label}-{channels}")
    record = cache_folder() / "statistics" / f"{label}.json"
    try:
        values = json.loads(record.read_text())
        return tuple(values["mean"]), tuple(values["std"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    mean, std = _statistics(images.pixels())
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps({"mean": mean, "std": std}))
    except OSError:
        pass  # A cache that cannot be written is only slower.
    return mean, std


def _statistics(pixels):
    """Exact mean and deviation of each channel, by counting the 256 values."""
    values = np.arange(256) / 255
    means, deviations = [], []
    for channel in range(pixels.shape[-1]):
        counts = np.zeros(256, np.int64)
        # In chunks: `bincount` makes eight bytes of every one.
        for start in range(0, len(pixels), 2**22):
            part = pixels[start : start + 2**22, channel]
            counts += np.bincount(part, minlength=256)
        mean = (counts @ values) / counts.sum()
        variance = (counts @ (values - mean) ** 2) / counts.sum()
        means.append(round(float(mean), 4))
        # Images of one colour have none.
        deviations.append(max(round(float(variance**0.5), 4), 1 / 255))
    return tuple(means), tuple(deviations)
