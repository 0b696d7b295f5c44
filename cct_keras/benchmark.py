"""How fast the models are on this machine."""

import importlib.util
import math
from typing import NamedTuple

from cct_keras.data.dataset import as_size
from cct_keras.data.pipeline import untuned
from cct_keras.layers.checks import check_positive
from cct_keras.measuring import Contestant
from cct_keras.measuring import Timing
from cct_keras.measuring import measure
from cct_keras.models.cost import Cost
from cct_keras.models.cost import variant_cost
from cct_keras.models.factory import find_variant

WORKS = ("inference", "latency", "training", "gemm")
GEMM_SIDE = 2048


class Speed(NamedTuple):
    """What `benchmark` finds out about a variant.

    Attributes:
        variant: Its name.
        batch_size: Images of a step of inference and training.
        cost: Its `Cost` an image.
        inference: `Timing` of a batch.
        latency: `Timing` of a single image.
        training: `Timing` of a step.
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
        """Arithmetic of the model over that of the matrix product, in a second."""
        return self._share(1, self.inference)

    @property
    def training_share(self) -> float:
        """The same; a training step is three times the arithmetic."""
        return self._share(3, self.training)

    @property
    def peak_flops(self) -> float:
        """Floating-point operations a second of the matrix product."""
        return 2 * GEMM_SIDE**3 / self.gemm.best

    def _share(self, passes, timing):
        macs = self.cost.macs + self.cost.attention_macs
        return 2 * passes * self.batch_size * macs / timing.best / self.peak_flops

    def as_dict(self) -> dict:
        """All of it in plain dictionaries, seconds and bytes."""
        parts = {
            name: value._asdict() if isinstance(value, tuple) else value
            for name, value in self._asdict().items()
        }
        return {**parts, "peak_flops": self.peak_flops}


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
    say=lambda text: None,
) -> Speed:
    """Measures a variant on the current backend, in a process of its own.

    Training is what `train` does in a step, with attention dropout and stochastic
    depth of 0.1; inference is what `predict` does.

    Args:
        variant: One of `list_models()`.
        batch_size: Images a step; by default up to 64, fewer for large models.
        image_size: Side, or `(height, width)`, if not the variant's own.
        jit: Whether to compile with XLA; by default what `train` and `predict` do.
        remat: Whether training computes the blocks again instead of keeping them.
        precision: As in a recipe, such as `"mixed_bfloat16"`.
        rounds: How often to measure.
        seconds: About how long a round takes.
        say: Called with a line of progress.

    Returns:
        A `Speed`.

    Example:

    >>> speed = benchmark("cct_2_3x2_32", rounds=1)
    >>> speed.batch_size / speed.training.best > 1  # images a second
    True
    """
    import keras

    from cct_keras.training.recipes import find_recipe

    find_variant(variant)
    if image_size is not None:
        image_size = as_size(image_size)
    cost = variant_cost(variant, image_size=image_size)
    if batch_size is None:
        batch_size = suitable_batch(cost)
    check_positive("benchmark", batch_size=batch_size, rounds=rounds)
    # Refuses an unknown one here and not in the other process.
    find_recipe("small", precision=precision)
    if not seconds > 0:
        raise ValueError(
            f"benchmark: `seconds` must be more than 0. Received: seconds={seconds}"
        )
    contestant = Contestant(
        variant,
        "cct_keras.benchmark:steps",
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
    timings = measure([contestant], WORKS, rounds=rounds, seconds=seconds, say=say)
    return Speed(variant, batch_size, cost, **timings[variant])


def installed_backends() -> list[str]:
    """The backends that Keras could use here."""
    names = ("tensorflow", "jax", "torch")
    return [name for name in names if importlib.util.find_spec(name)]


def suitable_batch(cost: Cost) -> int:
    """A batch that keeps a modest machine busy for seconds, not minutes."""
    images = 100e9 / (cost.macs + cost.attention_macs)
    return min(64, 2 ** max(0, math.floor(math.log2(images))))


def steps(
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
    """What a process of `measure` does: a function of the number of steps a work."""
    import keras
    import numpy as np

    from cct_keras.models import create_model
    from cct_keras.training.answers import answer
    from cct_keras.training.recipes import find_recipe
    from cct_keras.training.trainer import compile_model
    from cct_keras.training.trainer import precision_policy

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
    student = create_model(
        variant,
        input_shape=shape,
        classifier_activation=None,
        attention_dropout=attention_dropout,
        stochastic_depth=0.1,
        dtype=dtype,
    )
    compile_model(
        student,
        recipe,
        images=batch_size,
        num_classes=row.num_classes,
        jit=jit,
    )
    model = create_model(variant, input_shape=shape, dtype=dtype)
    if jit is not None:
        model.compile(jit_compile=jit)
    side = (GEMM_SIDE, GEMM_SIDE)
    matrix = keras.ops.convert_to_tensor(
        np.random.default_rng(0).standard_normal(side, "float32")
    )

    def gemm(count):
        for _ in range(count):
            keras.ops.convert_to_numpy(keras.ops.matmul(matrix, matrix)[0, 0])

    works = keras_steps(
        student,
        lambda images: answer(model, images),
        batch_size,
        inference_batch_size or batch_size,
    )
    return {**works, "gemm": gemm}


def keras_steps(student, ask, batch_size: int, inference_batch_size: int) -> dict:
    """The works of any Keras classifier.

    Args:
        student: A compiled model for training, with one-hot labels.
        ask: Inference, a function of a batch of images.
        batch_size: Images of a training step.
        inference_batch_size: Images of a step of inference.
    """
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(0)
    shape, classes = student.input_shape[1:], student.output_shape[-1]
    batch = random.standard_normal((batch_size, *shape), "float32")
    labels = np.eye(classes, dtype="float32")[np.arange(batch_size) % classes]
    batches = untuned(tf.data.Dataset.from_tensors((batch, labels)).repeat())
    images = random.standard_normal((inference_batch_size, *shape), "float32")

    def training(count):
        student.fit(batches, steps_per_epoch=count, shuffle=False, verbose=0)

    def inference(count, images=images):
        for _ in range(count):
            ask(images)

    def latency(count):
        inference(count, images[:1])

    return {"inference": inference, "latency": latency, "training": training}
