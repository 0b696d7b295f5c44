"""The teacher that is trained for a run: a convnet, on the same images.

Its training is a run of its own in a folder of its own, with the callbacks, snapshots
and checks of every other run, and ends with its model in the folder of the student.
"""

import dataclasses
import json
import pathlib
import tempfile
import time

import keras
import numpy as np

from cct_keras.data.pipeline import steps_per_epoch
from cct_keras.distillation.convnet import convnet
from cct_keras.distillation.convnet import convnet_recipe
from cct_keras.distillation.convnet import whiten_stem
from cct_keras.distillation.convnet import whitening_images
from cct_keras.inference.evaluate import measure
from cct_keras.inference.forward import run_on_batch
from cct_keras.recipes.recipe import CONVNET_TEACHER
from cct_keras.recipes.recipe import Recipe
from cct_keras.run_files import METRICS
from cct_keras.training.batches import RunBatches
from cct_keras.training.build import normalized_images
from cct_keras.training.build import precision_policy
from cct_keras.training.callbacks import duration
from cct_keras.training.compile import compile_model
from cct_keras.training.fit import fit_model
from cct_keras.training.fit import make_record
from cct_keras.training.load import Job
from cct_keras.training.load import try_teacher
from cct_keras.training.results import save_weights_as_model
from cct_keras.training.run_folder import COMPLETE
from cct_keras.training.run_folder import NEW
from cct_keras.training.run_folder import TEACHER
from cct_keras.training.run_folder import TEACHER_MODEL
from cct_keras.training.run_folder import RunFolder
from cct_keras.training.run_folder import begin_run
from cct_keras.training.step_time import measure_step

# How long steps are timed to see how many epochs fit into a number of seconds.
TIMED_SECONDS = 1.0
# What Linux calls the instructions with which a processor multiplies bfloat16.
BFLOAT16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")


def with_trained_teacher(
    job: Job,
    folder: RunFolder | None,
    *,
    epochs: int | None = None,
    seconds: float | None = None,
) -> Job:
    """Trains the teacher of a run, unless it is trained already, and lets it teach.

    A teacher whose training was interrupted goes on after its last complete epoch. The
    number of its epochs and its precision stay those with which it began.

    Args:
        job: What is to be trained, with the teacher `"convnet"`.
        folder: The folder of the run; `None` if nothing is written, and on all
            machines but the first.
        epochs: Epochs of the teacher. By default those of the recipe, or else the
            number of images decides.
        seconds: Time for the training of the teacher, if neither `epochs` nor the
            recipe name its epochs: it gets as many as fit into it, at least one, and
            no more than it would get by the number of images.

    Returns:
        The job, with its teacher and with what `metrics.json` says of it.

    Raises:
        RunError: The folder of the teacher holds one with other settings.
    """
    path = None if folder is None else folder.path / TEACHER
    if path is None:
        return _with_teacher(job, *_train(job, None, epochs, seconds))
    with RunFolder(path, model=f"../{TEACHER_MODEL}") as own_folder:
        return _with_teacher(job, *_train(job, own_folder, epochs, seconds))


def _with_teacher(job, model, metrics, history):
    teacher = try_teacher(
        model, job.data, job.recipe, seed=job.seed, shard=job.devices.shard
    )
    return dataclasses.replace(job, teacher=teacher, lesson=(metrics, history))


def _train(job, folder, epochs, seconds):
    """The trained teacher, its metrics and its history."""
    recipe = _choose_recipe(job, folder, epochs, seconds)
    own_job = dataclasses.replace(job, recipe=recipe, source=None, minutes=None)
    own_job.devices.check(recipe, len(job.data.train))
    settings = {**own_job.settings, "variant": CONVNET_TEACHER}
    state = begin_run(folder, settings, restart=False, devices=job.devices)
    if state == COMPLETE:
        return _read(job, folder)
    started = time.perf_counter()
    keras.utils.set_random_seed(job.seed)
    with job.devices.scope():
        model = build_teacher(job, recipe)
        if state == NEW:
            whiten_stem(model, whitening_images(job.data, recipe, seed=job.seed))
        schedule = compile_model(
            model,
            recipe,
            images=len(job.data.train),
            num_classes=job.data.num_classes,
            devices=job.devices,
        )
    final = build_teacher(job, recipe, answers=True)
    job.say(
        f"teacher: a convnet of {model.count_params():,} parameters, for "
        f"{recipe.epochs} epochs"
    )
    record = make_record(own_job, folder, model, schedule, final)
    advice = "precision='float32' or another teacher, each with restart=True"
    record.set_model(model)
    record.restore(job.devices)
    fit_model(own_job, model, record, RunBatches(own_job), advice=advice)
    final.set_weights(record.best)
    metrics = _measure(job, record, final)
    if folder is not None:
        save_weights_as_model(folder, final, record.best, folder.model)
        folder.write_history(record.history)
        # Last, because this file means that the teacher is complete.
        folder.write_json(METRICS, metrics)
    seconds = duration(time.perf_counter() - started)
    job.say(
        f"teacher: test accuracy {metrics['test']['top1']:.2%}, validation accuracy "
        f"{metrics['validation']['top1']:.2%}, {seconds}"
    )
    return final, metrics, record.history


