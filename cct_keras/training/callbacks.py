"""The callbacks that `train` adds to `fit`.

The snapshots are not those of `keras.callbacks.BackupAndRestore`, because it keeps
neither the history nor the best weights nor the random state of torch.
"""

import io
import math
import sys
import time
from collections.abc import Callable

import keras
import numpy as np

from cct_keras.distributed.devices import Devices
from cct_keras.errors import DivergedError
from cct_keras.errors import RunError
from cct_keras.training.random_state import set_torch_random_states
from cct_keras.training.random_state import torch_random_states
from cct_keras.training.run_folder import RunFolder
from cct_keras.training.run_folder import read_snapshot
from cct_keras.training.run_folder import write_snapshot
from cct_keras.training.schedule import WarmupSchedule


class Record(keras.callbacks.Callback):
    """Keeps the history and the best weights, and writes both into snapshots.

    The weights that count are those that validation has seen: averaged weights are
    swapped in for that time only. The best epoch is the one with the highest accuracy
    or, among accuracies that so many validation images cannot tell apart, the one with
    the lowest loss.

    Args:
        folder: The folder for the snapshots, or `None`.
        student: The model whose weights are kept. `fit` may train another model with
            the same weights, see `two_heads`.
        schedule: Learning rate of each step.
        images: Images in an epoch.
        validation_images: Number of validation images.
        patience: Epochs without a better validation after which training ends.
        publish: Called with better weights, at most once a minute.
        pace: What sets the learning rate and ends the run, if its length is a time.
    """

    def __init__(
        self,
        folder: RunFolder | None,
        *,
        student: keras.Model,
        schedule: WarmupSchedule,
        images: int,
        validation_images: int,
        patience: int | None,
        publish: Callable,
        pace=None,
    ):
        super().__init__()
        self.folder = folder
        self.student = student
        self.schedule = schedule
        self.images = images
        self.validation_images = validation_images
        self.patience = patience
        self.publish = publish
        self.pace = pace
        self.steps = 0
        self._published = time.perf_counter()
        self.history = []
        self.best = None
        self.best_epoch = 0
        self.last = None
        self._random_states = []

    def on_epoch_begin(self, epoch, logs=None):
        self._start = time.perf_counter()
        self._first_step = self.steps

    def on_train_batch_begin(self, batch, logs=None):
        # Not earlier, because `fit` and its iterator draw random numbers as they start.
        set_torch_random_states(self._random_states)
        self._random_states = []

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1

    def on_test_begin(self, logs=None):
        self._trained = time.perf_counter()

    def on_test_end(self, logs=None):
        self.last = self.student.get_weights()

    def on_epoch_end(self, epoch, logs=None):
        now = time.perf_counter()
        number = epoch + 1 if self.pace is None else self.epoch
        row = {"epoch": number, **{k: float(v) for k, v in (logs or {}).items()}}
        steps = self.steps - self._first_step
        images = steps * self.images / self.schedule.steps_per_epoch
        last_step = (epoch + 1) * self.schedule.steps_per_epoch - 1
        row["learning_rate"] = (
            float(self.schedule(last_step)) if self.pace is None else self.pace.rate
        )
        row["seconds"] = now - self._start
        row["images_per_second"] = images / (self._trained - self._start)
        if self.pace is not None:
            row["minutes"] = round(self.pace.clock.seconds / 60, 4)
        self.history.append(row)
        if self.best is None or self._is_better(row):
            self.best = self.last
            self.best_epoch = row["epoch"]
        if self.is_over:
            self.model.stop_training = True
        if self.folder is not None:
            self._save(epoch + 1)

    def start_from(self, random_states: list[np.ndarray]) -> None:
        """Lets the first step draw what it draws in a run that nobody has measured.

        Args:
            random_states: States of torch's generators. Those of a snapshot stay.
        """
        self._random_states = self._random_states or random_states

    @property
    def epoch(self) -> int | float:
        """Epochs that are complete; with a share of one if it was ended before."""
        epochs = self.steps / self.schedule.steps_per_epoch
        return int(epochs) if epochs.is_integer() else float(f"{epochs:.6g}")

    def _is_better(self, row):
        accuracy, best = row["val_accuracy"], self.best_row["val_accuracy"]
        variance = max(best * (1 - best), 1e-12) / self.validation_images
        if abs(accuracy - best) > variance**0.5:
            return accuracy > best
        return row["val_loss"] < self.best_row["val_loss"]

    @property
    def best_row(self) -> dict:
        """The entry of the best epoch in the history."""
        return next(row for row in self.history if row["epoch"] == self.best_epoch)

    @property
    def is_over(self) -> bool:
        """Whether training has to end because of `patience` or of the time."""
        if self.history and self.pace is not None and self.pace.is_over:
            return True
        return bool(
            self.patience
            and self.history
            and self.history[-1]["epoch"] - self.best_epoch >= self.patience
        )

    def _save(self, epoch):
        arrays = {f"model_{i}": x for i, x in enumerate(_values(self.student))}
        arrays |= {
            f"optimizer_{i}": x for i, x in enumerate(_values(self.model.optimizer))
        }
        arrays |= {f"best_{i}": x for i, x in enumerate(self.best)}
        arrays |= {f"last_{i}": x for i, x in enumerate(self.last)}
        arrays |= {f"random_{i}": x for i, x in enumerate(torch_random_states())}
        state = {"history": self.history, "best_epoch": self.best_epoch}
        state["steps"] = self.steps
        try:
            self.folder.save_snapshot(epoch, arrays, state)
            self.folder.write_history(self.history)
            is_best = self.best_row is self.history[-1]
            if is_best and time.perf_counter() - self._published > 60:
                self.publish(self.best)
                self._published = time.perf_counter()
        except OSError as error:
            # The snapshot before remains, and the next epoch may find space again.
            print(
                f"cannot write to {self.folder.path} ({error.strerror or error}); "
                "training goes on, but if it were killed now, this epoch would be lost",
                file=sys.stderr,
            )

    def restore(self, devices: Devices) -> int:
        """Restores the newest snapshot of the folder, if there is one.

        Args:
            devices: The devices of the run. The first machine sends its snapshot to
                the others.

        Returns:
            How many epochs are complete; or rounds, if the length of the run is a
            time.
        """
        found = None if self.folder is None else self.folder.load_snapshot()
        for remark in found[2] if found else ():
            print(f"{self.folder.path}: {remark}", file=sys.stderr)
        if devices.hosts > 1:
            content = io.BytesIO()
            if found is not None:
                write_snapshot(content, *found[:2])
            content = devices.broadcast(content.getvalue())
            found = read_snapshot(io.BytesIO(content)) if content else None
        if found is None:
            return 0
        arrays, state = found[:2]
        _assign(self.student, "model", arrays)
        _assign(self.model.optimizer, "optimizer", arrays)
        self._random_states = [
            x for name, x in sorted(arrays.items()) if name.startswith("random_")
        ]
        count = len(self.student.get_weights())
        self.best = [arrays[f"best_{i}"] for i in range(count)]
        self.last = [arrays[f"last_{i}"] for i in range(count)]
        self.history = state["history"]
        self.best_epoch = state["best_epoch"]
        self.steps = len(self.history) * self.schedule.steps_per_epoch
        if self.pace is not None:
            self.steps = state["steps"]
            self.pace.clock.advance_to(60 * self.history[-1]["minutes"])
        return len(self.history)


