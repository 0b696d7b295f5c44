"""How fast a variant is on this machine."""

import importlib.util
import math
from collections.abc import Callable
from typing import NamedTuple

from cct_keras.benchmarking.measuring import Contestant
from cct_keras.benchmarking.measuring import Timing
from cct_keras.benchmarking.measuring import measure
from cct_keras.checks import check_positive
from cct_keras.data.dataset import as_size
from cct_keras.data.pipeline import untuned
from cct_keras.models.cost import Cost
from cct_keras.models.cost import variant_cost
from cct_keras.models.variants import find_variant

TASKS = ("inference", "latency", "training", "gemm")
# A product of square matrices of this side shows what the machine can do at best.
GEMM_SIDE = 2048


class Speed(NamedTuple):
    """What `benchmark` measures of a variant.

    Attributes:
        variant: Name of the variant.
        batch_size: Images per step of inference and training.
        cost: `Cost` of one image.
        inference: `Timing` of a batch.
        latency: `Timing` of a single image.
        training: `Timing` of a training step.
        gemm: `Timing` of the product of two square matrices of side `GEMM_SIDE`.
    """

    variant: str
    batch_size: int
    cost: Cost
    inference: Timing
    latency: Timing
    training: Timing
    gemm: Timing

    @property
    def inference_share(self) -> float:
        """Share of `peak_flops` that inference reaches."""
        return self._share(1, self.inference)

    @property
    def training_share(self) -> float:
        """Share of `peak_flops` that training reaches.

        A training step computes three times as much as inference.
        """
        return self._share(3, self.training)

    @property
    def peak_flops(self) -> float:
        """Floating-point operations per second of the product of matrices."""
        return 2 * GEMM_SIDE**3 / self.gemm.best

    def _share(self, passes, timing):
        macs = self.cost.macs + self.cost.attention_macs
        return 2 * passes * self.batch_size * macs / timing.best / self.peak_flops

    def as_dict(self) -> dict:
        """Everything in plain dictionaries, in seconds and bytes."""
        fields = {
            name: value._asdict() if isinstance(value, tuple) else value
            for name, value in self._asdict().items()
        }
        return {**fields, "peak_flops": self.peak_flops}


def benchmark(
    variant: str,
    *,
    batch_size: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    jit: bool | None = None,
    remat: bool = False,
    precision: str = "mixed",
    rounds: int = 5,
    seconds: float = 1.0,
    log: Callable[[str], None] = lambda line: None,
) -> Speed:
    """Measures a variant on the current backend, in a process of its own.

    Training is a step of `train`, with attention dropout and stochastic depth of 0.1;
    inference is what `predict` does.

    Args:
        variant: One of `list_models()`.
        batch_size: Images per step; by default up to 64, fewer for large models.
        image_size: Side, or `(height, width)`, if not the variant's own.
        jit: Whether to compile with XLA; by default as `train` and `predict` do.
        remat: Whether training computes the blocks again in the backward pass instead
            of keeping them.
        precision: As in a recipe, such as `"mixed_bfloat16"`.
        rounds: How often to measure.
        seconds: About how long a round takes.
        log: Called with a line of progress.

    Returns:
        A `Speed`.

    Example (images per second in training; the test skips it, as it takes 20 s):

    >>> speed = benchmark("cct_2_3x2_32", rounds=1)  # doctest: +SKIP
    >>> speed.batch_size / speed.training.best  # doctest: +SKIP
    1203.4
    """
    import keras

    from cct_keras.recipes.rows import find_recipe

    find_variant(variant)
    if image_size is not None:
        image_size = as_size(image_size)
    cost = variant_cost(variant, image_size=image_size)
    if batch_size is None:
        batch_size = suitable_batch_size(cost)
    check_positive("benchmark", batch_size=batch_size, rounds=rounds)
    # An unknown precision is better refused here than in the other process.
    find_recipe("small", precision=precision)
    if precision == "auto":
        raise ValueError(
            "benchmark: `precision` is what is compared, so name one. "
            "Received: precision='auto'"
        )
    if not seconds > 0:
        raise ValueError(
            f"benchmark: `seconds` must be more than 0. Received: seconds={seconds}"
        )
    contestant = Contestant(
        variant,
        "cct_keras.benchmarking.benchmark:variant_tasks",
        {
            "variant": variant,
            "batch_size": batch_size,
            "image_size": image_size,
            "jit": jit,
            "remat": remat,
            "precision": precision,
        },
        {"KERAS_BACKEND": keras.config.backend()},
    )
    timings = measure([contestant], TASKS, rounds=rounds, seconds=seconds, log=log)
    return Speed(variant, batch_size, cost, **timings[variant])


