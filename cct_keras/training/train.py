"""`train`: from data, a variant and a recipe to a trained model and its report."""

import contextlib
import dataclasses
import time
from collections.abc import Callable

import keras

from cct_keras.data.dataset import Dataset
from cct_keras.distillation.losses import two_heads
from cct_keras.distributed.devices import find_devices
from cct_keras.notes import collected_notes
from cct_keras.pretrained.source import RUN_MODEL
from cct_keras.recipes.recipe import CONVNET_TEACHER
from cct_keras.recipes.recipe import Recipe
from cct_keras.training.build import build_model
from cct_keras.training.build import count_trained
from cct_keras.training.build import frozen_notes
from cct_keras.training.build import learning_lines
from cct_keras.training.compile import compile_model
from cct_keras.training.fit import fit_model
from cct_keras.training.fit import make_record
from cct_keras.training.load import load_job
from cct_keras.training.load import resolve_recipe
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
    """

    model: keras.Model
    history: list[dict]
    metrics: dict
    data: Dataset


def train(
    data,
    variant: str | None = None,
    recipe: str | Recipe | None = None,
    *,
    epochs: int | None = None,
    weights=None,
    teacher=None,
    out=None,
    image_size: int | tuple[int, int] | None = None,
    data_dir=None,
    seed: int = 0,
    jit: bool | None = None,
    devices: int | str | None = None,
    coordinator: str | None = None,
    num_hosts: int | None = None,
    host_id: int | None = None,
    restart: bool = False,
    verbose: bool = True,
    log: Callable[[str], None] | None = None,
    callbacks: tuple = (),
    command: str | None = None,
    **fields,
) -> Run | None:
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
        seed: Seed of the weights, the splits, the order and the augmentation.
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
        verbose: Whether to show the progress.
        log: Called with each line about the run, in place of printing it. The bars of
            the epochs are always printed.
        callbacks: Further Keras callbacks.
        command: What the report shows as the command of this run.
        **fields: Fields of the recipe to replace, such as `lr` or `mixup`.

    Returns:
        A `Run`; `None` on machines other than the first.

    Example:

    >>> run = train("digits", recipe="quick", epochs=1, verbose=False)
    >>> run.metrics["epochs"], run.model.output_shape
    (1, (None, 10))
    """
    started = time.perf_counter()
    if not isinstance(seed, int) or seed < 0:
        raise ValueError(f"`seed` must be an integer of 0 or more. Received: {seed!r}")
    recorded = {}
    if out is not None and not restart and not host_id:
        recorded = RunFolder(out).resumable_settings()
    fields |= {"variant": variant, "weights": weights, "teacher": teacher}
    recipe, source = resolve_recipe(recipe, epochs=epochs, recorded=recorded, **fields)
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
        devices=devices,
        verbose=verbose,
        log=log,
    )
    data, recipe = job.data, job.recipe
    if not devices.is_first:
        job.log(f"host {devices.host} of {devices.hosts}; the progress is on host 0")
    job.say(data.describe())
    job.say_notes(data.notes)
    devices.agree(job.settings)

    writes = out is not None and devices.is_first
    with RunFolder(out) if writes else contextlib.nullcontext() as folder:
        state = begin_run(folder, job.settings, restart=restart, devices=devices)
        if state == COMPLETE:
            job.say(f"{out} is complete; restart=True trains anew")
            devices.disband()
            return _complete_run(folder, data) if devices.is_first else None
        if recipe.teacher == CONVNET_TEACHER:
            job = with_trained_teacher(job, folder)

        # === Build and compile ===
        keras.utils.set_random_seed(seed)
        with collected_notes() as notes, devices.scope():
            start = job.source if state == NEW else None
            model = build_model(data, recipe, start, classifier_activation=None)
            student = model if job.teacher is None else two_heads(model)
            schedule = compile_model(
                student,
                recipe,
                images=len(data.train),
                num_classes=data.num_classes,
                jit=jit,
                devices=devices,
            )
        notes = (*dict.fromkeys(notes), *frozen_notes(recipe))
        job.say_notes(notes)
        job.say(*learning_lines(model, recipe))
        final = build_model(data, recipe, frozen=False)

        # === Fit ===
        record = make_record(job, folder, model, schedule, final)
        fit_model(job, student, record, callbacks)
        devices.disband()
        if not devices.is_first:
            return None

        # === Measure and save ===
        data = dataclasses.replace(data, notes=(*data.notes, *notes))
        job = dataclasses.replace(job, data=data)
        best, metrics, probabilities = measure_run(
            job, record, final, count_trained(model)
        )
        if folder is not None:
            save_results(
                job, folder, record, final, best, metrics, probabilities, command
            )
    job.say(*final_lines(metrics, folder, time.perf_counter() - started))
    return Run(best, record.history, metrics, data)


def _complete_run(folder, data):
    return Run(
        keras.models.load_model(folder.path / RUN_MODEL),
        folder.read_history(),
        folder.read_metrics(),
        data,
    )