def _values(holder):
    """Values of all variables; bfloat16 as float32, because NumPy cannot store it."""
    values = [keras.ops.convert_to_numpy(v) for v in holder.variables]
    return [v.astype("float32") if v.dtype.kind == "V" else v for v in values]


def _assign(holder, kind, arrays):
    variables = holder.variables
    for index, variable in enumerate(variables):
        value = arrays.get(f"{kind}_{index}")
        if value is None or value.shape != tuple(variable.shape):
            raise RunError(
                f"the snapshot does not fit the {kind} (at {variable.path}): it was "
                "written by another version; restart=True throws the run away"
            )
        variable.assign(value)


class StopOnNaN(keras.callbacks.Callback):
    """Ends the run at the first loss that is not a number.

    `keras.callbacks.TerminateOnNaN` does not look at the validation, where the last
    step of an epoch shows.

    Args:
        advice: What to try, in a few words.
    """

    def __init__(self, advice: str):
        super().__init__()
        self.advice = advice

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        loss = float((logs or {}).get("loss", 0.0))
        if not math.isfinite(loss):
            raise DivergedError(
                f"the loss is {loss} at epoch {self.epoch + 1}, step {batch + 1}. "
                f"Try {self.advice}"
            )

    def on_test_end(self, logs=None):
        # What the last step of an epoch has spoiled shows only in the validation.
        loss = float((logs or {}).get("loss", 0.0))
        if not math.isfinite(loss):
            raise DivergedError(
                f"the validation loss is {loss} after epoch {self.epoch + 1}. "
                f"Try {self.advice}"
            )


