"""The fourth step of a run: Keras' `fit`, with what it needs around it."""

import keras

from cct_keras.data.pipeline import steps_per_epoch
from cct_keras.distillation.stored_answers import StoredAnswers
from cct_keras.errors import RunError
from cct_keras.training.callbacks import Progress
from cct_keras.training.callbacks import Record
from cct_keras.training.callbacks import StopOnNaN
from cct_keras.training.load import Job
from cct_keras.training.results import save_weights_as_model
from cct_keras.training.run_folder import TENSORBOARD
from cct_keras.training.run_folder import RunFolder
from cct_keras.training.schedule import WarmupSchedule

VALIDATION_BATCH = 256


def make_record(
    job: Job,
    folder: RunFolder | None,
    model: keras.Model,
    schedule: WarmupSchedule,
    final: keras.Model,
) -> Record:
    """The callback that keeps the history, the best weights and the snapshots.

    Args:
        job: What is to be trained.
        folder: The folder of the run, if there is one.
        model: The model whose weights are kept.
        schedule: The learning rate of each step.
        final: A model with the structure of the trained one, which is saved with
            better weights from time to time.

    Returns:
        A `Record`.
    """

    def publish(best):
        with job.devices.local():
            save_weights_as_model(folder, final, best, folder.model)

    batch_size = min(job.recipe.batch_size, len(job.data.train))
    return Record(
        folder,
        student=model,
        schedule=schedule,
        images=schedule.steps_per_epoch * batch_size,
        validation_images=len(job.data.validation),
        patience=job.recipe.patience,
        publish=publish,
    )


def fit_model(
    job: Job,
    model: keras.Model,
    record: Record,
    callbacks: tuple = (),
    *,
    advice: str | None = None,
) -> None:
    """Trains a compiled model from the last snapshot, if there is one, to the end.

    Args:
        job: What is to be trained.
        model: The model, compiled by `compile_model`.
        record: Keeps the history and the best weights, and restores a snapshot.
        callbacks: Further Keras callbacks.
        advice: What to try if the loss is not a number; by default fields of the
            recipe.

    Raises:
        RunError: The loss is not a number, or another machine is lost.
    """
    recipe, devices = job.recipe, job.devices
    record.set_model(model)
    first_epoch = record.restore(devices)
    if first_epoch:
        job.say(f"going on after epoch {first_epoch} of {recipe.total_epochs}")
    if first_epoch >= recipe.total_epochs or record.is_over:
        return
    training = _training_pipeline(job, first_epoch)
    try:
        with devices.scope():
            model.fit(
                training,
                epochs=recipe.total_epochs,
                initial_epoch=first_epoch,
                steps_per_epoch=steps_per_epoch(len(job.data.train), recipe.batch_size),
                shuffle=False,
                validation_data=_validation_pipeline(job),
                callbacks=[*_own_callbacks(job, record, advice), *callbacks],
                verbose=0,
            )
    except (ValueError, RuntimeError) as error:
        if not devices.is_loss_of_host(error):
            raise
        raise RunError(
            f"lost another host after epoch {len(record.history)}; the same call "
            f"on all hosts goes on from there ({str(error).strip()[:100]})"
        ) from error
    except KeyboardInterrupt:
        if record.folder is not None:
            done = len(record.history)
            job.say(f"\ninterrupted; the same call goes on after epoch {done}")
        raise


def _training_pipeline(job, first_epoch):
    shard = job.devices.shard
    training = job.data.training_pipeline(
        job.recipe, first_epoch=first_epoch, seed=job.seed, shard=shard
    )
    if job.teacher is None:
        return training
    if not job.recipe.teacher_views:
        return job.teacher.teach(training)
    answers = StoredAnswers(
        job.teacher, job.data, job.recipe, seed=job.seed, shard=shard, say=job.say
    )
    return answers.teach(training, first_epoch)


def _validation_pipeline(job):
    batch_size = max(job.recipe.batch_size, VALIDATION_BATCH)
    devices = job.devices
    if devices.replicas == 1:
        return job.data.pipeline("validation", batch_size)
    return job.data.padded_pipeline(
        "validation", batch_size, multiple=devices.replicas, shard=devices.shard
    )


def _own_callbacks(job, record, advice):
    recipe = job.recipe
    yield StopOnNaN(
        advice
        or f"a lower rate (lr={recipe.lr / 3:.1e}), clip_norm=1 or "
        "precision='float32', each with restart=True"
    )
    yield record
    if recipe.ema is not None:
        yield keras.callbacks.SwapEMAWeights()
    if job.verbose:
        steps = steps_per_epoch(len(job.data.train), recipe.batch_size)
        yield Progress(steps, recipe.total_epochs, record)
    if record.folder is not None:
        logs = record.folder.path / TENSORBOARD
        yield keras.callbacks.TensorBoard(logs, write_graph=False)
