"""Features of all images of a data set, computed once with a frozen body."""

import concurrent.futures
import dataclasses
import hashlib
import math
import sys
import time
from collections.abc import Callable
from collections.abc import Iterator

import keras
import numpy as np

from cct_keras.data.dataset import Dataset
from cct_keras.data.dataset import Split
from cct_keras.data.fingerprint import HASHED_BYTES
from cct_keras.data.splits import SPLITS
from cct_keras.data.store import ImageArray
from cct_keras.data.store import ImageFiles
from cct_keras.data.store import RaggedImages
from cct_keras.errors import ModelError
from cct_keras.inference.forward import run_on_batch
from cct_keras.models.architecture import Architecture
from cct_keras.models.cost import architecture_cost
from cct_keras.training.build import device_type
from cct_keras.training.callbacks import duration
from cct_keras.training.feature_cache import cache_is_on
from cct_keras.training.feature_cache import cache_key
from cct_keras.training.feature_cache import read_features
from cct_keras.training.feature_cache import write_features

# What one block may keep of a batch, in bytes.
BATCH_BYTES = 256 * 2**20
LARGEST_BATCH = 256


def compute_features(
    body: keras.Model,
    data: Dataset,
    architecture: Architecture,
    *,
    facts: dict | None,
    say: Callable[[str], None],
    show_bar: bool,
) -> tuple[dict[str, np.ndarray], Dataset]:
    """The features of all images, from the cache if they are there.

    Args:
        body: From raw images to their features.
        data: The data.
        architecture: The architecture, for images of the size of the data.
        facts: What the features depend on beside the data, as JSON values; `None` to
            leave the cache alone.
        say: Called with lines about the progress.
        show_bar: Whether to show a bar, if there is a terminal.

    Returns:
        The features by the name of the split, and the data without files that turned
        out to be broken.
    """
    started = time.perf_counter()
    count, width = (
        sum(len(getattr(data, name)) for name in SPLITS),
        body.output_shape[1],
    )
    key = found = None
    if facts is not None and cache_is_on():
        key = cache_key({**facts, **data_facts(data)})
        found = read_features(key, (count, width))
    if found is not None:
        features, noted = found
        data = _without(data, noted["broken"])
        if len(features) == sum(len(getattr(data, name)) for name in SPLITS):
            say(f"features: found in the cache, {len(features):,} images")
            return _by_split(features, data), data
    size = batch_size(architecture)
    bar = _Bar(count, say, show_bar and sys.stdout.isatty())
    features = np.empty((count, width), "float32")
    for start, images in _batches(data, min(size, count)):
        output = run_on_batch(body, images)[: count - start]
        features[start : start + len(output)] = output
        bar.update(start + len(output))
    bar.clear()
    broken = {
        name: sorted(store.paths.index(path) for path in store.broken)
        for name in SPLITS
        if isinstance(store := getattr(data, name).images, ImageFiles) and store.broken
    }
    kept = _kept_rows(data, broken)
    features, data = features[kept], _without(data, broken)
    seconds = time.perf_counter() - started
    say(f"features: {len(features):,} images in {seconds:,.1f} s")
    _check_finite(features)
    if key is not None:
        problem = write_features(key, features, {"broken": broken})
        if problem is not None:
            say(f"note: the features are not kept for the next time: {problem}")
    return _by_split(features, data), data


