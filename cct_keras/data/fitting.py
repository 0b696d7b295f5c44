"""Images of a store in the size of a model, as evaluation sees them."""

import concurrent.futures
import math
from collections.abc import Iterator

import numpy as np

from cct_keras.data.store import ImageArray
from cct_keras.data.store import ImageFiles
from cct_keras.data.store import RaggedImages
from cct_keras.data.store import memory_budget
from cct_keras.runtime.resize import central_crop_resize


class FittedImages:
    """Images of another store, cut and resized whenever they are needed.

    Args:
        store: The other store.
        size: Height and width of the result.
        crop: Share of an image that is kept.

    Example:

    >>> large = ImageArray(np.zeros((10, 40, 60, 3), "uint8"))
    >>> FittedImages(large, (32, 32), crop=1.0)[0].shape
    (32, 32, 3)
    """

    def __init__(
        self,
        store: ImageArray | RaggedImages | ImageFiles,
        size: tuple[int, int],
        crop: float,
    ):
        self.store = store
        self.size = size
        self.crop = crop
        self.channels = store.channels

    def __len__(self):
        return len(self.store)

    def __getitem__(self, index):
        return central_crop_resize(self.store[index], self.size, self.crop)

    def tensor(self, indices):
        """Returns the batch of several indices as uint8."""
        import tensorflow as tf

        def load(indices):
            return np.stack([self[index] for index in indices])

        images = tf.numpy_function(load, [indices], tf.uint8, stateful=False)
        return tf.ensure_shape(images, (indices.shape[0], *self.size, self.channels))


def fit_images(
    store: ImageArray | RaggedImages | ImageFiles,
    size: tuple[int, int],
    crop: float,
    *,
    once: bool,
) -> ImageArray | FittedImages:
    """Cuts and resizes the images of a store.

    Args:
        store: The images. An array of exactly this size is returned as it is.
        size: Height and width of the result.
        crop: Share of an image that is kept.
        once: Whether to do it now for all epochs to come, if the images are in memory
            and the result fits there too.

    Returns:
        A store whose images all have this size.

    Example:

    >>> large = ImageArray(np.zeros((10, 40, 60, 3), "uint8"))
    >>> fit_images(large, (32, 32), 1.0, once=True).array.shape
    (10, 32, 32, 3)
    """
    if isinstance(store, ImageArray) and store.size == size:
        return store
    fitted = FittedImages(store, size, crop)
    needed = len(store) * math.prod(size) * store.channels
    on_disk = isinstance(store, ImageFiles)
    if not once or on_disk or needed > memory_budget() // 2:
        return fitted
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return ImageArray(
            np.stack(list(pool.map(fitted.__getitem__, range(len(store)))))
        )


def image_batches(
    store: ImageArray | RaggedImages | ImageFiles,
    size: tuple[int, int],
    crop: float,
    batch_size: int,
) -> Iterator[np.ndarray]:
    """Cuts and resizes the images of a store, one batch after the other.

    Args:
        store: The images.
        size: Height and width of the result.
        crop: Share of an image that is kept.
        batch_size: Images a batch; the last batch may have fewer.

    Yields:
        float32 arrays `(images, height, width, channels)`.

    Example:

    >>> large = ImageArray(np.zeros((10, 40, 60, 3), "uint8"))
    >>> [len(images) for images in image_batches(large, (32, 32), 1.0, batch_size=8)]
    [8, 2]
    """
    fitted = fit_images(store, size, crop, once=False)
    starts = range(0, len(fitted), batch_size)
    if isinstance(fitted, ImageArray):
        for start in starts:
            yield fitted.array[start : start + batch_size].astype(np.float32)
        return
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for start in starts:
            indices = range(start, min(start + batch_size, len(fitted)))
            images = list(pool.map(fitted.__getitem__, indices))
            yield np.stack(images).astype(np.float32)
