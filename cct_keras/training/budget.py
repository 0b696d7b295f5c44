"""A budget in minutes: a run that ends on time, whatever its machine does meanwhile.

The steps of such a run are not counted beforehand. What share of the time has passed
decides the learning rate, and everything else that a recipe counts in epochs; when the
time of the training is over, it ends in the middle of an epoch, so that there is time
for the last validation, the test and the report.
"""

import dataclasses
import math
import time

import keras
import numpy as np

from cct_keras.errors import RunError
from cct_keras.recipes.recipe import Recipe
from cct_keras.training.callbacks import Progress
from cct_keras.training.callbacks import Record
from cct_keras.training.callbacks import duration
from cct_keras.training.clock import Clock
from cct_keras.training.schedule import WarmupSchedule

# Validation may take this share of the time between two of them.
VALIDATION_SHARE = 0.1
# A run is validated so many times at least, and at most.
FEWEST_ROUNDS, MOST_ROUNDS = 5, 200
# The learning rate changes so many times in a run. On JAX a change brings the state of
# a step, which `fit` keeps to itself within an epoch, back into the variables.
CHANGES = {"jax": 200}
MOST_CHANGES = 1000
# The last validations tell how much slower or faster the machine has become, up to
# this factor. The first may have compiled something.
TYPICAL_OF = 5
MOST_SLOWDOWN = 4.0
# Of validations that are shorter than this, the time says little.
UNCERTAIN_SECONDS = 0.2


class TooShort(RunError):
    """There is no time for a single step."""


@dataclasses.dataclass(frozen=True)
class Budget:
    """How a run divides its time.

    Between two validations lies a round. It has whole epochs, unless an epoch is so
    long that there would be too few validations.

    Attributes:
        seconds: Of the whole run.
        begun: Seconds that had passed when the first step began.
        step: Seconds of a step.
        validation: Seconds of a validation.
        snapshot: Seconds of a snapshot.
        finish: Seconds of the test and of the report.
        steps_per_epoch: Batches in an epoch.
        round_steps: Steps between two validations.

    Example:

    >>> budget = make_budget(
    ...     10, now=20, step=0.1, validation=1, finish=9, steps_per_epoch=200
    ... )
    >>> budget.end, budget.round_steps, round(budget.epochs, 1)
    (590.0, 200, 27.2)
    """

    seconds: float
    begun: float
    step: float
    validation: float
    snapshot: float
    finish: float
    steps_per_epoch: int
    round_steps: int

    @property
    def pause(self) -> float:
        """Seconds between two rounds."""
        return self.validation + self.snapshot

    @property
    def end(self) -> float:
        """When the last step has to end, in seconds of the run."""
        return self.seconds - self.finish - self.pause

    @property
    def epochs(self) -> float:
        """The epochs for which there is time."""
        # The last round has its pause after `end`.
        round_seconds = self.round_steps * self.step + self.pause
        steps = (self.end + self.pause - self.begun) / round_seconds * self.round_steps
        return steps / self.steps_per_epoch


def make_budget(
    minutes: float,
    *,
    now: float,
    step: float,
    validation: float,
    snapshot: float = 0.0,
    finish: float,
    steps_per_epoch: int,
) -> Budget:
    """Divides what is left of the time of a run.

    Args:
        minutes: Minutes of the whole run.
        now: Seconds that have passed.
        step: Seconds of a step.
        validation: Seconds of a validation.
        snapshot: Seconds of a snapshot.
        finish: Seconds of the test and of the report.
        steps_per_epoch: Batches in an epoch.

    Returns:
        A `Budget`.

    Raises:
        TooShort: There is no time for a single step.
    """
    pause = validation + snapshot
    left = 60 * minutes - finish - pause - now
    if left < step:
        least = (now + step + pause + finish) / 60
        # The next attempt will not take exactly as long.
        least = math.ceil(1.2 * least * 100) / 100
        raise TooShort(
            "`minutes` is too short: compiling, measuring, one step, validation and "
            f"the results take about {least:g} minutes here. "
            f"Received: minutes={minutes:g}"
        )
    fewest = max(pause / VALIDATION_SHARE, left / MOST_ROUNDS) / step
    if steps_per_epoch * step <= left / FEWEST_ROUNDS:
        steps = math.ceil(fewest / steps_per_epoch) * steps_per_epoch
    else:
        steps = math.ceil(max(fewest, left / FEWEST_ROUNDS / step))
    return Budget(
        seconds=60 * minutes,
        begun=now,
        step=step,
        validation=validation,
        snapshot=snapshot,
        finish=finish,
        steps_per_epoch=steps_per_epoch,
        round_steps=max(1, min(steps, math.ceil(left / step))),
    )


