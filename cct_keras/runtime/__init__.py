"""Answers without Keras: exported models in onnxruntime, LiteRT or OpenVINO.

This room needs NumPy and Pillow, and imports nothing of the other rooms.
"""

from cct_keras.runtime.classifier import Classifier
from cct_keras.runtime.formats import open_engine
from cct_keras.runtime.metadata import Metadata

__all__ = ["Classifier", "Metadata", "open_engine"]
