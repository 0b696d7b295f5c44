"""What all engines share: an exported file, opened in its runtime."""

import os
from collections.abc import Sequence

import numpy as np

from cct_keras.errors import DataError
from cct_keras.runtime.messages import first_line
from cct_keras.runtime.metadata import Metadata
from cct_keras.runtime.ranking import softmax

# More threads do not make models as small as ours faster.
MOST_THREADS = 8


class Engine:
    """Computes the outputs of a model for batches of images.

    A subclass opens a file of its kind, calls `check_graph` with the shapes that the
    file itself tells, and has a method `compute`.

    Args:
        path: The file or folder.
        metadata: What the file knows of itself.

    Attributes:
        path: The file or folder, as text.
        metadata: What the file knows of itself.
    """

    def __init__(self, path: str | os.PathLike, metadata: Metadata):
        self.path = str(path)
        self.metadata = metadata
        self._scores_at, self._maps_at = 0, None if metadata.maps is None else 1

    def compute(self, images: np.ndarray) -> list[np.ndarray]:
        """All outputs of the graph for a batch in exactly the form it takes."""
        raise NotImplementedError

    def run(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Computes the outputs of a batch of any length.

        Args:
            images: Array `(count, height, width, channels)` of pixels from 0 to 255,
                in the size of the model.

        Returns:
            What the file calls its output, `(count, classes)` in float32: the
            probabilities or the logits; and the maps `(count, rows, columns)`, or
            `None` if the file has none.
        """
        metadata, images = self.metadata, np.asarray(images)
        expected = (*metadata.image_size, metadata.channels)
        if images.shape[1:] != expected:
            raise DataError(
                f"{self.path} takes images of shape {expected}. Received: "
                f"{images.shape[1:]}"
            )
        scores, maps = [], []
        step = metadata.batch or max(1, len(images))
        for start in range(0, len(images), step):
            batch = images[start : start + step]
            outputs = self._compute_checked(self._as_input(batch))
            scores.append(outputs[self._scores_at][: len(batch)])
            if self._maps_at is not None:
                maps.append(outputs[self._maps_at][: len(batch)])
        scores = _join_batches(scores, (metadata.num_classes,))
        return scores, None if metadata.maps is None else _join_batches(
            maps, metadata.maps
        )

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """Computes the probabilities of a batch, also where the file has logits.

        Args:
            images: As for `run`.

        Returns:
            Array `(count, classes)`.
        """
        scores, _ = self.run(images)
        return softmax(scores) if self.metadata.output == "logits" else scores

    def check_graph(
        self,
        input_shape: Sequence[int | None],
        input_dtype: str,
        output_shapes: Sequence[Sequence[int | None]],
    ) -> None:
        """Compares what the metadata claim with the shapes of the graph.

        Args:
            input_shape: Shape of the input, `None` where it is open.
            input_dtype: Type of the input.
            output_shapes: Shapes of the outputs. Converters change their names and
                their order; the maps have one axis more than the other output.
        """
        metadata = self.metadata
        shape, claimed = tuple(input_shape), metadata.input_shape
        fits = len(shape) == len(claimed) and all(
            side in (None, claim) for side, claim in zip(shape, claimed)
        )
        if not fits or input_dtype != metadata.input_dtype:
            self._refuse(
                f"images {_describe_shape(claimed)} of {metadata.input_dtype}",
                f"{_describe_shape(shape)} of {input_dtype}",
            )
        ranks = [len(shape) for shape in output_shapes]
        expected = [2] if metadata.maps is None else [2, 3]
        if sorted(ranks) != expected:
            self._refuse(f"{len(expected)} outputs", f"{len(ranks)} others")
        self._scores_at = ranks.index(2)
        self._check_output(output_shapes[self._scores_at], (metadata.num_classes,))
        if metadata.maps is not None:
            self._maps_at = ranks.index(3)
            self._check_output(output_shapes[self._maps_at], metadata.maps)

    def _check_output(self, shape, claimed):
        if any(a not in (None, b) for a, b in zip(shape[1:], claimed)):
            self._refuse(
                f"outputs {_describe_shape((None, *claimed))}", _describe_shape(shape)
            )

    def _refuse(self, claimed, found):
        raise DataError(
            f"{self.path} is broken: its metadata claim {claimed}, its graph has "
            f"{found}"
        )

    def _as_input(self, batch):
        """The batch in the type, the layout and the length that the graph takes."""
        metadata = self.metadata
        if metadata.input_dtype == "uint8":
            if batch.dtype != np.uint8:
                batch = np.rint(batch).clip(0, 255).astype(np.uint8)
        else:
            batch = batch.astype(np.float32, copy=False)
        if metadata.layout == "nchw":
            batch = batch.transpose(0, 3, 1, 2)
        missing = (metadata.batch or len(batch)) - len(batch)
        if missing:
            batch = np.concatenate(
                [batch, np.zeros_like(batch, shape=(missing, *batch.shape[1:]))]
            )
        return np.ascontiguousarray(batch)

    def _compute_checked(self, batch):
        # Runtimes raise errors of many kinds.
        try:
            outputs = self.compute(batch)
        except Exception as error:
            raise DataError(
                f"{self.path} cannot be computed: {first_line(error)}"
            ) from error
        self._check_result(
            outputs[self._scores_at], batch, (self.metadata.num_classes,)
        )
        if self._maps_at is not None:
            self._check_result(outputs[self._maps_at], batch, self.metadata.maps)
        return outputs

    def _check_result(self, output, batch, claimed):
        if output.shape != (len(batch), *claimed):
            self._refuse(
                f"outputs {_describe_shape((None, *claimed))}", f"{output.shape}"
            )


def usable_threads() -> int:
    """How many threads a runtime should use: the cores of this process, at most 8.

    The runtimes themselves count all cores of the machine, also those that a
    container or `taskset` took away.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return min(cores, MOST_THREADS)


def _describe_shape(shape):
    return "(" + ", ".join("n" if side is None else str(side) for side in shape) + ")"


def _join_batches(parts, shape):
    if not parts:
        return np.zeros((0, *shape), np.float32)
    joined = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return np.asarray(joined, np.float32)