class Progress(keras.callbacks.Callback):
    """Shows a bar on a terminal, and a line for each epoch, with the time left.

    The bar of Keras cannot show the time that is left of all epochs.

    Args:
        steps: Steps in an epoch.
        epochs: Number of all epochs.
        record: Its history tells how long an epoch takes.
    """

    def __init__(self, steps: int, epochs: int, record: Record):
        super().__init__()
        self.steps = steps
        self.epochs = epochs
        self.record = record
        self.terminal = sys.stdout.isatty()

    def on_epoch_begin(self, epoch, logs=None):
        self._title = self._title_of(epoch)
        self._start = self._shown = time.perf_counter()

    def _title_of(self, epoch):
        return f"epoch {epoch + 1:>{len(str(self.epochs))}}/{self.epochs}"

    def on_train_batch_end(self, batch, logs=None):
        now = time.perf_counter()
        if not self.terminal or now - self._shown < 0.2:
            return
        self._shown = now
        share = (batch + 1) / self.steps
        bar = "━" * round(20 * share) + "─" * (20 - round(20 * share))
        left = self._time_left(share, now)
        rate = self._rate(batch)
        text = f"{self._title} {bar} {_metrics(logs)}  lr {rate:.1e}  {left}"
        print(f"\r\x1b[2K{text}", end="", flush=True)

    def on_epoch_end(self, epoch, logs=None):
        row = self.record.history[-1]
        best = " *" if self.record.best_row is row else ""
        clear = "\r\x1b[2K" if self.terminal else ""
        print(
            f"{clear}{self._title_of(epoch)}  {_metrics(row)}  "
            f"lr {row['learning_rate']:.1e}  {row['seconds']:.1f} s  "
            f"{self._time_left_after_epoch()}{best}",
            flush=True,
        )

    def _rate(self, batch):
        step = len(self.record.history) * self.steps + batch
        return float(self.record.schedule(step))

    def _time_left(self, share, now):
        typical = self._typical_seconds() or (now - self._start) / share
        epochs = self.epochs - len(self.record.history) - share
        return f"{duration(max(0, epochs) * typical)} left"

    def _time_left_after_epoch(self):
        epochs = self.epochs - len(self.record.history)
        return f"{duration(epochs * self._typical_seconds())} left"

    def _typical_seconds(self):
        # Without the first epoch, which also compiles.
        seconds = [row["seconds"] for row in self.record.history]
        return float(np.median(seconds[1:] or seconds)) if seconds else 0.0


def _metrics(logs):
    names = ("loss", "accuracy", "val_loss", "val_accuracy")
    return "  ".join(f"{name} {logs[name]:.4f}" for name in names if name in logs)


def duration(seconds: float) -> str:
    """A number of seconds as hours, minutes and seconds.

    Args:
        seconds: The number.

    Returns:
        Such as `1:02:03` or `2:03`.

    Example:

    >>> duration(123)
    '2:03'
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
