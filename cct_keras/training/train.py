"""`train`: from data, a variant and a recipe to a trained model and its report."""

import contextlib
import dataclasses
import time
from collections.abc import Callable

import keras
import numpy as np

from cct_keras.data.dataset import Dataset
from cct_keras.distributed.devices import find_devices
from cct_keras.pretrained.source import RUN_MODEL
from cct_keras.recipes.minutes import check_minutes
from cct_keras.recipes.recipe import CONVNET_TEACHER
from cct_keras.recipes.recipe import Recipe
from cct_keras.training.assemble import assemble_run
from cct_keras.training.batches import RunBatches
from cct_keras.training.budget import FollowClock
from cct_keras.training.budget import TooShort
from cct_keras.training.build import build_model
from cct_keras.training.build import count_trained
from cct_keras.training.build import frozen_notes
from cct_keras.training.build import learning_lines
from cct_keras.training.clock import Clock
from cct_keras.training.compile import make_schedule
from cct_keras.training.fit import fit_model
from cct_keras.training.fit import make_record
from cct_keras.training.load import load_job
from cct_keras.training.load import resolve_recipe
from cct_keras.training.plan import Plan
from cct_keras.training.plan import plan_run
from cct_keras.training.plan import scaled_recipe
from cct_keras.training.results import final_lines
from cct_keras.training.results import measure_run
from cct_keras.training.results import save_results
from cct_keras.training.run_folder import COMPLETE
from cct_keras.training.run_folder import NEW
from cct_keras.training.run_folder import RunFolder
from cct_keras.training.run_folder import begin_run
from cct_keras.training.teacher import with_trained_teacher


@dataclasses.dataclass(frozen=True)
class Run:
    """What `train` returns.

    Attributes:
        model: The trained model with the best weights. It takes raw images and
            returns probabilities.
        history: A dictionary for each epoch.
        metrics: What `metrics.json` holds.
        data: The data it was trained on.
        predictions: The predicted class of each test image; `None` for a run of an
            earlier version, which did not keep them, and for a probe.
    """

    model: keras.Model
    history: list[dict]
    metrics: dict
    data: Dataset
    predictions: np.ndarray | None = None


def train(
    data,
    variant: str | None = None,
    recipe: str | Recipe | None = None,
    *,
    epochs: int | None = None,
    minutes: float | None = None,
    weights=None,
    teacher=None,
    out=None,
    image_size: int | tuple[int, int] | None = None,
    data_dir=None,
    seed: int = 0,
    split_seed: int = 0,
    jit: bool | None = None,
    devices: int | str | None = None,
    coordinator: str | None = None,
    num_hosts: int | None = None,
    host_id: int | None = None,
    restart: bool = False,
    dry_run: bool = False,
    verbose: bool = True,
    log: Callable[[str], None] | None = None,
    callbacks: tuple = (),
    command: str | None = None,
    **fields,
) -> Run | Plan | None:
    """Trains a model with `compile` and `fit`, and measures how good it is.

    With `out`, the run can be killed at any moment: the same call goes on after the
    last complete epoch and ends with the same result.

    Args:
        data: What `load_data` takes, or what it returned.
        variant: One of `list_models()`. By default the variant of the recipe, or of
            the file of weights.
        recipe: One of `list_recipes()`, a `Recipe` or a YAML file. By default
            `small`, or `finetune` if there are weights to start from.
        epochs: Epochs instead of the recipe's own; the warmup and everything else
            that is counted in epochs is scaled with them.
        minutes: Minutes that the run may take, instead of epochs: from building the
            model to the report, over all sessions if it is interrupted, but without
            the time between them. A few steps are timed first; then the learning rate,
            and everything that the recipe counts in epochs, follows the share of the
            time that has passed, and the training ends where there is just time left
            for the results. The precision `"mixed"` then means `"auto"`. Two such runs
            never take the same steps, so their numbers differ.
        weights: Weights to start from: a tag of known weights, a `.keras` or
            `.weights.h5` file, an official `.pth` file, `hf://user/repo` on the
            hub, the folder of a run, or a `WeightSource`. The head starts fresh if the
            classes are others, positions are resized, and the first convolution is
            adapted to the channels. Images are normalized as they were for the
            weights, if that is known. Those of another `activation` may be a start,
            too, with a note.
        teacher: A model to learn from beside the labels, see `Recipe.distill`: a
            Keras model, its file, the folder of a run, `VARIANT.TAG`, or a function
            from images, `(batch, height, width, channels)` with values from 0 to 255,
            to logits or probabilities. With `"convnet"` a small convnet is trained
            first, on the same images, and kept in `out`. A teacher does not become a
            part of the trained model.
        out: Folder for the model, the snapshots, the logs and the report. With `None`
            nothing is written.
        image_size: Side, or height and width, of the model's images.
        data_dir: Where tensorflow-datasets keeps prepared data.
        seed: Seed of the weights, the order and the augmentation.
        split_seed: Seed of the splits that are cut off where the data lack them: runs
            of the same `split_seed` are tested on the same images. A run that an
            earlier version began goes on with its own, which was its `seed`.
        jit: Whether to compile with XLA. By default the backend decides, except for
            TensorFlow without an accelerator, where XLA is slower.
        devices: How many devices of this machine share every batch, or `"all"`; on
            TensorFlow and JAX. By default one.
        coordinator: For several machines, on JAX: address and port of the first, such
            as `"10.0.0.1:1234"`. Every machine makes the same call with its own
            `host_id`, and the first one writes the results.
        num_hosts: Number of machines.
        host_id: Number of this machine, from 0.
        restart: Whether to throw away the run that is in `out`.
        dry_run: Whether to say only how long the run would take, or how many epochs
            the minutes allow: nothing is trained, and nothing written to `out`.
        verbose: Whether to show the progress.
        log: Called with each line about the run, in place of printing it. The bars of
            the epochs are always printed.
        callbacks: Further Keras callbacks.
        command: What the report shows as the command of this run.
        **fields: Fields of the recipe to replace, such as `lr` or `mixup`.

    Returns:
        A `Run`, or a `Plan` of a dry run; `None` on machines other than the first.

    Example:

    >>> run = train("digits", recipe="quick", epochs=1, verbose=False)
    >>> run.metrics["epochs"], run.model.output_shape
    (1, (None, 10))
    """
    started = time.perf_counter()
    for name, value in {"seed": seed, "split_seed": split_seed}.items():
        if not isinstance(value, int) or value < 0:
            raise ValueError(
                f"`{name}` must be an integer of 0 or more. Received: {value!r}"
            )
    minutes = check_minutes(minutes, epochs)
    recorded = {}
    if out is not None and not (restart or dry_run or host_id):
        recorded = RunFolder(out).resumable_settings()
        split_seed = RunFolder(out).split_seed(split_seed)
    fields |= {"variant": variant, "weights": weights, "teacher": teacher}
    recipe, source = resolve_recipe(recipe, epochs=epochs, recorded=recorded, **fields)
    if minutes is not None and recipe.precision == "mixed":
        # Who has little time wants the most of it.
        recipe = dataclasses.replace(recipe, precision="auto")
    devices = find_devices(
        devices, coordinator=coordinator, num_hosts=num_hosts, host_id=host_id
    )

    # === Load ===
    job = load_job(
        data,
        recipe,
        source=source,
        teacher=teacher,
        recorded=recorded,
        image_size=image_size,
        data_dir=data_dir,
        seed=seed,
        split_seed=split_seed,
        devices=devices,
        minutes=minutes,
        verbose=verbose,
        log=log,
    )
    data = job.data
    if dry_run and out is not None and RunFolder(out).resumable_settings():
        job.say_notes([f"{out} holds a run already; this is the time of a whole one"])
    if not devices.is_first:
        job.log(f"host {devices.host} of {devices.hosts}; the progress is on host 0")
    job.say(data.describe())
    job.say_notes(data.notes)
    devices.agree(job.settings)

    writes = out is not None and devices.is_first and not dry_run
    with RunFolder(out) if writes else contextlib.nullcontext() as folder:
        state = begin_run(folder, job.settings, restart=restart, devices=devices)
        if state == COMPLETE:
            job.say(f"{out} is complete; restart=True trains anew")
            devices.disband()
            return _complete_run(folder, data) if devices.is_first else None
        timed = None if minutes is None else folder
        earlier = 0.0 if timed is None else timed.read_seconds()
        clock = Clock(earlier)
        try:
            with clock.written_to(timed):
                result = _train(
                    job, folder, state, clock, jit, dry_run, callbacks, command
                )
        except TooShort:
            if timed is not None and not earlier:
                timed.forget()
            raise
        if isinstance(result, Run):
            seconds = time.perf_counter() - started
            job.say(*final_lines(result.metrics, folder, seconds))
        return result


