"""A teacher's logits that are computed once and kept on disk."""

import dataclasses
import hashlib
import json
import pathlib
import time
from collections.abc import Callable
from collections.abc import Iterator

import numpy as np

from cct_keras.atomic_file import TEMPORARY
from cct_keras.atomic_file import atomic_file
from cct_keras.cache import cache_folder
from cct_keras.cache import only_one_process
from cct_keras.data.augmentation.settings import Augmentation
from cct_keras.data.dataset import Dataset
from cct_keras.data.pipeline import steps_per_epoch
from cct_keras.distillation.teacher import Teacher
from cct_keras.distillation.teacher import add_logits
from cct_keras.errors import RunError
from cct_keras.recipes.recipe import Recipe

FILE_NAME = "logits.npy"


class StoredAnswers:
    """A teacher's logits for the first epochs of a training pipeline.

    The images of an epoch are decided by the seed and the number of the epoch alone.
    So the logits of the first `teacher_views` epochs can be computed once, and with
    them the pipeline repeats these epochs with the same images in the same order. The
    logits are kept in the cache, where every later run with the same data, teacher,
    augmentation and seed finds them, whatever its student is.

    Args:
        teacher: The teacher.
        data: The data.
        recipe: The recipe, with `teacher_views` above 0.
        seed: Seed of the run.
        shard: Number of this machine, and how many machines share a batch.
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
        self.epochs = min(recipe.teacher_views, recipe.total_epochs)
        self.steps_per_epoch = steps_per_epoch(len(data.train), recipe.batch_size)
        batch_size = min(recipe.batch_size, len(data.train)) // shard[1]
        shape = (self.epochs * self.steps_per_epoch, batch_size, data.num_classes)

        def batches(epochs) -> Iterator:
            pipeline = data.training_pipeline(
                recipe, epochs=epochs, seed=seed, shard=shard
            )
            return (images for images, _ in pipeline.as_numpy_iterator())

        self.path = answers_path(teacher, data, recipe, seed=seed, shard=shard)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with only_one_process(self.path.parent):
                for leftover in self.path.parent.glob(f"{TEMPORARY}*"):
                    leftover.unlink()
                stored = _read(self.path, shape)
                # The key knows a function by its name only, and a later version of
                # the package may augment in another way.
                if stored is None or not np.allclose(
                    stored[0], teacher(next(batches(1))), rtol=1e-2, atol=1e-2
                ):
                    self._write(teacher, batches(self.epochs), shape, say)
                self.logits = np.load(self.path, mmap_mode="r")
        except OSError as error:
            raise RunError(
                f"cannot keep the teacher's answers in {self.path.parent} ({error}); "
                "with teacher_views=0 it answers during training"
            ) from error

    def _write(self, teacher, batches, shape, say):
        started = time.perf_counter()
        say(f"the teacher answers once for {self.epochs} epoch(s): {self.path}")
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        # Not through a memory map, where a full disk kills the process.
        with atomic_file(self.path) as temporary, temporary.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for number, images in enumerate(batches, 1):
                file.write(teacher(images).astype("<f4").tobytes())
                epoch, step = divmod(number, self.steps_per_epoch)
                if step == 0:
                    seconds = time.perf_counter() - started
                    say(f"answers of epoch {epoch}/{self.epochs}  {seconds:.1f} s")

    def teach(self, dataset, first_epoch: int = 0, first_step: int = 0):
        """Adds the stored logits to the labels, as `Teacher.teach` does.

        Args:
            dataset: The training pipeline of the recipe.
            first_epoch: Epoch with which the pipeline begins.
            first_step: Batch of that epoch with which it begins.

        Returns:
            A `tf.data.Dataset` of `(images, labels and logits side by side)`.
        """
        import tensorflow as tf

        first_batch = first_epoch * self.steps_per_epoch + first_step
        numbered = tf.data.Dataset.zip(
            (dataset, tf.data.Dataset.range(first_batch, np.iinfo("int64").max))
        )
        return add_logits(
            numbered, lambda batch, number: (*batch, number), self._find_logits
        )

    def _find_logits(self, number):
        return np.asarray(self.logits[number % len(self.logits)])


def answers_path(
    teacher: Teacher,
    data: Dataset,
    recipe: Recipe,
    *,
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
) -> pathlib.Path:
    """Where `StoredAnswers` keeps its logits, whether they are there or not.

    Args:
        teacher: The teacher.
        data: The data.
        recipe: The recipe.
        seed: Seed of the run.
        shard: Number of this machine, and how many machines share a batch.
    """
    epochs = min(recipe.teacher_views, recipe.total_epochs)
    key = _cache_key(teacher, data, recipe, epochs, seed, shard)
    return cache_folder() / "teachers" / key / FILE_NAME


def _cache_key(teacher, data, recipe, epochs, seed, shard):
    """A hash of everything that decides which images the teacher sees, and its name."""
    fields = ["batch_size", *(x.name for x in dataclasses.fields(Augmentation))]
    facts = {
        "teacher": teacher.name,
        "data": data.fingerprint,
        "classes": data.class_names,
        "images": (data.image_size, data.channels, data.crop, data.mean, data.std),
        "recipe": {name: getattr(recipe, name) for name in fields},
        "seed": (seed, epochs, shard),
    }
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _read(path: pathlib.Path, shape):
    """The stored logits, if the file is there and complete."""
    try:
        stored = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None
    return stored if stored.shape == shape and stored.dtype == "<f4" else None
