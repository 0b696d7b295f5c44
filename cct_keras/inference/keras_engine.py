"""A Keras model as an engine: what answers for exported files answers for it too."""

import keras
import numpy as np

from cct_keras.inference.classifier import find_preprocessing
from cct_keras.inference.classifier import load_classifier
from cct_keras.inference.forward import run_on_batch
from cct_keras.runtime.engine import Engine
from cct_keras.runtime.metadata import Metadata


class KerasEngine(Engine):
    """A classifier in Keras.

    Args:
        model: What `load_classifier` takes.

    Example:

    >>> engine = KerasEngine("cct_2_3x2_32.digits")
    >>> engine.probabilities(np.zeros((2, 16, 16, 1), "float32")).shape
    (2, 10)
    """

    def __init__(self, model):
        self._model = load_classifier(model)
        super().__init__(self._model.name, _describe_model(self._model))

    def run(self, images: np.ndarray) -> tuple[np.ndarray, None]:
        """The probabilities of a batch of images, and no maps."""
        return run_on_batch(self._model, images), None


def _describe_model(model: keras.Model) -> Metadata:
    layer = find_preprocessing(model)
    names = layer.class_names
    return Metadata(
        class_names=names or tuple(str(i) for i in range(model.output_shape[-1])),
        class_names_known=names is not None,
        image_size=layer.image_size,
        channels=model.input_shape[-1],
        mean=layer.mean,
        std=layer.std,
        crop=layer.crop,
        interpolation=layer.interpolation,
        name=model.name,
        trained_on=layer.trained_on,
    )
