"""How fast an exported model is on this machine; no Keras is needed."""

import os
import pathlib
from typing import NamedTuple

import numpy as np

from cct_keras.benchmarking.measuring import Contestant
from cct_keras.benchmarking.measuring import Timing
from cct_keras.benchmarking.measuring import measure
from cct_keras.checks import check_positive
from cct_keras.errors import DataError
from cct_keras.runtime.formats import open_engine

EXPORTED_TASKS = ("opening", "latency", "inference")
# Numbers in the input of a batch: more than these keep any machine busy.
MOST_NUMBERS = 2**22
MOST_IMAGES = 64


class ExportedSpeed(NamedTuple):
    """What `benchmark_exported` measures of a file.

    Attributes:
        file: The file.
        bytes: Its size, with everything that belongs to it.
        batch_size: Images per step of inference.
        precision: In what it stores its weights.
        opening: `Timing` of opening the file.
        latency: `Timing` of a single image.
        inference: `Timing` of a batch.
    """

    file: str
    bytes: int
    batch_size: int
    precision: str
    opening: Timing
    latency: Timing
    inference: Timing

    @property
    def memory(self) -> int | None:
        """Bytes that the opened model and a batch take, the runtime included."""
        parts = [t.memory for t in (self.opening, self.latency, self.inference)]
        return None if None in parts else sum(parts)

    def as_dict(self) -> dict:
        """Everything in plain dictionaries, in seconds and bytes."""
        fields = {
            name: value._asdict() if isinstance(value, tuple) else value
            for name, value in self._asdict().items()
        }
        return {**fields, "memory": self.memory}


def benchmark_exported(
    path: str | os.PathLike,
    *,
    batch_size: int | None = None,
    rounds: int = 5,
    seconds: float = 1.0,
) -> ExportedSpeed:
    """Measures an exported model in a process of its own.

    Args:
        path: A file that `export` wrote.
        batch_size: Images per step; by default that of the file, or up to 64.
        rounds: How often to measure.
        seconds: About how long a round takes.

    Returns:
        An `ExportedSpeed`.

    Example (the test skips it, as it needs the file):

    >>> speed = benchmark_exported("model.onnx", rounds=1)  # doctest: +SKIP
    >>> 1000 * speed.latency.best  # Milliseconds of one image.  # doctest: +SKIP
    0.41
    """
    metadata = open_engine(path).metadata
    if batch_size is None:
        height, width = metadata.image_size
        fitting = MOST_NUMBERS // (height * width * metadata.channels)
        batch_size = metadata.batch or max(1, min(MOST_IMAGES, fitting))
    check_positive("benchmark", batch_size=batch_size, rounds=rounds)
    if not seconds > 0:
        raise DataError(
            f"benchmark: `seconds` must be more than 0. Received: seconds={seconds}"
        )
    contestant = Contestant(
        str(path),
        "cct_keras.benchmarking.exported:exported_tasks",
        {"path": str(path), "batch_size": batch_size},
    )
    timings = measure([contestant], EXPORTED_TASKS, rounds=rounds, seconds=seconds)
    return ExportedSpeed(
        str(path),
        _size(pathlib.Path(path)),
        batch_size,
        metadata.precision,
        **timings[str(path)],
    )


def exported_tasks(path: str, batch_size: int) -> dict:
    """The tasks of an exported file for `measure`: opening, latency, inference.

    Args:
        path: The file.
        batch_size: Images per step of inference.

    Returns:
        A function of the number of steps for each task.
    """
    opened = []

    def opening(steps):
        for _ in range(steps):
            opened[:] = [open_engine(path)]

    def run(steps, count):
        (engine,) = opened
        shape = (*engine.metadata.image_size, engine.metadata.channels)
        images = np.full((count, *shape), 127, engine.metadata.input_dtype)
        for _ in range(steps):
            engine.run(images)

    return {
        "opening": opening,
        "latency": lambda steps: run(steps, 1),
        "inference": lambda steps: run(steps, batch_size),
    }


def _size(path):
    """Bytes of a file with the weights beside it, or of all files in a folder."""
    files = [path, path.with_suffix(".bin")] if path.suffix == ".xml" else [path]
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)
