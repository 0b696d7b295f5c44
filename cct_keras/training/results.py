"""The last steps of a run: its metrics, its model and its report."""

import platform
from collections.abc import Iterator
from functools import partial

import keras
import numpy as np

from cct_keras.data.splits import SPLITS
from cct_keras.errors import RunError
from cct_keras.explaining.explain import explain
from cct_keras.finetuning.lora import merge_lora
from cct_keras.inference.evaluate import find_mistakes
from cct_keras.inference.evaluate import measure
from cct_keras.inference.forward import run_on_batch
from cct_keras.models.cost import variant_cost
from cct_keras.pretrained.source import RUN_MODEL
from cct_keras.recipes.recipe import Recipe
from cct_keras.recipes.run_settings import recipe_settings
from cct_keras.report.mistakes_page import MISTAKES_PAGE
from cct_keras.report.mistakes_page import write_mistakes
from cct_keras.report.page import write_report
from cct_keras.run_files import METRICS
from cct_keras.run_files import REPORT
from cct_keras.training.build import precision_policy
from cct_keras.training.callbacks import Record
from cct_keras.training.callbacks import duration
from cct_keras.training.load import Job
from cct_keras.training.run_folder import LAST_MODEL
from cct_keras.training.run_folder import RunFolder

# Recipe fields that a report shows even if they have their default values.
ALWAYS_SHOWN = ("epochs", "batch_size", "lr")
# Mistakes in the report, and on the page of those that may be mislabelled.
SHOWN_MISTAKES = 24


def measure_run(
    job: Job, record: Record, final: keras.Model, trained_parameters: int
) -> tuple[keras.Model, dict, np.ndarray]:
    """Measures the best weights of a run on the test split.

    Args:
        job: What was trained.
        record: History and best weights.
        final: A model with the structure of the trained one; it gets the best weights.
        trained_parameters: Number of weights that were trained.

    Returns:
        The trained model with its adapters merged, the values of `metrics.json`, and
        the probabilities of the test images.
    """
    data, recipe = job.data, job.recipe
    final.set_weights(record.best)
    best = merge_lora(final)
    probabilities, test = measure(partial(run_on_batch, best), data, "test")
    speeds = [row["images_per_second"] for row in record.history]
    cost = variant_cost(
        recipe.variant, data.num_classes, data.image_size, data.channels
    )
    metrics = {
        "test": test,
        "validation": {
            "top1": record.best_row["val_accuracy"],
            "loss": record.best_row["val_loss"],
            "epoch": record.best_epoch,
        },
        "epochs": record.history[-1]["epoch"],
        "seconds": sum(row["seconds"] for row in record.history),
        # Without the first epoch, which also compiles.
        "images_per_second": float(np.median(speeds[1:] or speeds)),
        "parameters": best.count_params(),
        "trained_parameters": trained_parameters,
        "macs": cost.macs + cost.attention_macs,
        "variant": recipe.variant,
        "data": data.name,
        "fingerprint": data.fingerprint,
        "test_fingerprint": data.test_fingerprint,
    }
    if job.lesson is not None:
        metrics["teacher"] = job.lesson[0]
    if record.pace is not None:
        metrics["minutes"] = job.minutes
        metrics["planned_epochs"] = round(record.pace.budget.epochs, 3)
    return best, metrics, probabilities


def save_weights_as_model(
    folder: RunFolder, model: keras.Model, weights: list, name: str
) -> None:
    """Saves a model with given weights, its adapters merged.

    Args:
        folder: The folder of the run.
        model: The model; it keeps the weights.
        weights: Arrays in the order of `get_weights`.
        name: Name of the file.
    """
    model.set_weights(weights)
    folder.save_model(merge_lora(model), name)


