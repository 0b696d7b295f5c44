"""Warnings and log messages of the package, collected as lines of text."""

import contextlib
import logging
import warnings


@contextlib.contextmanager
def collected_notes():
    """Collects warnings and log messages instead of showing them.

    Yields:
        A list of lines, which is complete when the context ends.

    Example:

    >>> with collected_notes() as lines:
    ...     warnings.warn("the head was left as it is")
    >>> lines
    ['the head was left as it is']
    """
    lines = []
    logger = logging.getLogger("cct_keras")
    level, handler = logger.level, _Lines(lines)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("always", UserWarning)
            yield lines
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
        lines += [str(warning.message) for warning in caught]


class _Lines(logging.Handler):
    def __init__(self, lines):
        super().__init__(logging.INFO)
        self.lines = lines

    def emit(self, record):
        self.lines.append(record.getMessage())
