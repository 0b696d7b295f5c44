"""Silence on stderr, for libraries that write there unasked."""

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def silent_stderr(*, keep_on_error: bool = True) -> Iterator[None]:
    """Discards what libraries write to stderr.

    The messages are written to the file descriptor, some before any setting of
    TensorFlow is read; replacing `sys.stderr` would not reach them.

    Args:
        keep_on_error: Whether to show the messages if something fails.
    """
    sys.stderr.flush()
    stderr = os.dup(2)
    with _open_log(keep_on_error) as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        except BaseException:
            if keep_on_error:
                log.seek(0)
                os.write(stderr, log.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def _open_log(keep):
    if not keep:
        return open(os.devnull, "wb")
    # It takes longer to import than all the rest of this file.
    import tempfile

    return tempfile.TemporaryFile()