def save_results(
    job: Job,
    folder: RunFolder,
    record: Record,
    final: keras.Model,
    best: keras.Model,
    metrics: dict,
    probabilities: np.ndarray,
    command: str | None = None,
) -> None:
    """Writes the models, the history, the report and the metrics of a run.

    Args:
        job: What was trained.
        folder: The folder of the run.
        record: History, best weights and last weights.
        final: A model with the structure of the trained one.
        best: The trained model, as `measure_run` returns it.
        metrics: As `measure_run` returns them.
        probabilities: Of the test images, to find the mistakes for the report.
        command: What the report shows as the command of the run.

    Raises:
        RunError: A file cannot be written.
    """
    data = job.data
    mistakes, suspects = _find_mistakes(data, best, probabilities)
    explanations = _explain_mistakes(best, mistakes, suspects)
    try:
        save_weights_as_model(folder, final, record.last, LAST_MODEL)
        save_weights_as_model(folder, final, record.best, RUN_MODEL)
        folder.write_history(record.history)
        folder.write_predictions(data.test.labels, probabilities.argmax(1))
        write_report(
            folder.path / REPORT,
            title=f"{job.recipe.variant} on {data.name}",
            metrics=metrics,
            history=record.history,
            class_names=data.class_names,
            mistakes=mistakes,
            explanation=explanations[0],
            lesson=job.lesson,
            facts=_facts(job, record, command),
            notes=list(data.notes),
        )
        write_mistakes(
            folder.path / MISTAKES_PAGE,
            suspects,
            explanations[1],
            sum(len(getattr(data, split)) for split in SPLITS),
        )
        # Last, because this file means that the run is complete.
        folder.write_json(METRICS, metrics)
    except OSError as error:
        raise RunError(
            f"cannot write the results to {folder.path} ({error}); the same call tries "
            "again, without training again"
        ) from error


def _find_mistakes(data, best, probabilities):
    """The worst mistakes of the test split, and of all splits together."""
    compute = partial(run_on_batch, best)
    found = {"test": find_mistakes(data, "test", probabilities, SHOWN_MISTAKES)}
    for split in ("train", "validation"):
        others = np.concatenate([compute(x) for x in data.batches(split)])
        found[split] = find_mistakes(data, split, others, SHOWN_MISTAKES)
    everywhere = [mistake for mistakes in found.values() for mistake in mistakes]
    everywhere.sort(key=lambda mistake: -mistake.confidence)
    return found["test"], everywhere[:SHOWN_MISTAKES]


def _explain_mistakes(best, *groups):
    """Where the model looked in each group of mistakes; `None` for an empty one."""
    return [
        explain(best, [mistake.image for mistake in group], verbose=False)
        if group
        else None
        for group in groups
    ]


def final_lines(
    metrics: dict, folder: RunFolder | None, seconds: float
) -> Iterator[str]:
    """What is shown at the end of a run.

    Args:
        metrics: As `measure_run` returns them.
        folder: The folder of the run, if there is one.
        seconds: Wall time of the run.

    Yields:
        One line each.

    Example:

    >>> metrics = {"test": {"top1": 0.5, "top1_ci95": [0.4, 0.6]}}
    >>> list(final_lines(metrics | {"validation": {"epoch": 3}}, None, 61))
    ['test accuracy 50.00% (95 % interval 40.00% to 60.00%), best epoch 3, 1:01']
    """
    low, high = metrics["test"]["top1_ci95"]
    yield (
        f"test accuracy {metrics['test']['top1']:.2%} "
        f"(95 % interval {low:.2%} to {high:.2%}), "
        f"best epoch {metrics['validation']['epoch']}, {duration(seconds)}"
    )
    if folder is not None:
        yield f"model: {folder.path / RUN_MODEL}"
        yield f"report: {folder.path / REPORT}"


def _facts(job, record, command):
    """How the run can be repeated."""
    import tensorflow as tf

    from cct_keras import __version__

    data, recipe, default = job.data, job.recipe, Recipe()
    height, width = data.image_size
    return {
        "command": command or "cct_keras.train",
        "data": data.describe(),
        "data fingerprint": data.fingerprint,
        "mean": ", ".join(f"{value:.4f}" for value in data.mean),
        "std": ", ".join(f"{value:.4f}" for value in data.std),
        "image size": f"{height} x {width}",
        "seed": str(job.seed),
        "split seed": str(data.cut.get("seed")),
        **_time_facts(record.pace),
        **{
            f"recipe: {name}": str(value)
            for name, value in recipe_settings(recipe).items()
            if value != getattr(default, name) or name in ALWAYS_SHOWN
        },
        "dtype policy": precision_policy(recipe.precision),
        "versions": ", ".join(
            (
                f"cct_keras {__version__}",
                f"Keras {keras.__version__} on {keras.config.backend()}",
                f"TensorFlow {tf.__version__}",
                f"NumPy {np.__version__}",
                f"Python {platform.python_version()}",
            )
        ),
        "machine": f"{platform.machine()}, {platform.system()}",
    }


def _time_facts(pace):
    """What a time limit came to."""
    if pace is None:
        return {}
    minutes = pace.budget.seconds / 60
    return {
        "time limit": f"{minutes:g} minutes, planned for {pace.budget.epochs:.3g} "
        f"epochs; {pace.clock.seconds / 60:.4g} minutes had passed before this report"
    }
