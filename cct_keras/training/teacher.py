"""Teachers: any model or function as logits for a student, asked live or once."""

import hashlib
import json
import pathlib
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence

import keras
import numpy as np

from cct_keras.atomic_file import TEMPORARY
from cct_keras.atomic_file import atomic_file
from cct_keras.data import DataError
from cct_keras.data import Dataset
from cct_keras.data.pipeline import steps_per_epoch
from cct_keras.download import cache_folder
from cct_keras.download import only_one_process
from cct_keras.layers import Preprocessing
from cct_keras.training.metrics import SUM_TOLERANCE
from cct_keras.training.recipe import Recipe
from cct_keras.training.run_folder import RunError

# What decides the images of a training pipeline, beside data and seed.
VIEW_FIELDS = (
    "batch_size",
    "repeats",
    "mixup",
    "cutmix",
    "mix_prob",
    "mix_switch_prob",
    "mix_off_epoch",
    "crop",
    "crop_scale",
    "crop_padding",
    "flip",
    "augment",
    "erase_prob",
)
ANSWERS = "logits.npy"


class Teacher:
    """A classifier of raw images as a source of logits.

    Args:
        source: A Keras model, or a function of an array `(batch, height, width,
            channels)`, float32 with values from 0 to 255. It returns logits or
            probabilities, which become their logarithms. A model with a
            `Preprocessing` layer, as `train` saves them, brings images to its own
            size and names its classes; another one gets them as they are.
        images: Some images it is tried with.
        class_names: Names of the classes in the order of the labels.
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
        self._order = None
        if isinstance(source, keras.Model):
            _check_input(source, images.shape)
            self._order = _order_of_classes(source, tuple(class_names))
        answers = self._ask(images)
        sums = answers.sum(-1)
        self.gives_probabilities = bool(
            answers.min() >= 0 and np.abs(sums - 1).max() <= SUM_TOLERANCE
        )

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """Logits of images, float32, in the order of the labels."""
        answers = self._ask(images)
        if self.gives_probabilities:
            answers = np.log(np.maximum(answers, np.finfo("float32").tiny))
        return answers if self._order is None else answers[:, self._order]

    def _ask(self, images):
        if isinstance(self.source, keras.Model):
            answers = self.source.predict_on_batch(images)
        else:
            answers = self.source(images)
        shape = tuple(getattr(answers, "shape", ()))
        if shape != (len(images), self.num_classes):
            received = f"shape {shape}" if shape else type(answers).__name__
            raise DataError(
                f"`teacher` must answer {len(images)} images with an array of shape "
                f"{(len(images), self.num_classes)}, a column a class of the data. "
                f"Received: {received}"
            )
        answers = keras.ops.convert_to_numpy(answers).astype("float32")
        if not np.isfinite(answers).all():
            raise DataError("`teacher` answers with numbers that are not finite")
        return answers

    def teach(self, dataset):
        """A data set whose targets are the labels and the teacher's logits.

        Args:
            dataset: A `tf.data.Dataset` of batches `(images, one-hot labels)`.

        Returns:
            A `tf.data.Dataset` of `(images, labels and logits side by side)`, in the
            same order. The teacher works a batch ahead, in a thread of its own.
        """
        return _widen(dataset, lambda images, labels: (images, labels, images), self)


def teacher_name(source) -> str:
    """What a run calls its teacher, if it is not a file.

    A model is known by its weights: names of models and layers depend on what else a
    session has built.
    """
    if not isinstance(source, keras.Model):
        return getattr(source, "__qualname__", type(source).__qualname__)
    total = hashlib.blake2b(digest_size=16)
    for weight in source.weights:
        value = np.ascontiguousarray(keras.ops.convert_to_numpy(weight))
        total.update(f"{value.dtype}{value.shape}".encode())
        total.update(value.tobytes())
    return f"model {total.hexdigest()}"


def _check_input(model, shape):
    expected = model.input_shape
    if not isinstance(expected, tuple) or len(expected) != 4:
        raise DataError(
            "`teacher` must take one batch of images (batch, height, width, channels). "
            f"Received: a model with input_shape={expected}"
        )
    if any(e not in (None, s) for e, s in zip(expected[1:], shape[1:], strict=True)):
        raise DataError(
            f"`teacher` takes images of shape {expected[1:]}, and the data are of "
            f"{tuple(shape[1:])}: with cct_keras.layers.Preprocessing in front it "
            "would take all sizes"
        )


def _order_of_classes(model, class_names):
    """The teacher's column of every class; `None` if they are in order, or unnamed."""
    layers = [layer for layer in model.layers if isinstance(layer, Preprocessing)]
    names = layers[0].class_names if layers else None
    if names is None or names == class_names:
        return None
    if sorted(names) != sorted(class_names):
        other = sorted(set(names) ^ set(class_names))
        raise DataError(
            f"`teacher` knows {len(names)} classes, but not those of the data, which "
            f"are {len(class_names)}; not in both: {', '.join(other[:10])}"
        )
    return [names.index(name) for name in class_names]


