"""How long a step takes: real steps on real batches, which leave no trace."""

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple

import keras
import numpy as np

from cct_keras.data.pipeline import WORKERS
from cct_keras.distributed.devices import Devices
from cct_keras.training.random_state import torch_random_states
from cct_keras.training.random_state import unchanged_random_state

# So many batches are ready before the first step ends, which compiles. A pipeline that
# is slower than the model shows only after them.
BUFFERED = 2 * WORKERS + 2
# What is measured ends with this step, or after so many seconds.
MOST_STEPS = BUFFERED + 10
MOST_SECONDS = 2.0


class MeasuredStep(NamedTuple):
    """What `measure_step` finds out.

    Attributes:
        seconds: Seconds of a step.
        first: Seconds of the first one, which compiles.
        random_states: States of torch's generators at the first step. `fit` draws from
            them as it starts, and more where it starts for the first time.
    """

    seconds: float
    first: float
    random_states: list[np.ndarray]


def measure_step(
    model: keras.Model, batches, devices: Devices, *, seconds: float = MOST_SECONDS
) -> MeasuredStep:
    """Times training steps, and puts back everything that they change.

    The compiled function is kept, so that training does not compile again.

    Args:
        model: A compiled model.
        batches: A `tf.data.Dataset` of the batches it is trained on. They may be fewer
            than are needed.
        devices: The devices of the run.
        seconds: About how long to measure, without the first step.

    Returns:
        A `MeasuredStep`.

    Example:

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> model.compile(loss="mse")
    >>> import tensorflow as tf
    >>> batch = np.ones((8, 4), "float32"), np.ones((8, 2), "float32")
    >>> batches = tf.data.Dataset.from_tensors(batch)
    >>> found = measure_step(model, batches, Devices(), seconds=0.1)
    >>> 0 < found.seconds < found.first, int(model.optimizer.iterations)
    (True, 0)
    """
    watch = _Watch(seconds)
    with unchanged(model), devices.scope():
        model.fit(
            batches.repeat(),
            epochs=1,
            steps_per_epoch=MOST_STEPS + 1,
            shuffle=False,
            callbacks=[watch],
            verbose=0,
        )
    return MeasuredStep(
        watch.typical(skipped=BUFFERED), watch.first, watch.random_states
    )


def measure_validation(
    model: keras.Model, batches, devices: Devices
) -> tuple[float, float]:
    """Times batches of the validation, likewise.

    Args:
        model: A compiled model.
        batches: A `tf.data.Dataset` of what it is validated on.
        devices: The devices of the run.

    Returns:
        Seconds until the first batch of a validation is done, with what the pipeline
        takes to start, and of each further one.
    """
    batches = batches.take(1).repeat(4)
    with unchanged(model), devices.scope():
        # The first time it compiles.
        for _ in range(2):
            watch = _Watch(MOST_SECONDS)
            model.evaluate(batches, callbacks=[watch], verbose=0)
    return watch.first, watch.typical()


@contextlib.contextmanager
def unchanged(model: keras.Model) -> Iterator[None]:
    """A context after which a model is as if it had not been trained in it.

    Args:
        model: A compiled model. Its weights, the state of its optimizer, of its random
            layers and of its metrics are put back, and the random numbers of the
            process.

    Example:

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> model.compile(loss="mse")
    >>> before = model.get_weights()
    >>> with unchanged(model):
    ...     _ = model.fit(np.ones((8, 4)), np.ones((8, 2)), verbose=0)
    >>> np.array_equal(model.get_weights()[0], before[0])
    True
    """
    kept = [
        (variable, _value(variable))
        for variable in (
            *model.variables,
            *model.optimizer.variables,
            *model.metrics_variables,
        )
    ]
    with unchanged_random_state():
        try:
            yield
        finally:
            # Metrics that were built meanwhile begin anew.
            model.reset_metrics()
            for variable, value in kept:
                variable.assign(value)


def _value(variable):
    # A copy: on some backends the array is the memory of the variable.
    value = np.array(keras.ops.convert_to_numpy(variable))
    return value.astype("float32") if value.dtype.kind == "V" else value


class _Watch(keras.callbacks.Callback):
    """Notes when the steps end, and ends training or evaluation after a while."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds
        self._ends = []

    def on_train_begin(self, logs=None):
        self._start = time.perf_counter()

    on_test_begin = on_train_begin

    def on_train_batch_begin(self, batch, logs=None):
        if not batch:
            self.random_states = torch_random_states()

    def on_train_batch_end(self, batch, logs=None):
        if self._is_enough(logs):
            self.model.stop_training = True

    def on_test_batch_end(self, batch, logs=None):
        if self._is_enough(logs):
            self.model.stop_evaluating = True

    def _is_enough(self, logs):
        # An accelerator computes on while Python is ahead; this waits for it.
        float((logs or {}).get("loss", 0.0))
        self._ends.append(time.perf_counter())
        steps, seconds = len(self._ends) - 1, self._ends[-1] - self._ends[0]
        return steps >= MOST_STEPS or (steps > 0 and seconds >= self.seconds)

    @property
    def first(self):
        return self._ends[0] - self._start

    def typical(self, skipped=0):
        seconds = np.diff(self._ends)
        return float(np.mean(seconds[min(skipped, len(seconds) // 2) :]))