class FollowClock(keras.callbacks.Callback):
    """Sets by the time what otherwise depends on the step, and ends on time.

    Args:
        clock: The time of the run.
        recipe: The recipe, whose epochs become shares of the time.
        schedule: Its learning rates.
    """

    def __init__(self, clock: Clock, recipe: Recipe, schedule: WarmupSchedule):
        super().__init__()
        self.clock = clock
        self.recipe = recipe
        self.budget = None
        self.rate = float(schedule(0))
        self.updates = (
            recipe.total_epochs * schedule.steps_per_epoch / recipe.accumulate
        )
        times = np.linspace(0, recipe.total_epochs, MOST_CHANGES + 1, dtype="float32")
        self._rates = keras.ops.convert_to_numpy(schedule.at_epoch(times))
        self._changes = CHANGES.get(keras.config.backend(), MOST_CHANGES)
        self._set_at = -math.inf
        self._validations = []
        self._slowdown = 1.0

    @property
    def slowdown(self) -> float:
        """How much slower the machine is than when it was measured."""
        found = self._validations[1:][-TYPICAL_OF:]
        if not found:
            return 1.0
        found = float(np.median(found)) + UNCERTAIN_SECONDS
        ratio = found / (self.budget.validation + UNCERTAIN_SECONDS)
        return min(max(ratio, 1 / MOST_SLOWDOWN), MOST_SLOWDOWN)

    @property
    def end(self) -> float:
        """When the last step has to end: the results take longer on a slow machine."""
        reserved = self.budget.seconds - self.budget.end
        return max(
            self.budget.seconds - reserved * self._slowdown, self.budget.begun + 1e-9
        )

    @property
    def progress(self) -> float:
        """The share of the training that has passed."""
        if self.budget is None:
            return 0.0
        begun = self.budget.begun
        return min(max((self.clock.seconds - begun) / (self.end - begun), 0.0), 1.0)

    def mixes(self) -> bool:
        """Whether batches are still mixed."""
        return self.progress * self.recipe.total_epochs < self.recipe.mix_off_epoch

    @property
    def is_over(self) -> bool:
        """Whether there is no time for another round, not even for a short one."""
        margin = max(self.budget.step, self.budget.pause) / 2
        return self.clock.seconds + margin >= self.end

    def on_test_begin(self, logs=None):
        self._validation_began = time.perf_counter()

    def on_test_end(self, logs=None):
        self._validations.append(time.perf_counter() - self._validation_began)
        self._slowdown = self.slowdown

    def on_train_batch_begin(self, batch, logs=None):
        progress = self.progress
        if abs(progress - self._set_at) < 1 / self._changes:
            return
        self._set_at = progress
        # On JAX, `self.model` brings the state into the variables first.
        optimizer = self.model.optimizer
        self.rate = float(self._rates[round(progress * MOST_CHANGES)])
        optimizer.learning_rate = self.rate
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        if getattr(optimizer, "clocked", False):
            optimizer.clock.assign(progress * self.updates)

    def on_train_batch_end(self, batch, logs=None):
        if self.clock.seconds + self.budget.step / 2 >= self.end:
            self.model.stop_training = True


def set_ema_momentum(model: keras.Model, momentum: float | None) -> None:
    """Sets the momentum of averaged weights of a model that was compiled `clocked`.

    Args:
        model: The model.
        momentum: The momentum; `None` if there is no average.
    """
    if momentum is not None:
        optimizer = model.optimizer
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        optimizer.ema_momentum.assign(momentum)


class ClockedProgress(Progress):
    """Shows the progress of a run that ends on time.

    Args:
        record: The history of the run.
        pace: Its time.
    """

    def __init__(self, record: Record, pace: FollowClock):
        budget = pace.budget
        super().__init__(budget.round_steps, 0, record)
        self.pace = pace
        self.planned = f"{budget.epochs:.3g}"

    def _title_of(self, epoch):
        return f"epoch {self.record.epoch:.4g}/~{self.planned}"

    def _rate(self, batch):
        return self.pace.rate

    def _time_left(self, share, now):
        return self._time_left_after_epoch()

    def _time_left_after_epoch(self):
        left = self.pace.budget.seconds - self.pace.clock.seconds
        return f"{duration(max(0, left))} left"
