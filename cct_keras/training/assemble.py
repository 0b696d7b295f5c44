"""Second and third step of a run together: the model, built and compiled.

With `precision="auto"` this is done for each precision, and the fastest one stays.
"""

import dataclasses

import keras
import numpy as np

from cct_keras.distillation.losses import two_heads
from cct_keras.notes import collected_notes
from cct_keras.pretrained.source import WeightSource
from cct_keras.recipes.recipe import Recipe
from cct_keras.training.batches import RunBatches
from cct_keras.training.build import build_model
from cct_keras.training.build import device_type
from cct_keras.training.compile import compile_model
from cct_keras.training.load import Job
from cct_keras.training.run_folder import RunFolder
from cct_keras.training.schedule import WarmupSchedule
from cct_keras.training.step_time import measure_step

# What `precision="auto"` tries; an earlier one wins unless a later one is faster by
# more than this share.
CANDIDATES = ("float32", "mixed_bfloat16")
GPU_CANDIDATES = (*CANDIDATES, "mixed_float16")
TIE = 0.03
# The candidates take turns, so that other work of the machine slows all of them.
TURNS = 2
SECONDS_OF_A_TURN = 1.0


@dataclasses.dataclass(frozen=True, eq=False)
class Assembled:
    """What is trained.

    Attributes:
        model: The model whose weights are kept.
        student: The compiled model with the same weights that is trained.
        schedule: The learning rate of each step.
        recipe: The recipe, with the precision that was chosen.
        notes: What a user should know about the weights.
        random_states: States of torch's generators at the first step, if it was
            measured.
    """

    model: keras.Model
    student: keras.Model
    schedule: WarmupSchedule
    recipe: Recipe
    notes: tuple[str, ...]
    random_states: tuple[np.ndarray, ...] = ()


def assemble_run(
    job: Job,
    batches: RunBatches,
    folder: RunFolder | None = None,
    source: WeightSource | None = None,
    *,
    jit: bool | None = None,
) -> Assembled:
    """Builds and compiles the model of a run, in the precision on record if it has one.

    Args:
        job: What is to be trained.
        batches: What it is trained on.
        folder: The folder of the run, if there is one.
        source: Weights to start from, if any.
        jit: Whether to compile with XLA; `None` decides by the machine.

    Returns:
        What is trained.
    """
    if job.recipe.precision != "auto":
        return assemble(job, source, jit=jit)
    seconds = folder and folder.read_plan().get("step_seconds")
    if seconds:
        assembled = assemble(_in_precision(job, fastest(seconds)), source, jit=jit)
    else:
        assembled, seconds = assemble_fastest(job, batches, source, jit=jit)
        if folder is not None:
            folder.record_plan(precision=fastest(seconds), step_seconds=seconds)
    notes = (*assembled.notes, precision_note(seconds))
    return dataclasses.replace(assembled, notes=notes)


def _in_precision(job, precision):
    recipe = dataclasses.replace(job.recipe, precision=precision)
    return dataclasses.replace(job, recipe=recipe)


def assemble(
    job: Job, source: WeightSource | None = None, *, jit: bool | None = None
) -> Assembled:
    """Builds and compiles the model of a run.

    It begins by seeding the random numbers of the process, so that it does not matter
    what was built before.

    Args:
        job: What is to be trained.
        source: Weights to start from, if any.
        jit: Whether to compile with XLA; `None` decides by the machine.

    Returns:
        What is trained.
    """
    data, recipe, devices = job.data, job.recipe, job.devices
    keras.utils.set_random_seed(job.seed)
    with collected_notes() as notes, devices.scope():
        model = build_model(data, recipe, source, classifier_activation=None)
        student = model if recipe.teacher is None else two_heads(model)
        schedule = compile_model(
            student,
            recipe,
            images=len(data.train),
            num_classes=data.num_classes,
            jit=jit,
            devices=devices,
            clocked=job.minutes is not None,
        )
    return Assembled(model, student, schedule, recipe, tuple(dict.fromkeys(notes)))


def assemble_fastest(
    job: Job,
    batches: RunBatches,
    source: WeightSource | None = None,
    *,
    jit: bool | None = None,
) -> tuple[Assembled, dict[str, float]]:
    """Builds and compiles the model in the precision whose steps are the fastest.

    Args:
        job: What is to be trained, with `precision="auto"`.
        batches: What it is trained on.
        source: Weights to start from, if any.
        jit: Whether to compile with XLA; `None` decides by the machine.

    Returns:
        What is trained, and the seconds of a step in each precision.
    """
    candidates, states, seconds = {}, {}, {}
    for _ in range(TURNS):
        for precision in CANDIDATES if device_type() == "cpu" else GPU_CANDIDATES:
            if precision not in candidates:
                candidate = _in_precision(job, precision)
                candidates[precision] = assemble(candidate, source, jit=jit)
            found = measure_step(
                candidates[precision].student,
                batches.training(),
                job.devices,
                seconds=SECONDS_OF_A_TURN,
            )
            states.setdefault(precision, tuple(found.random_states))
            best = seconds.get(precision, found.seconds)
            seconds[precision] = min(best, found.seconds)
    chosen = fastest(seconds)
    assembled = candidates[chosen]
    return dataclasses.replace(assembled, random_states=states[chosen]), seconds


def precision_note(seconds: dict[str, float]) -> str:
    """What a user should know about the precision that was chosen.

    Args:
        seconds: Seconds of a step by precision.

    Returns:
        A sentence.

    Example:

    >>> precision_note({"float32": 0.08, "mixed_bfloat16": 0.06})
    "precision='auto' chose mixed_bfloat16: a step takes 60 ms, 80 ms in float32"
    """
    chosen = fastest(seconds)
    times = {name: f"{1000 * value:.3g} ms" for name, value in seconds.items()}
    others = [f"{time} in {name}" for name, time in times.items() if name != chosen]
    return (
        f"precision='auto' chose {chosen}: a step takes "
        f"{', '.join((times[chosen], *others))}"
    )


def fastest(seconds: dict[str, float]) -> str:
    """The precision with the fastest steps; among equals, the first.

    Args:
        seconds: Seconds of a step by precision.

    Returns:
        One of the precisions.

    Example:

    >>> fastest({"float32": 1.0, "mixed_bfloat16": 0.98})
    'float32'
    >>> fastest({"float32": 1.0, "mixed_bfloat16": 0.7})
    'mixed_bfloat16'
    """
    chosen, *others = seconds
    for precision in others:
        if seconds[precision] < (1 - TIE) * seconds[chosen]:
            chosen = precision
    return chosen
