"""What a run is going to be, said before it begins: its length and what to expect."""

import dataclasses
import time
from collections.abc import Iterator
from functools import partial

import keras
import numpy as np

from cct_keras.inference.forward import run_on_batch
from cct_keras.recipes.expectations import Expectation
from cct_keras.recipes.expectations import expectation_text
from cct_keras.recipes.expectations import nearest_expectation
from cct_keras.recipes.recipe import Recipe
from cct_keras.recipes.rows import find_recipe
from cct_keras.training.assemble import Assembled
from cct_keras.training.batches import RunBatches
from cct_keras.training.budget import Budget
from cct_keras.training.budget import TooShort
from cct_keras.training.budget import make_budget
from cct_keras.training.budget import set_ema_momentum
from cct_keras.training.build import precision_policy
from cct_keras.training.callbacks import Record
from cct_keras.training.clock import busy_factor
from cct_keras.training.load import Job
from cct_keras.training.step_time import MOST_SECONDS
from cct_keras.training.step_time import measure_step
from cct_keras.training.step_time import measure_validation

# Measuring takes at most about this share of a time limit.
MEASURING_SHARE = 0.02
# What cannot be measured beforehand: figures, files, and with them the imports.
REPORT_SECONDS = 2.0
RESULT_SECONDS = 0.5
# The maps of the mistakes cost as much as so many more images.
EXPLAINED_IMAGES = 200
# Bytes of a snapshot that are written in a second, and how often it has each weight:
# those of the model, the best, the last, and two moments.
SNAPSHOT_SPEED = 2e8
SNAPSHOT_COPIES = 5
SNAPSHOT_SECONDS = 0.05


