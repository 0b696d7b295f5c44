"""Where the images of a split are: in memory, of one size or of many, or on disk.

Each store has a length, a `size` and `channels`, gives image `i` as a NumPy array by
`store[i]`, as a tensor inside a tf.data graph by `store.tensor(index)`, and some of its
images by `store.select(indices)`.
"""

import os
import sys
import threading
from collections.abc import Callable

import numpy as np

from cct_keras.errors import DataError

# Pixels of this many files are enough for their mean and standard deviation.
SAMPLED_FILES = 2000


class ImageArray:
    """Images of one size in one array.

    Args:
        array: uint8, `(count, height, width, channels)`.

    Attributes:
        size: Height and width of the images.
        channels: Channels of the images.

    Example:

    >>> len(ImageArray(np.zeros((10, 8, 8, 3), "uint8")))
    10
    """

    def __init__(self, array: np.ndarray):
        self.array = array
        self.size = array.shape[1:3]
        self.channels = array.shape[3]
        self._tensor = None

    def __len__(self):
        return len(self.array)

    def __getitem__(self, index):
        return self.array[index]

    def select(self, indices: np.ndarray) -> "ImageArray":
        """Returns a store of only some of the images."""
        return ImageArray(self.array[indices])

    def tensor(self, index):
        """Returns one image, or the batch of several indices, as uint8."""
        import tensorflow as tf

        if self._tensor is None:
            with tf.init_scope(), tf.device("cpu"):
                self._tensor = tf.constant(self.array)
        return tf.gather(self._tensor, index)

    def pixels(self) -> np.ndarray:
        """Returns all pixels, `(count, channels)`."""
        return self.array.reshape(-1, self.channels)


class RaggedImages:
    """Images of many sizes, one after the other in one buffer.

    Args:
        images: uint8 arrays `(height, width, channels)`.

    Attributes:
        size: `None`, as the images differ in size.
        channels: Channels of the images.

    Example:

    >>> wide, high = np.zeros((4, 9, 3), "uint8"), np.zeros((8, 6, 3), "uint8")
    >>> RaggedImages([wide, high])[1].shape
    (8, 6, 3)
    """

    def __init__(self, images: list[np.ndarray]):
        self.size = None
        self.channels = images[0].shape[-1]
        self.shapes = np.array([image.shape for image in images], "int64")
        self._ends = np.cumsum(self.shapes.prod(axis=1))
        self._buffer = np.empty(self._ends[-1], "uint8")
        for image, end in zip(images, self._ends, strict=True):
            self._buffer[end - image.size : end] = image.ravel()
        self._tensors = None

    def __len__(self):
        return len(self.shapes)

    def __getitem__(self, index):
        shape, end = self.shapes[index], self._ends[index]
        return self._buffer[end - shape.prod() : end].reshape(shape)

    def select(self, indices: np.ndarray) -> "RaggedImages":
        """Returns a store of only some of the images."""
        return RaggedImages([self[index] for index in indices])

    def tensor(self, index):
        """Returns one image as uint8."""
        import tensorflow as tf

        if self._tensors is None:
            with tf.init_scope(), tf.device("cpu"):
                self._tensors = [
                    tf.constant(x) for x in (self._buffer, self._ends, self.shapes)
                ]
        buffer, ends, shapes = self._tensors
        shape = shapes[index]
        size = tf.reduce_prod(shape)
        image = tf.reshape(buffer[ends[index] - size : ends[index]], shape)
        return tf.ensure_shape(image, (None, None, self.channels))

    def pixels(self) -> np.ndarray:
        """Returns all pixels, `(count, channels)`."""
        return self._buffer.reshape(-1, self.channels)


class ImageFiles:
    """Files that are read whenever they are needed, for more than fits in memory.

    A file that turns out to be broken is named once on stderr, and another file of
    its class takes its place.

    Args:
        paths: The files.
        labels: Their classes.
        read: Function of a path that returns a uint8 array.
        channels: Channels of every image.
        size: Height and width, if `read` gives all images one size.
    """

    def __init__(
        self,
        paths: list,
        labels: np.ndarray,
        read: Callable,
        *,
        channels: int,
        size: tuple[int, int] | None = None,
    ):
        self.paths = paths
        self.labels = labels
        self.read = read
        self.channels = channels
        self.size = size
        self.broken = {}
        self._lock = threading.Lock()

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        same_class = np.flatnonzero(self.labels == self.labels[index])
        start = np.searchsorted(same_class, index)
        for position in np.roll(same_class, -start):
            path = self.paths[position]
            try:
                return self.read(path)
            except DataError as error:
                with self._lock:
                    if path not in self.broken:
                        print(f"skipped {error}", file=sys.stderr)
                        self.broken[path] = str(error)
        raise DataError(f"no file of the class of {self.paths[index]} can be read")

    def select(self, indices: np.ndarray) -> "ImageFiles":
        """Returns a store of only some of the images."""
        return ImageFiles(
            [self.paths[index] for index in indices],
            self.labels[indices],
            self.read,
            channels=self.channels,
            size=self.size,
        )

    def tensor(self, index):
        """Returns one image as uint8."""
        import tensorflow as tf

        image = tf.numpy_function(self.__getitem__, [index], tf.uint8, stateful=False)
        return tf.ensure_shape(image, (*(self.size or (None, None)), self.channels))

    def pixels(self) -> np.ndarray:
        """Returns the pixels of some images spread over all, `(count, channels)`."""
        count = min(len(self), SAMPLED_FILES)
        picked = np.linspace(0, len(self) - 1, count).astype(int)
        return np.concatenate([self[i].reshape(-1, self.channels) for i in picked])


def memory_budget() -> int:
    """Returns how many bytes the images of a data set may take: a quarter of all.

    Example:

    >>> memory_budget() > 0
    True
    """
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (AttributeError, ValueError, OSError):
        return 2 * 2**30
