"""A quiet start for the command line."""

import contextlib
import os
import sys
import tempfile


def import_keras_quietly() -> None:
    """Imports Keras without the messages that TensorFlow writes at its start."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with _silence():
        import keras

        if keras.config.backend() == "tensorflow":
            # It looks for devices, and complains, at the first operation.
            keras.ops.zeros(())


def import_tensorflow_quietly() -> None:
    """The same for TensorFlow, which feeds the data on other backends too."""
    with _silence():
        import tensorflow  # noqa: F401


@contextlib.contextmanager
def _silence():
    """Turns stderr away; if something fails, what was written is shown.

    The messages go to the file descriptor, some before any setting is read.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        except BaseException:
            log.seek(0)
            os.write(kept, log.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
