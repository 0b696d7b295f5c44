"""A quiet start of Keras and TensorFlow for the command line."""

import contextlib
import os
import sys


def import_keras_quietly(*, with_tensorflow: bool = False) -> None:
    """Imports Keras without the messages that TensorFlow writes at its start.

    A command that needs Keras calls this before it imports anything that does.

    Args:
        with_tensorflow: Whether to import TensorFlow too, which reads the data on every
            backend.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with _silent_stderr():
        # On the torch backend Keras has to come before TensorFlow.
        import keras

        if keras.config.backend() == "tensorflow":
            # TensorFlow looks for devices, and complains, at its first operation.
            keras.ops.zeros(())
        if with_tensorflow:
            import tensorflow  # noqa: F401


@contextlib.contextmanager
def _silent_stderr():
    """Discards what is written to stderr, unless something fails.

    The messages are written to the file descriptor, some before any setting of
    TensorFlow is read; replacing `sys.stderr` would not reach them.
    """
    import tempfile

    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        except BaseException:
            log.seek(0)
            os.write(stderr, log.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