@dataclasses.dataclass(frozen=True)
class Times:
    """What was measured before a run.

    Attributes:
        step: Seconds of a training step.
        validation: Seconds of a validation.
        snapshot: Seconds of a snapshot.
        finish: Seconds of the test, the report and the files.
        random_states: As `MeasuredStep` has them.
    """

    step: float
    validation: float
    snapshot: float
    finish: float
    random_states: list[np.ndarray]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a run is going to be; `train(dry_run=True)` returns it.

    Attributes:
        data: The data in one line.
        recipe: The recipe. With a time limit its epochs are those for which there is
            time, and what it counts in epochs is scaled with them.
        precision: The dtype policy.
        epochs: Epochs that are left to train, with a time limit not a whole number.
        minutes: Minutes that are left: of the time limit, or those that were estimated.
        images_per_second: Training images a second.
        expected: What a similar run on a similar data set reached; `None` if there is
            none.

    Example:

    >>> plan = cct_keras.train("digits", epochs=2, dry_run=True, verbose=False)
    >>> plan.epochs, plan.recipe.variant, plan.minutes > 0
    (2, 'cct_2_3x2_32', True)
    """

    data: str
    recipe: Recipe
    precision: str
    epochs: float
    minutes: float
    images_per_second: float
    expected: Expectation | None


def measure_times(
    job: Job,
    assembled: Assembled,
    final: keras.Model,
    batches: RunBatches,
    *,
    first_step: int = 0,
    writes: bool = True,
) -> Times:
    """Measures what the run will do again and again.

    Args:
        job: What is to be trained.
        assembled: The model.
        final: The model that is tested in the end.
        batches: The batches.
        first_step: Steps that are done already.
        writes: Whether the run writes its results.

    Returns:
        What was measured. The model is as it was, and compiled.
    """
    data = job.data
    limit = MOST_SECONDS
    if job.minutes is not None:
        limit = min(limit, MEASURING_SHARE * 60 * job.minutes)
    step = measure_step(
        assembled.student, batches.training(first_step), job.devices, seconds=limit
    )
    images = len(data.validation)
    measured = min(batches.validation_batch, images)
    first, further = measure_validation(
        assembled.student, batches.validation(), job.devices
    )
    validation = first + further * (images - measured) / measured
    snapshot, finish, compute = 0.0, RESULT_SECONDS, further / measured
    if job.minutes is not None:
        # Also so that it is compiled, if there are no adapters to merge.
        compiling, compute = _time_answers(final, next(data.batches("validation")))
        if job.recipe.lora_rank is not None:
            finish += compiling
    tested = len(data.test)
    if writes:
        snapshot = SNAPSHOT_SECONDS
        snapshot += SNAPSHOT_COPIES * 4 * final.count_params() / SNAPSHOT_SPEED
        finish += REPORT_SECONDS * (1.0 if job.minutes is None else busy_factor())
        tested += len(data.train) + images + EXPLAINED_IMAGES
    finish += tested * compute
    return Times(step.seconds, validation, snapshot, finish, step.random_states)


def _time_answers(model, images):
    """Seconds in which a model compiles, and in which it then takes an image."""
    answer = partial(run_on_batch, model, images)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        answer()
        seconds.append(time.perf_counter() - start)
    again = min(seconds[1:])
    return max(0.0, seconds[0] - again), again / len(images)


def plan_run(
    job: Job,
    assembled: Assembled,
    final: keras.Model,
    record: Record,
    batches: RunBatches,
    *,
    dry: bool = False,
) -> Plan | None:
    """Measures the run and says how long it takes, or divides the time that it has.

    A run that goes on with a time limit keeps what it has planned.

    Args:
        job: What is to be trained.
        assembled: The model.
        final: The model that is tested in the end.
        record: What has been trained already.
        batches: The batches.
        dry: Whether nothing is going to be trained.

    Returns:
        A `Plan`; `None` if nothing had to be measured.

    Raises:
        RunError: There is no time for a single step.
    """
    pace, folder, done = record.pace, record.folder, len(record.history)
    record.start_from(list(assembled.random_states))
    if done and pace is not None:
        pace.budget = Budget(**folder.read_plan()["budget"])
        batches.plan_epochs(pace.budget.epochs)
        left = max(0, pace.budget.seconds - pace.clock.seconds)
        job.say(
            f"going on after epoch {record.epoch:.4g} of about "
            f"{pace.budget.epochs:.3g}, with {time_text(left)} left"
        )
        return None
    if done:
        job.say(f"going on after epoch {done} of {job.recipe.total_epochs}")
        if done >= job.recipe.total_epochs or record.is_over:
            return None
    if job.devices.hosts > 1 or not (job.verbose or dry or pace is not None):
        # Nobody hears it; and several machines cannot measure together.
        return None
    if pace is not None:
        _check_answers(job, batches, pace.clock.seconds)
    times = measure_times(
        job,
        assembled,
        final,
        batches,
        first_step=record.steps,
        writes=dry or folder is not None,
    )
    record.start_from(times.random_states)
    if pace is not None:
        pace.budget = make_budget(
            job.minutes,
            now=pace.clock.seconds,
            step=times.step,
            validation=times.validation,
            snapshot=times.snapshot,
            finish=times.finish,
            steps_per_epoch=batches.steps_per_epoch,
        )
        epochs = pace.budget.epochs
        batches.plan_epochs(epochs)
        set_ema_momentum(assembled.student, scaled_recipe(job.recipe, epochs).ema)
        if folder is not None:
            folder.record_plan(
                epochs=round(epochs, 3), budget=dataclasses.asdict(pace.budget)
            )
    plan = _make_plan(job, batches, times, pace and pace.budget, done)
    job.say(*(dry_lines if dry else plan_lines)(plan, job, goes_on=bool(done)))
    return plan


def _check_answers(job, batches, seconds):
    """Refuses to let a teacher answer beforehand for most of the time."""
    answering, left = batches.answering_seconds(), 60 * job.minutes - seconds
    if answering > left / 2:
        raise TooShort(
            f"`minutes` is too short: the teacher's answers take about "
            f"{time_text(answering)}; use fewer `teacher_views`. "
            f"Received: minutes={job.minutes:g}, "
            f"teacher_views={job.recipe.teacher_views}"
        )


def scaled_recipe(recipe: Recipe, epochs: float) -> Recipe:
    """The recipe of a run with a time limit for the epochs for which there is time.

    Args:
        recipe: The recipe.
        epochs: The epochs.

    Returns:
        A `Recipe`, which counts whole epochs.

    Example:

    >>> recipe = scaled_recipe(Recipe(epochs=50, warmup_epochs=5), 9.7)
    >>> recipe.epochs, recipe.warmup_epochs
    (10, 1.0)
    """
    # The cooldown is a part of the time.
    share = recipe.epochs / recipe.total_epochs
    return find_recipe(recipe, epochs=max(1, round(epochs * share)))


def _make_plan(job, batches, times, budget, epochs_done):
    data, recipe = job.data, job.recipe
    if budget is None:
        epochs = recipe.total_epochs - epochs_done
        each = batches.steps_per_epoch * times.step + times.validation + times.snapshot
        seconds = epochs * each + times.finish
        whole = recipe.total_epochs * each + times.finish
        if batches.dry:
            seconds, whole = (x + batches.answering_seconds() for x in (seconds, whole))
    else:
        epochs, seconds = budget.epochs, budget.seconds - budget.begun
        recipe, whole = scaled_recipe(recipe, epochs), budget.seconds
    expected = None
    if recipe.weights is None and recipe.lora_rank is None and not recipe.freeze:
        expected = nearest_expectation(
            classes=data.num_classes,
            channels=data.channels,
            images_per_class=len(data.train) / data.num_classes,
            minutes=whole / 60,
            variant=recipe.variant,
            teacher=recipe.teacher is not None,
        )
    batch = min(recipe.batch_size, len(data.train))
    return Plan(
        data=data.describe(),
        recipe=recipe,
        precision=precision_policy(recipe.precision),
        epochs=epochs,
        minutes=seconds / 60,
        images_per_second=batch / times.step,
        expected=expected,
    )


def plan_lines(plan: Plan, job: Job, *, goes_on: bool = False) -> Iterator[str]:
    """The line that is said before the first epoch.

    Args:
        plan: What the run is going to be.
        job: What is to be trained.
        goes_on: Whether a part of the run is done already.

    Yields:
        One line.
    """
    if job.minutes is None:
        which = "the last " if goes_on and plan.epochs > 1 else ""
        text = f"about {time_text(60 * plan.minutes)} for {which}{plan.epochs} "
        text += "epoch" if plan.epochs == 1 else "epochs"
    else:
        seen = float(f"{plan.epochs * len(job.data.train):.3g}")
        unit = "minute" if job.minutes == 1 else "minutes"
        text = f"{job.minutes:g} {unit}: about {plan.epochs:.3g} epochs, "
        text += f"{seen:,.0f} images"
    if plan.expected is not None:
        text += f"; for comparison: {expectation_text(plan.expected)}"
    yield text


def dry_lines(plan: Plan, job: Job, *, goes_on: bool = False) -> Iterator[str]:
    """What `train(dry_run=True)` says beside what every run says.

    Args:
        plan: What the run would be.
        job: What would be trained.
        goes_on: Whether a part of the run is done already.

    Yields:
        One line each.
    """
    recipe = plan.recipe
    yield (
        f"{recipe.variant}, {plan.precision}, {plan.images_per_second:,.0f} images a "
        "second"
    )
    default, shown = Recipe(), ("epochs", "batch_size", "lr")
    fields = {
        field.name: getattr(recipe, field.name)
        for field in dataclasses.fields(Recipe)
        if field.name not in ("about", "variant", "precision")
    }
    yield "recipe: " + ", ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in fields.items()
        if name in shown or value != getattr(default, name)
    )
    yield from plan_lines(plan, job, goes_on=goes_on)
    if plan.expected is None:
        yield "no similar data set was measured in a similar time"
    yield "a dry run: nothing was trained or written"


def time_text(seconds: float) -> str:
    """A time in words, in no more digits than an estimate has.

    Args:
        seconds: The time.

    Returns:
        Such as `12 minutes`.

    Example:

    >>> time_text(0.3), time_text(61), time_text(720), time_text(9000)
    ('1 second', '60 seconds', '12 minutes', '2.5 hours')
    """
    if seconds < 90:
        count = max(1, round(seconds) if seconds < 10 else 5 * round(seconds / 5))
        return f"{count} second{'s' if count > 1 else ''}"
    if seconds < 90 * 60:
        return f"{float(f'{seconds / 60:.2g}'):g} minutes"
    return f"{float(f'{seconds / 3600:.2g}'):g} hours"
