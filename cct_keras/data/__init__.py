"""Data sets: from folders, files, arrays and names to tf.data pipelines."""

from cct_keras.data.dataset import Dataset
from cct_keras.data.dataset import load_data
from cct_keras.data.raw import DataError

__all__ = ["DataError", "Dataset", "load_data"]