def _widen(dataset, parts, ask):
    """Puts logits beside the labels.

    Args:
        dataset: Any `tf.data.Dataset`.
        parts: Images, labels and what to ask for, from an element of it.
        ask: From that, in NumPy, to logits.
    """
    import tensorflow as tf

    def add(*element):
        images, labels, question = parts(*element)
        logits = tf.numpy_function(ask, [question], tf.float32)
        logits.set_shape(labels.shape)
        return images, tf.concat([tf.cast(labels, tf.float32), logits], axis=-1)

    add = tf.autograph.experimental.do_not_convert(add)
    return dataset.map(add).prefetch(2)


# === Answers on disk ===


class StoredAnswers:
    """A teacher's logits of the first epochs of a training pipeline.

    What an epoch sees is a function of the seed and its number, so the logits of as
    many epochs as there are view sets can be computed once; with them the pipeline
    repeats these epochs, order and all. They are kept in the cache, where other runs
    with the same data, teacher, augmentation and seed find them, whatever the student.

    Args:
        teacher: The teacher.
        data: The data.
        recipe: The recipe, with `teacher_views`.
        seed: Seed of the run.
        shard: Which part of every batch, of how many.
        say: Called with a line about the progress.
    """

    def __init__(
        self,
        teacher: Teacher,
        data: Dataset,
        recipe: Recipe,
        *,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
        say: Callable[[str], None] = print,
    ):
        self.views = min(recipe.teacher_views, recipe.total_epochs)
        self.steps = steps_per_epoch(len(data.train), recipe.batch_size)
        batch = min(recipe.batch_size, len(data.train)) // shard[1]
        shape = (self.views * self.steps, batch, data.num_classes)

        def batches(epochs) -> Iterator:
            pipeline = data.training_pipeline(
                recipe, epochs=epochs, seed=seed, shard=shard
            )
            return (images for images, _ in pipeline.as_numpy_iterator())

        key = _key(teacher, data, recipe, self.views, seed, shard)
        self.path = cache_folder() / "teachers" / key / ANSWERS
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with only_one_process(self.path.parent):
                for leftover in self.path.parent.glob(f"{TEMPORARY}*"):
                    leftover.unlink()
                stored = _read(self.path, shape)
                # A function has no hash; and a later version may augment otherwise.
                if stored is None or not np.allclose(
                    stored[0], teacher(next(batches(1))), rtol=1e-2, atol=1e-2
                ):
                    self._write(teacher, batches(self.views), shape, say)
                self.logits = np.load(self.path, mmap_mode="r")
        except OSError as error:
            raise RunError(
                f"cannot keep the teacher's answers in {self.path.parent} ({error}); "
                "with --teacher-views 0 it answers in every epoch"
            ) from error

    def _write(self, teacher, batches, shape, say):
        started = time.perf_counter()
        say(f"the teacher answers once for {self.views} view set(s): {self.path}")
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        # Not through a memory map, in which a full disk is a crash and not an error.
        with atomic_file(self.path) as temporary, temporary.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for number, images in enumerate(batches, 1):
                file.write(teacher(images).astype("<f4").tobytes())
                if number % self.steps == 0:
                    seconds = time.perf_counter() - started
                    say(
                        f"view set {number // self.steps}/{self.views}  {seconds:.1f} s"
                    )

    def teach(self, dataset, first_epoch: int = 0):
        """As `Teacher.teach`, for the training pipeline from an epoch on."""
        import tensorflow as tf

        first = first_epoch * self.steps
        numbered = tf.data.Dataset.zip(
            (dataset, tf.data.Dataset.range(first, np.iinfo("int64").max))
        )
        return _widen(numbered, lambda batch, number: (*batch, number), self._look_up)

    def _look_up(self, number):
        return np.asarray(self.logits[number % len(self.logits)])


def _key(teacher, data, recipe, views, seed, shard):
    facts = {
        "teacher": teacher.name,
        "data": data.fingerprint,
        "classes": data.class_names,
        "images": (data.image_size, data.channels, data.crop, data.mean, data.std),
        "recipe": {name: getattr(recipe, name) for name in VIEW_FIELDS},
        "seed": (seed, views, shard),
    }
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _read(path: pathlib.Path, shape):
    """The answers, if they are there and whole."""
    try:
        stored = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None
    return stored if stored.shape == shape and stored.dtype == "<f4" else None
