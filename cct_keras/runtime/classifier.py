"""Exported models: pictures in, classes out."""

import os

import numpy as np

from cct_keras.errors import DataError
from cct_keras.runtime.formats import open_engine
from cct_keras.runtime.metadata import Metadata
from cct_keras.runtime.prediction import classify
from cct_keras.runtime.prediction import load_batches


class Classifier:
    """A model that `cct_keras.export` wrote, opened in its runtime.

    It needs NumPy, Pillow and the runtime of the file (onnxruntime, ai-edge-litert or
    openvino), neither Keras nor TensorFlow, and answers as `cct_keras.predict` does
    for the model that was exported.

    Args:
        path: An .onnx, .tflite or .xml (OpenVINO) file, or the folder of a SavedModel,
            which needs TensorFlow.
        threads: How many threads to use; by default the cores of this process, at
            most 8.

    Attributes:
        metadata: What the file knows of itself, a `Metadata`.
        class_names: Names of the classes, in the order of the probabilities.

    Example (the test skips it, as it needs the files):

    >>> classifier = Classifier("model.onnx")  # doctest: +SKIP
    >>> classifier(["cat.jpg", "dog.png"]).shape  # doctest: +SKIP
    (2, 10)
    >>> classifier.predict("cat.jpg", top=1)  # doctest: +SKIP
    [{'image': 'cat.jpg', 'classes': [{'name': 'cat', 'probability': 0.98}]}]
    """

    def __init__(self, path: str | os.PathLike, *, threads: int | None = None):
        self._engine = open_engine(path, threads=threads)

    @property
    def metadata(self) -> Metadata:
        """What the file knows of itself."""
        return self._engine.metadata

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the probabilities."""
        return self.metadata.class_names

    def __call__(self, images) -> np.ndarray:
        """Computes probabilities.

        Args:
            images: Image files, folders of them, arrays `(height, width, channels)` of
                any size with values from 0 to 255, or floats from 0 to 1, or images of
                Pillow; one of these, a list, or a batch.

        Returns:
            float32 array `(images, classes)`.
        """
        return self._compute(
            images, self._engine.probabilities, (len(self.class_names),)
        )

    def maps(self, images) -> np.ndarray:
        """Computes where the model looks, if the file was exported with maps.

        Args:
            images: As for a call.

        Returns:
            float32 array `(images, rows, columns)`; each map sums to 1.
        """
        if self.metadata.maps is None:
            raise DataError(
                f"{self._engine.path} has no maps: export the model with maps=True"
            )
        return self._compute(
            images, lambda batch: self._engine.run(batch)[1], self.metadata.maps
        )

    def predict(self, sources, top: int = 5) -> list[dict]:
        """Classifies images, as `cct_keras.predict` does.

        Args:
            sources: As for a call.
            top: How many classes to name.

        Returns:
            For each image `{"image": ..., "classes": [{"name", "probability"}]}`, or
            `{"image": ..., "error": ...}` for a file that cannot be read.
        """
        return classify(self._engine, sources, top)

    def _compute(self, images, compute, shape):
        results = [np.zeros((0, *shape), np.float32)]
        for _, batch in load_batches(images, self.metadata):
            for image in batch:
                if isinstance(image, DataError):
                    raise image
            results.append(compute(np.stack(batch)))
        return np.concatenate(results)
