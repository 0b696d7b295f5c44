"""The fourth step of a run: Keras' `fit`, with what it needs around it."""

import keras

from cct_keras.data.pipeline import steps_per_epoch
from cct_keras.errors import RunError
from cct_keras.training.batches import RunBatches
from cct_keras.training.budget import ClockedProgress
from cct_keras.training.budget import FollowClock
from cct_keras.training.callbacks import Progress
from cct_keras.training.callbacks import Record
from cct_keras.training.callbacks import StopOnNaN
from cct_keras.training.load import Job
from cct_keras.training.results import save_weights_as_model
from cct_keras.training.run_folder import TENSORBOARD
from cct_keras.training.run_folder import RunFolder
from cct_keras.training.schedule import WarmupSchedule

# More validations than any run with a time limit has.
ENDLESS = 10**9


def make_record(
    job: Job,
    folder: RunFolder | None,
    model: keras.Model,
    schedule: WarmupSchedule,
    final: keras.Model,
    pace: FollowClock | None = None,
) -> Record:
    """The callback that keeps the history, the best weights and the snapshots.

    Args:
        job: What is to be trained.
        folder: The folder of the run, if there is one.
        model: The model whose weights are kept.
        schedule: The learning rate of each step.
        final: A model with the structure of the trained one, which is saved with
            better weights from time to time.
        pace: Sets the learning rate, if the length of the run is a time.

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
        pace=pace,
    )


def fit_model(
    job: Job,
    model: keras.Model,
    record: Record,
    batches: RunBatches,
    callbacks: tuple = (),
    *,
    advice: str | None = None,
) -> None:
    """Trains a compiled model to the end, from what `record` has restored.

    Args:
        job: What is to be trained.
        model: The model, compiled by `compile_model`.
        record: Keeps the history and the best weights.
        batches: What it is trained on.
        callbacks: Further Keras callbacks.
        advice: What to try if the loss is not a number; by default fields of the
            recipe.

    Raises:
        RunError: The loss is not a number, or another machine is lost.
    """
    devices, pace = job.devices, record.pace
    epochs, steps = job.recipe.total_epochs, batches.steps_per_epoch
    if pace is not None:
        # For `fit` an epoch is what lies between two validations.
        epochs, steps = ENDLESS, pace.budget.round_steps
    if record.is_over or len(record.history) >= epochs:
        return
    try:
        with devices.scope():
            model.fit(
                batches.training(record.steps),
                epochs=epochs,
                initial_epoch=len(record.history),
                steps_per_epoch=steps,
                shuffle=False,
                validation_data=batches.validation(),
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
            done = record.history[-1]["epoch"] if record.history else 0
            job.say(f"\ninterrupted; the same call goes on after epoch {done:g}")
        raise


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
    if record.pace is not None:
        yield record.pace
    if job.verbose and record.pace is not None:
        yield ClockedProgress(record, record.pace)
    elif job.verbose:
        steps = steps_per_epoch(len(job.data.train), recipe.batch_size)
        yield Progress(steps, recipe.total_epochs, record)
    if record.folder is not None:
        logs = record.folder.path / TENSORBOARD
        yield keras.callbacks.TensorBoard(logs, write_graph=False)
