"""Teachers: any model or function whose logits a student learns from."""

import hashlib
from collections.abc import Callable
from collections.abc import Sequence

import keras
import numpy as np

from cct_keras.errors import DataError
from cct_keras.layers.preprocessing import Preprocessing

# Probabilities in float16 or bfloat16 do not sum to exactly one.
SUM_TOLERANCE = 0.02


class Teacher:
    """A classifier of raw images whose logits a student learns from.

    Args:
        source: A Keras model, or a function of an array `(batch, height, width,
            channels)`, float32 with values from 0 to 255. It returns logits or
            probabilities, which are turned into logits by their logarithms. A model
            with a `Preprocessing` layer, as `train` saves them, brings images to its
            own size and names its classes; any other model gets the images as they
            are.
        images: Some images to try it with, `(batch, height, width, channels)`.
        class_names: Names of the classes in the order of the labels.

    Raises:
        DataError: The teacher does not take such images, or does not return one
            finite number for each class.

    Example:

    >>> images = np.zeros((4, 8, 8, 1), "float32")
    >>> teacher = Teacher(lambda x: x.mean((1, 2)) + [[0.0, 2.0]], images, ["a", "b"])
    >>> teacher(images)[0].tolist()
    [0.0, 2.0]
    """

    def __init__(
        self,
        source: keras.Model | Callable,
        images: np.ndarray,
        class_names: Sequence[str],
    ):
        self.source = source
        self.name = teacher_name(source)
        self.num_classes = len(class_names)
        self._columns = None
        if isinstance(source, keras.Model):
            _check_input(source, images.shape)
            self._columns = _columns_of_classes(source, tuple(class_names))
        outputs = self._outputs(images)
        sums = outputs.sum(-1)
        self.gives_probabilities = bool(
            outputs.min() >= 0 and np.abs(sums - 1).max() <= SUM_TOLERANCE
        )

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """Logits of images, float32, with the classes in the order of the labels."""
        outputs = self._outputs(images)
        if self.gives_probabilities:
            outputs = np.log(np.maximum(outputs, np.finfo("float32").tiny))
        return outputs if self._columns is None else outputs[:, self._columns]

    def _outputs(self, images):
        if isinstance(self.source, keras.Model):
            outputs = self.source.predict_on_batch(images)
        else:
            outputs = self.source(images)
        shape = tuple(getattr(outputs, "shape", ()))
        if shape != (len(images), self.num_classes):
            received = f"shape {shape}" if shape else type(outputs).__name__
            raise DataError(
                f"`teacher` must return an array of shape "
                f"{(len(images), self.num_classes)} for {len(images)} images, with a "
                f"column for each class of the data. Received: {received}"
            )
        outputs = keras.ops.convert_to_numpy(outputs).astype("float32")
        if not np.isfinite(outputs).all():
            raise DataError(
                "`teacher` must return finite numbers. Received: nan or inf"
            )
        return outputs

    def teach(self, dataset):
        """Adds the teacher's logits to the labels of a data set.

        Args:
            dataset: A `tf.data.Dataset` of batches `(images, one-hot labels)`.

        Returns:
            A `tf.data.Dataset` of `(images, labels and logits side by side)`, in the
            same order. The teacher works a batch ahead, in a thread of its own.
        """
        return add_logits(
            dataset, lambda images, labels: (images, labels, images), self
        )


def teacher_name(source) -> str:
    """The name of a teacher that is not a file, for the record of a run.

    A model is known by its weights, because the names of models and layers depend on
    what else a session has built. A function is known by its name.

    Args:
        source: A Keras model or a function.

    Returns:
        The name.

    Example:

    >>> teacher_name(teacher_name)
    'teacher_name'
    """
    if not isinstance(source, keras.Model):
        return getattr(source, "__qualname__", type(source).__qualname__)
    total = hashlib.blake2b(digest_size=16)
    for weight in source.weights:
        value = np.ascontiguousarray(keras.ops.convert_to_numpy(weight))
        total.update(f"{value.dtype}{value.shape}".encode())
        total.update(value.tobytes())
    return f"model {total.hexdigest()}"


def add_logits(dataset, split_element: Callable, find_logits: Callable):
    """Puts logits beside the labels of a data set.

    Args:
        dataset: A `tf.data.Dataset`.
        split_element: A function that makes of an element of the data set the images,
            the labels, and what `find_logits` takes.
        find_logits: A function that is called with that, as a NumPy array, and
            returns the logits.

    Returns:
        A `tf.data.Dataset` of `(images, labels and logits side by side)`.

    Example:

    >>> import tensorflow as tf
    >>> dataset = tf.data.Dataset.from_tensors((np.ones((1, 2)), np.eye(1, 2)))
    >>> taught = add_logits(dataset, lambda x, y: (x, y, x), np.float32)
    >>> next(taught.as_numpy_iterator())[1].tolist()
    [[1.0, 0.0, 1.0, 1.0]]
    """
    import tensorflow as tf

    def add(*element):
        images, labels, question = split_element(*element)
        logits = tf.numpy_function(find_logits, [question], tf.float32)
        logits.set_shape(labels.shape)
        return images, tf.concat([tf.cast(labels, tf.float32), logits], axis=-1)

    add = tf.autograph.experimental.do_not_convert(add)
    return dataset.map(add).prefetch(2)


def _check_input(model, shape):
    # A model that is not built yet has none.
    expected = getattr(model, "input_shape", None)
    if not isinstance(expected, tuple) or len(expected) != 4:
        raise DataError(
            "`teacher` must take one batch of images (batch, height, width, channels). "
            f"Received: a model with input_shape={expected}"
        )
    if any(e not in (None, s) for e, s in zip(expected[1:], shape[1:], strict=True)):
        raise DataError(
            f"`teacher` takes images of shape {expected[1:]}, and those of the data "
            f"are {tuple(shape[1:])}: with a cct_keras.layers.Preprocessing layer in "
            "front it takes images of any size"
        )


def _columns_of_classes(model, class_names):
    """The teacher's column of each class of the data.

    It is `None` if the teacher has the same order, or does not name its classes.
    """
    layers = [layer for layer in model.layers if isinstance(layer, Preprocessing)]
    names = layers[0].class_names if layers else None
    if names is None or names == class_names:
        return None
    if sorted(names) != sorted(class_names):
        other = sorted(set(names) ^ set(class_names))
        raise DataError(
            f"`teacher` knows {len(names)} classes, but not the {len(class_names)} "
            f"classes of the data; not in both: {', '.join(other[:10])}"
        )
    return [names.index(name) for name in class_names]
