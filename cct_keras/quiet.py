"""A quiet start for the command line."""

import os
import sys
import tempfile


def import_keras_quietly() -> None:
    """Imports Keras without the messages that TensorFlow writes at its start.

    They go to the file descriptor, some before any setting is read, so the
    descriptor is turned away; if the import fails they are shown.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            import keras

            if keras.config.backend() == "tensorflow":
                # It looks for devices, and complains, at the first operation.
                keras.ops.zeros(())
        except BaseException:
            log.seek(0)
            os.write(kept, log.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