def _measure(job, record, final):
    """What `metrics.json` says of a teacher: as it teaches, from both sides."""
    found = {
        split: measure(lambda images: run_on_batch(final, images), job.data, split)[1]
        for split in ("test", "validation")
    }
    names = ("top1", "top1_ci95", "loss", "count")
    shown = {
        split: {name: values[name] for name in names} for split, values in found.items()
    }
    speeds = [row["images_per_second"] for row in record.history]
    return {
        "test": shown["test"],
        "validation": {**shown["validation"], "epoch": record.best_epoch},
        "epochs": len(record.history),
        "seconds": sum(row["seconds"] for row in record.history),
        # Without the first epoch, which also compiles.
        "images_per_second": float(np.median(speeds[1:] or speeds)),
        "parameters": final.count_params(),
    }


def _read(job, folder):
    """A teacher that is trained already; the first machine sends it to the others."""
    path = None if folder is None else folder.path / folder.model
    content = job.devices.broadcast(path and path.read_bytes())
    if path is not None:
        model = keras.models.load_model(path, compile=False)
        metrics, history = folder.read_metrics(), folder.read_history()
        job.say(f"teacher: trained before, test accuracy {metrics['test']['top1']:.2%}")
        return model, metrics, history
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch, TEACHER_MODEL)
        path.write_bytes(content)
        return keras.models.load_model(path, compile=False), {}, []


# === Model and recipe ===


def build_teacher(job: Job, recipe: Recipe, *, answers: bool = False) -> keras.Model:
    """Builds the convnet for raw images of a data set.

    Args:
        job: Its data decide the classes, the image size and the normalization.
        recipe: The recipe of the convnet.
        answers: Whether it is the model that answers: with probabilities, and for
            color images from both sides of an image. By default it is the model that
            is trained, which returns logits.

    Returns:
        A Keras model that is not compiled. Both kinds have the same weights.
    """
    inputs = normalized_images(job.data)
    logits = convnet(
        inputs,
        job.data.num_classes,
        both_sides=answers and job.data.channels == 3,
        dtype=precision_policy(recipe.precision),
    )
    if answers:
        logits = keras.layers.Softmax(dtype="float32", name="probabilities")(logits)
    images = keras.utils.get_source_inputs(inputs)[0]
    return keras.Model(images, logits, name="teacher")


def _choose_recipe(job, folder, epochs, seconds):
    """The recipe of the convnet: that with which it began, if it has begun."""
    recorded = None if folder is None else folder.recorded_settings()
    recorded = json.loads(job.devices.broadcast(json.dumps(recorded or {}).encode()))
    images, epochs = len(job.data.train), epochs or job.recipe.teacher_epochs
    recipe = convnet_recipe(
        images,
        epochs=epochs,
        precision=recorded.get("precision") or choose_precision(job.recipe.precision),
    )
    if seconds is None or epochs is not None:
        return recipe
    epochs = recorded.get("epochs") or _epochs_within(seconds, job, recipe)
    # The machines of a run are not equally fast.
    epochs = int(job.devices.broadcast(str(epochs).encode()))
    return convnet_recipe(images, epochs=epochs, precision=recipe.precision)


def choose_precision(precision: str) -> str:
    """The precision of a convnet that teaches a student of some precision.

    Args:
        precision: The precision of the student's recipe.

    Returns:
        The same; but `"auto"` is `"mixed"`, and where that would be float32, bfloat16
        if the processor multiplies it, which a convnet bears well.

    Example:

    >>> choose_precision("float32")
    'float32'
    """
    if precision == "auto":
        precision = "mixed"
    if precision != "mixed" or precision_policy(precision) != "float32":
        return precision
    # On a CPU TensorFlow and torch compute with oneDNN, which gains from it.
    fast = keras.config.backend() != "jax" and _multiplies_bfloat16()
    return "mixed_bfloat16" if fast else "float32"


def _multiplies_bfloat16():
    try:
        words = pathlib.Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return False
    return any(flag in words for flag in BFLOAT16_FLAGS)


def _epochs_within(seconds, job, recipe):
    """How many epochs of a recipe fit into some seconds, after a few timed steps."""
    started = time.perf_counter()
    with job.devices.scope():
        model = build_teacher(job, recipe)
        images = len(job.data.train)
        compile_model(
            model,
            recipe,
            images=images,
            num_classes=job.data.num_classes,
            devices=job.devices,
        )
    batches = job.data.training_pipeline(recipe, seed=job.seed, shard=job.devices.shard)
    step = measure_step(model, batches, job.devices, seconds=TIMED_SECONDS).seconds
    # Validation has no backward pass.
    steps = steps_per_epoch(images, recipe.batch_size)
    steps += len(job.data.validation) / recipe.batch_size / 3
    # What the start has cost here, training has to pay once more.
    left = seconds - 2 * (time.perf_counter() - started)
    fitting = int(left / (steps * step))
    return min(max(fitting, 1), recipe.epochs)
