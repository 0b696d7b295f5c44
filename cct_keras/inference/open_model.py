"""A trained model of any kind, opened in what computes it."""

from cct_keras.model_files import exported_format
from cct_keras.runtime.engine import Engine
from cct_keras.runtime.formats import open_engine


def open_model(model) -> Engine:
    """Opens a trained model.

    Args:
        model: A file that `export` wrote, which needs no Keras, or what
            `load_classifier` takes. An `Engine` is returned as it is.

    Returns:
        An `Engine`.

    Example:

    >>> open_model("cct_2_3x2_32.digits").metadata.image_size
    (16, 16)
    """
    if isinstance(model, Engine):
        return model
    if exported_format(model) is not None:
        return open_engine(model)
    # Exported files are answered for where Keras is not installed.
    from cct_keras.inference.keras_engine import KerasEngine

    return KerasEngine(model)
