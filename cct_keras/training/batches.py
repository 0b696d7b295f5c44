"""The batches of a run: what `fit` takes, and what is measured before it."""

import dataclasses
import time
from collections.abc import Callable

import numpy as np

from cct_keras.data.augmentation.settings import MANY_EPOCHS
from cct_keras.data.pipeline import steps_per_epoch
from cct_keras.distillation.stored_answers import StoredAnswers
from cct_keras.distillation.stored_answers import answers_path
from cct_keras.distillation.teacher import add_logits
from cct_keras.training.load import Job

VALIDATION_BATCH = 256
# More epochs than any run with a time limit has.
ENDLESS = 2**31


class RunBatches:
    """Training and validation batches of a run.

    What is slow to make is made once: answers of the teacher that are kept, and images
    that are brought to the size of the model before the training.

    Args:
        job: What is to be trained.
        mixes: Says for each batch whether it may be mixed, if the length of the run is
            a time.
        dry: Whether nothing is trained, so that no answers are to be kept.
    """

    def __init__(
        self,
        job: Job,
        mixes: Callable[[], bool] | None = None,
        *,
        dry: bool = False,
    ):
        self.job = job
        self.mixes = mixes
        self.dry = dry
        self.steps_per_epoch = steps_per_epoch(
            len(job.data.train), job.recipe.batch_size
        )
        self._training = {}
        self._answers = None
        self._recipe = job.recipe

    def plan_epochs(self, epochs: float) -> None:
        """Says for how many epochs there is time, which may decide the augmentation."""
        if self._recipe.augment == "auto-long":
            augment = "auto-color" if epochs >= MANY_EPOCHS else "none"
            self._recipe = dataclasses.replace(self._recipe, augment=augment)
            self._training, self._answers = {}, None

    def training(self, first_step: int = 0):
        """Training batches from a step on.

        Args:
            first_step: Steps that are done.

        Returns:
            A `tf.data.Dataset`.
        """
        if self.job.recipe.augment == "keras_cv":
            # It draws on with every use.
            return self._make_training(first_step)
        if first_step not in self._training:
            self._training = {first_step: self._make_training(first_step)}
        return self._training[first_step]

    def _make_training(self, first_step):
        job = self.job
        epoch, step = divmod(first_step, self.steps_per_epoch)
        training = job.data.training_pipeline(
            self._recipe,
            first_epoch=epoch,
            epochs=None if job.minutes is None else ENDLESS,
            first_step=step,
            mixes=self.mixes,
            **self._draws,
        )
        if job.recipe.teacher is None:
            return training
        if job.teacher is None or (self.dry and job.recipe.teacher_views):
            # Only the steps are timed.
            return add_logits(training, lambda x, y: (x, y, y), np.zeros_like)
        if not job.recipe.teacher_views:
            return job.teacher.teach(training)
        if self._answers is None:
            self._answers = StoredAnswers(
                job.teacher, job.data, self._recipe, **self._draws, say=job.say
            )
        return self._answers.teach(training, epoch, step)

    @property
    def _draws(self):
        """What decides the images of an epoch."""
        return {"seed": self.job.seed, "shard": self.job.devices.shard}

    def answering_seconds(self) -> float:
        """About how long the teacher's answers take that are not kept yet."""
        job = self.job
        if job.teacher is None or not job.recipe.teacher_views:
            return 0.0
        if answers_path(job.teacher, job.data, self._recipe, **self._draws).exists():
            return 0.0
        size = (min(job.recipe.batch_size, len(job.data.train)), *job.data.input_shape)
        images, seconds = np.zeros(size, "float32"), []
        for _ in range(2):
            start = time.perf_counter()
            job.teacher(images)
            seconds.append(time.perf_counter() - start)
        epochs = min(job.recipe.teacher_views, job.recipe.total_epochs)
        return epochs * self.steps_per_epoch * min(seconds)

    @property
    def validation_batch(self) -> int:
        """Images in a batch of the validation."""
        return max(self.job.recipe.batch_size, VALIDATION_BATCH)

    def validation(self):
        """Validation batches.

        Returns:
            A `tf.data.Dataset`.
        """
        data, devices = self.job.data, self.job.devices
        if devices.replicas == 1:
            return data.pipeline("validation", self.validation_batch)
        return data.padded_pipeline(
            "validation",
            self.validation_batch,
            multiple=devices.replicas,
            shard=devices.shard,
        )
