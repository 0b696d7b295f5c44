"""A quiet start of Keras and TensorFlow for the command line."""

import os

from cct_keras.quiet import silent_stderr


def import_keras_quietly(*, with_tensorflow: bool = False) -> None:
    """Imports Keras without the messages that TensorFlow writes at its start.

    A command that needs Keras calls this before it imports anything that does.

    Args:
        with_tensorflow: Whether to import TensorFlow too, which reads the data on every
            backend.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with silent_stderr():
        # On the torch backend Keras has to come before TensorFlow.
        import keras

        if keras.config.backend() == "tensorflow":
            # TensorFlow looks for devices, and complains, at its first operation.
            keras.ops.zeros(())
        if with_tensorflow:
            import tensorflow  # noqa: F401


def open_quietly(path):
    """Opens an exported model without the messages of its runtime.

    Args:
        path: What `cct_keras.runtime.open_engine` takes.

    Returns:
        An `Engine`.
    """
    from cct_keras.runtime.formats import open_engine

    with silent_stderr(keep_on_error=False):
        return open_engine(path)


def import_tensorflow_quietly() -> None:
    """Imports TensorFlow alone, which reads data sets of tensorflow-datasets."""
    from cct_keras.runtime.packages import import_package

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with silent_stderr():
        import_package("tensorflow", "tensorflow")