def _train(job, folder, state, clock, jit, dry_run, callbacks, command):
    """What a run does in the time that counts."""
    if job.recipe.teacher == CONVNET_TEACHER:
        job = _taught(job, folder, clock, dry_run)
    data, devices, pace = job.data, job.devices, None
    if job.minutes is not None:
        schedule = make_schedule(job.recipe, len(data.train))
        pace = FollowClock(clock, job.recipe, schedule)
    batches = RunBatches(job, pace and pace.mixes, dry=dry_run)

    # === Build and compile ===
    source = job.source if state == NEW else None
    assembled = assemble_run(job, batches, folder, source, jit=jit)
    model, recipe = assembled.model, assembled.recipe
    job = dataclasses.replace(job, recipe=recipe)
    notes = (*assembled.notes, *frozen_notes(recipe))
    job.say_notes(notes)
    job.say(*learning_lines(model, recipe))
    final = build_model(data, recipe, frozen=False)

    # === Plan and fit ===
    record = make_record(job, folder, model, assembled.schedule, final, pace)
    record.set_model(assembled.student)
    record.restore(devices)
    plan = plan_run(job, assembled, final, record, batches, dry=dry_run)
    if dry_run:
        return plan
    fit_model(job, assembled.student, record, batches, callbacks)
    devices.disband()
    if not devices.is_first:
        return None

    # === Measure and save ===
    if pace is not None:
        recipe = scaled_recipe(recipe, pace.budget.epochs)
    data = dataclasses.replace(data, notes=(*data.notes, *notes))
    job = dataclasses.replace(job, data=data, recipe=recipe)
    best, metrics, probabilities = measure_run(job, record, final, count_trained(model))
    if folder is not None:
        save_results(job, folder, record, final, best, metrics, probabilities, command)
    return Run(best, record.history, metrics, data, probabilities.argmax(1))


def _taught(job, folder, clock, dry_run):
    """The job with its teacher, which is trained first and takes its share of time."""
    seconds = job.minutes and 60 * job.minutes * job.recipe.teacher_share
    if not dry_run:
        return with_trained_teacher(job, folder, seconds=seconds)
    if seconds is None:
        job.say_notes(["the training of the teacher takes its time beside this"])
    else:
        clock.advance_to(seconds)
    return job


def _complete_run(folder, data):
    return Run(
        keras.models.load_model(folder.path / RUN_MODEL),
        folder.read_history(),
        folder.read_metrics(),
        data,
        folder.read_predictions(),
    )