def installed_backends() -> list[str]:
    """Names of the backends that Keras could use here."""
    names = ("tensorflow", "jax", "torch")
    return [name for name in names if importlib.util.find_spec(name)]


def suitable_batch_size(cost: Cost) -> int:
    """A batch size that keeps a modest machine busy for seconds, not minutes.

    Example:

    >>> suitable_batch_size(variant_cost("cct_14_7x2_224"))
    16
    """
    images = 100e9 / (cost.macs + cost.attention_macs)
    return min(64, 2 ** max(0, math.floor(math.log2(images))))


# === Inside the process of a contestant ===


def variant_tasks(
    variant: str,
    batch_size: int,
    *,
    inference_batch_size: int | None = None,
    image_size: tuple[int, int] | None = None,
    jit: bool | None = None,
    remat: bool = False,
    precision: str = "mixed",
    attention_dropout: float = 0.1,
) -> dict:
    """The tasks of a variant for `measure`: inference, latency, training, gemm.

    Args:
        variant: Name of the variant.
        batch_size: Images per training step.
        inference_batch_size: Images per step of inference, if not as many.
        image_size: `(height, width)`, if not the variant's own.
        jit: Whether to compile with XLA; by default as `train` and `predict` do.
        remat: Whether training computes the blocks again in the backward pass.
        precision: As in a recipe.
        attention_dropout: Attention dropout in training.

    Returns:
        A function of the number of steps for each task.
    """
    import keras
    import numpy as np

    from cct_keras.inference.forward import run_on_batch
    from cct_keras.models.factory import create_model
    from cct_keras.recipes.rows import find_recipe
    from cct_keras.training.build import precision_policy
    from cct_keras.training.compile import compile_model

    row = find_variant(variant)
    shape = (*(image_size or (row.image_size, row.image_size)), 3)
    recipe = find_recipe(
        "small",
        variant=variant,
        batch_size=batch_size,
        remat=remat,
        precision=precision,
    )
    dtype = precision_policy(recipe.precision)
    # A body without classes trains as it would on ImageNet.
    num_classes = row.num_classes or 1000
    student = create_model(
        variant,
        input_shape=shape,
        num_classes=num_classes,
        classifier_activation=None,
        attention_dropout=attention_dropout,
        stochastic_depth=0.1,
        dtype=dtype,
    )
    compile_model(
        student,
        recipe,
        images=batch_size,
        num_classes=num_classes,
        jit=jit,
    )
    model = create_model(variant, input_shape=shape, dtype=dtype)
    if jit is not None:
        model.compile(jit_compile=jit)
    matrix = keras.ops.convert_to_tensor(
        np.random.default_rng(0).standard_normal((GEMM_SIDE, GEMM_SIDE), "float32")
    )

    def gemm(steps):
        for _ in range(steps):
            # Reading a value waits for the product.
            keras.ops.convert_to_numpy(keras.ops.matmul(matrix, matrix)[0, 0])

    tasks = keras_tasks(
        student,
        lambda images: run_on_batch(model, images),
        batch_size,
        inference_batch_size or batch_size,
    )
    return {**tasks, "gemm": gemm}


def keras_tasks(
    student, predict: Callable, batch_size: int, inference_batch_size: int
) -> dict:
    """The tasks of any Keras classifier: inference, latency, training.

    Args:
        student: A compiled model for training, with one-hot labels.
        predict: Inference, a function of a batch of images.
        batch_size: Images per training step.
        inference_batch_size: Images per step of inference.

    Returns:
        A function of the number of steps for each task.
    """
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(0)
    shape, classes = student.input_shape[1:], student.output_shape[-1]
    batch = random.standard_normal((batch_size, *shape), "float32")
    labels = np.eye(classes, dtype="float32")[np.arange(batch_size) % classes]
    batches = untuned(tf.data.Dataset.from_tensors((batch, labels)).repeat())
    images = random.standard_normal((inference_batch_size, *shape), "float32")

    def training(steps):
        student.fit(batches, steps_per_epoch=steps, shuffle=False, verbose=0)

    def inference(steps):
        for _ in range(steps):
            predict(images)

    def latency(steps):
        for _ in range(steps):
            predict(images[:1])

    return {"inference": inference, "latency": latency, "training": training}