def batch_size(architecture: Architecture) -> int:
    """How many images pass through a body at once: fewer, the more tokens they make.

    Example:

    >>> small = Architecture.from_variant("vit_small_patch16_224")
    >>> large = Architecture.from_variant("vit_small_patch16_224",
    ...                                   input_shape=(512, 512, 3))
    >>> batch_size(small), batch_size(large)
    (36, 3)
    """
    # Blocks pass one after the other, so that the memory is that of one.
    arguments = {**architecture.arguments, "num_layers": 1}
    one_block = dataclasses.replace(architecture, arguments=arguments)
    image = architecture_cost(one_block).activation_bytes
    return max(1, min(LARGEST_BATCH, BATCH_BYTES // image))


# === Images ===


def _batches(data, size) -> Iterator[tuple[int, np.ndarray]]:
    """Batches of one length, with the number of their first image.

    A shorter batch would be compiled anew, so the last one is filled up.
    """

    def fill_up():
        start, waiting = 0, []
        for name in SPLITS:
            for images in data.batches(name, size):
                waiting.append(images)
                if sum(map(len, waiting)) >= size:
                    joined = np.concatenate(waiting)
                    yield start, joined[:size]
                    start, waiting = start + size, [joined[size:]]
        if sum(map(len, waiting)):
            joined = np.concatenate(waiting)
            yield start, joined[np.arange(size) % len(joined)]

    # The next images are read while the model computes.
    with concurrent.futures.ThreadPoolExecutor(1) as reader:
        batches = fill_up()
        coming = reader.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = reader.submit(next, batches, None)
            yield batch


def _kept_rows(data, broken):
    kept = [np.ones(len(getattr(data, name)), bool) for name in SPLITS]
    for name, rows in zip(SPLITS, kept, strict=True):
        rows[broken.get(name, [])] = False
    return np.concatenate(kept)


def _without(data, broken):
    """The data without files that turned out to be broken, with a note."""
    if not broken:
        return data
    splits, named = {}, []
    for name, rows in broken.items():
        split = getattr(data, name)
        named += [split.name_of(row) for row in rows]
        kept = np.delete(np.arange(len(split)), rows)
        store, labels = split.images, split.labels[kept]
        paths = [store.paths[row] for row in kept]
        size, channels = store.size, store.channels
        images = ImageFiles(paths, labels, store.read, channels=channels, size=size)
        splits[name] = Split(images, labels, tuple(paths))
    note = f"{len(named)} broken files were skipped: {', '.join(named[:10])}"
    return dataclasses.replace(data, **splits, notes=(*data.notes, note))


def _by_split(features, data):
    ends = np.cumsum([len(getattr(data, name)) for name in SPLITS])
    return dict(zip(SPLITS, np.split(features, ends[:-1]), strict=True))


def _check_finite(features):
    bad = int((~np.isfinite(features)).any(axis=1).sum())
    if bad:
        raise ModelError(
            f"the features of {bad:,} of {len(features):,} images are not finite "
            "numbers: the weights are damaged, or not those of this architecture"
        )


# === What features depend on ===


def data_facts(data: Dataset) -> dict:
    """Everything about a data set that decides the features of its images.

    Args:
        data: The data.

    Returns:
        JSON values.

    Example:

    >>> sorted(data_facts(cct_keras.load_data("digits")))[:3]
    ['counts', 'crop', 'files']
    """
    stores = [getattr(data, name).images for name in SPLITS]
    pixels = hashlib.sha256()
    for store in stores:
        _update(pixels, store)
    paths = [p for store in stores for p in getattr(store, "paths", ())]
    files = [(path.name, path.stat()) for path in paths]
    # Of very many bytes the fingerprint knows names and sizes alone.
    is_large = sum(status.st_size for _, status in files) > HASHED_BYTES
    return {
        "fingerprint": data.fingerprint,
        "counts": [len(getattr(data, name)) for name in SPLITS],
        "pixels": pixels.hexdigest(),
        "files": [
            (name, status.st_size, status.st_mtime_ns if is_large else None)
            for name, status in files
        ],
        "images": [data.image_size, data.channels],
        "normalization": [data.mean, data.std],
        "crop": data.crop,
    }


def _update(digest, store):
    """Adds the pixels in memory, which a user may have changed after loading."""
    if isinstance(store, ImageArray):
        digest.update(np.ascontiguousarray(store.array))
    elif isinstance(store, RaggedImages):
        digest.update(store.shapes.tobytes())
        digest.update(np.ascontiguousarray(store.pixels()))


def weights_digest(arrays: dict[str, np.ndarray], heads: tuple[str, ...]) -> str:
    """A hash of the weights of a body.

    Args:
        arrays: `{weight path: array}`.
        heads: Names of layers that do not count.

    Example:

    >>> ones = {"norm/gamma": np.ones(3)}
    >>> weights_digest(ones, ()) == weights_digest({"norm/gamma": np.zeros(3)}, ())
    False
    """
    digest = hashlib.sha256()
    for path in sorted(arrays):
        if path.split("/")[0] in heads:
            continue
        array = np.asarray(arrays[path])
        digest.update(f"{path} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def backend_facts(dtype: str) -> dict:
    """What else decides the last digits of features.

    Args:
        dtype: Policy of the layers.

    Example:

    >>> backend_facts("float32")["dtype"]
    'float32'
    """
    from cct_keras import __version__

    return {
        "version": __version__,
        "keras": keras.__version__,
        "backend": keras.config.backend(),
        "device": device_type(),
        "dtype": dtype,
    }


# === Progress ===


class _Bar:
    """Says once how long the features take, and on a terminal how far they are."""

    def __init__(self, count, say, on_terminal):
        self.count = count
        self.say = say
        self.on_terminal = on_terminal
        self.first = self.start = self.shown = None

    def update(self, done):
        now = time.perf_counter()
        if self.start is None:
            # The first batch also compiles.
            self.first, self.start, self.shown = done, now, now
            return
        left = (now - self.start) / (done - self.first) * (self.count - done)
        if self.say is not None and left > 0:
            self.say(f"features: about {math.ceil(left):,} s more")
        self.say = None
        if self.on_terminal and now - self.shown > 0.2:
            self.shown = now
            share = done / self.count
            bar = "━" * round(20 * share) + "─" * (20 - round(20 * share))
            text = f"features {bar} {done:,}/{self.count:,}  {duration(left)} left"
            print(f"\r\x1b[2K{text}", end="", flush=True)

    def clear(self):
        if self.on_terminal:
            print("\r\x1b[2K", end="", flush=True)
