"""Trained models that take raw pixels, from a file, a run folder or a name."""

import pathlib
import warnings

import keras

from cct_keras.errors import DataError
from cct_keras.errors import ModelError
from cct_keras.hub import is_hub
from cct_keras.layers.preprocessing import Preprocessing
from cct_keras.models.factory import CENTER
from cct_keras.models.factory import create_model
from cct_keras.pretrained.source import RUN_MODEL
from cct_keras.pretrained.source import named_row
from cct_keras.pretrained.source import open_weights


def load_classifier(model) -> keras.Model:
    """Loads a model that takes raw images and knows its classes.

    Args:
        model: A `.keras` file or the folder of a run, as `train` writes them; known
            weights as `VARIANT.TAG`; or `hf://user/repo` on the hub. A Keras model is
            returned as it is.

    Returns:
        A Keras model. It takes images of any size with values from 0 to 255 and
        returns probabilities.

    Example:

    >>> model = load_classifier("cct_2_3x2_32.digits")
    >>> model.predict(np.zeros((2, 8, 8, 1)), verbose=0).shape
    (2, 10)
    """
    if isinstance(model, keras.Model):
        return model
    if is_hub(model):
        return _load_from_hub(model)
    path = pathlib.Path(model)
    if path.is_dir():
        path = path / RUN_MODEL
    elif not path.exists():
        row = named_row(str(model)) if "." in str(model) else None
        if row is not None:
            return create_model(
                row.variant, weights=row.tag, include_preprocessing=True
            )
    if not path.is_file():
        raise DataError(f"no such model file: {model}")
    try:
        return keras.models.load_model(path, compile=False)
    except (ValueError, OSError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not a Keras model file: {error}") from error


def _load_from_hub(address):
    source = open_weights(address)
    if not source.num_classes:
        raise ModelError(f"{address} has no head that tells classes apart")
    if source.mean is None:
        warnings.warn(
            f"{address} does not tell how its images are normalized: a mean and a "
            f"deviation of {CENTER} are assumed",
            stacklevel=3,
        )
    return create_model(weights=source, include_preprocessing=True)


def find_preprocessing(model: keras.Model) -> Preprocessing:
    """The layer of a classifier that prepares raw images and names the classes.

    Args:
        model: A model as `load_classifier` returns it.

    Returns:
        Its `Preprocessing` layer.

    Raises:
        DataError: The model has no such layer.

    Example:

    >>> model = load_classifier("cct_2_3x2_32.digits")
    >>> find_preprocessing(model).class_names[:3]
    ('0', '1', '2')
    """
    for layer in model.layers:
        if isinstance(layer, Preprocessing):
            return layer
    raise DataError(
        f"{model.name!r} does not know how to prepare images: it has no "
        "`Preprocessing` layer, as the models that `train` saves have"
    )
