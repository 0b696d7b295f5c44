"""SavedModel folders, computed by TensorFlow without Keras."""

import hashlib
import json
import os
import pathlib

import numpy as np

from cct_keras.errors import DataError
from cct_keras.model_files import SAVED_MODEL_FILE
from cct_keras.runtime.engine import Engine
from cct_keras.runtime.files import read_model_file
from cct_keras.runtime.messages import first_line
from cct_keras.runtime.metadata import LARGEST_METADATA
from cct_keras.runtime.metadata import Metadata
from cct_keras.runtime.metadata import not_ours
from cct_keras.runtime.metadata import parse_json
from cct_keras.runtime.packages import import_package

SAVED_MODEL_METADATA = "cct_keras.json"


class SavedModelEngine(Engine):
    """A SavedModel, opened in TensorFlow.

    Args:
        path: The folder, as `add_saved_model_metadata` completes it.
        threads: Left to TensorFlow, which sets it once for the whole process.
    """

    def __init__(self, path: str | os.PathLike, *, threads: int | None = None):
        folder = pathlib.Path(path)
        if not (folder / SAVED_MODEL_FILE).is_file():
            raise DataError(f"{path} is not a SavedModel: no {SAVED_MODEL_FILE} in it")
        file = folder / SAVED_MODEL_METADATA
        if not file.is_file() or file.stat().st_size > LARGEST_METADATA:
            raise DataError(not_ours(str(path)))
        fields = parse_json(read_model_file(file), str(path))
        super().__init__(path, Metadata.from_dict(fields, str(path)))
        # TensorFlow trusts a graph: a damaged one can end the whole process.
        if fields.pop("sha256", None) != _folder_hash(folder, fields):
            raise DataError(f"{path} is damaged: export the model again")
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        self._tf = import_package("tensorflow", "tensorflow")
        try:
            # The functions of a model live only as long as the model.
            self._model = self._tf.saved_model.load(os.fspath(path))
            self._function = self._model.signatures["serving_default"]
            inputs = self._function.structured_input_signature[1]
            outputs = self._function.structured_outputs
            shapes = [_static_shape(output.shape) for output in outputs.values()]
        except Exception as error:
            raise DataError(
                f"{path} is not a whole SavedModel: {first_line(error)}"
            ) from error
        if len(inputs) != 1:
            raise DataError(f"{path} is broken: it has {len(inputs)} inputs")
        self._input, spec = next(iter(inputs.items()))
        self._names = list(outputs)
        self.check_graph(_static_shape(spec.shape), spec.dtype.name, shapes)

    def compute(self, images: np.ndarray) -> list[np.ndarray]:
        """All outputs of the graph for a batch in exactly the form it takes."""
        outputs = self._function(**{self._input: self._tf.constant(images)})
        return [outputs[name].numpy() for name in self._names]


def add_saved_model_metadata(folder: str | os.PathLike, metadata: Metadata) -> None:
    """Writes the metadata of a SavedModel into its folder, with a hash of its files.

    Args:
        folder: The folder.
        metadata: What it is to know of itself.
    """
    folder = pathlib.Path(folder)
    fields = metadata.to_dict()
    fields["sha256"] = _folder_hash(folder, fields)
    (folder / SAVED_MODEL_METADATA).write_text(json.dumps(fields))


def _folder_hash(folder, fields):
    """A hash of metadata, graph and weights, and of nothing that others may add."""
    hashed = hashlib.sha256(json.dumps(fields, sort_keys=True).encode())
    for file in (folder / SAVED_MODEL_FILE, *sorted((folder / "variables").glob("*"))):
        hashed.update(hashlib.sha256(read_model_file(file)).digest())
    return hashed.hexdigest()


def _static_shape(shape):
    return () if shape.rank is None else tuple(shape.as_list())
