"""The time that a run has taken, those of its sessions included that were killed."""

import contextlib
import threading
import time
from collections.abc import Iterator

from cct_keras.training.run_folder import RunFolder

# How often the time is written down. A kill loses no more than that.
BEAT_SECONDS = 1.0


class Clock:
    """Counts the seconds of a run over all its sessions, but not those in between.

    Args:
        earlier: Seconds that earlier sessions have taken.

    Example:

    >>> 100 <= Clock(earlier=100).seconds < 101
    True
    """

    def __init__(self, earlier: float = 0.0):
        self._earlier = earlier
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds of the run up to now."""
        return self._earlier + time.perf_counter() - self._start

    def advance_to(self, seconds: float) -> None:
        """Makes sure that the clock does not go behind a time that was recorded."""
        self._earlier += max(0.0, seconds - self.seconds)

    @contextlib.contextmanager
    def written_to(self, folder: RunFolder | None) -> Iterator[None]:
        """Writes the time into a folder while the context lasts, and at its end.

        It is written by a thread, because compiling, validation and the report take
        long as well.

        Args:
            folder: The folder of the run; with `None` nothing is written.
        """
        if folder is None:
            yield
            return
        end = threading.Event()

        def beat():
            while True:
                folder.write_seconds(self.seconds)
                if end.wait(BEAT_SECONDS):
                    return

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()
            folder.write_seconds(self.seconds)


def busy_factor(seconds: float = 0.2) -> float:
    """How much longer Python takes for its work because of other work of the machine.

    Args:
        seconds: How long to compute for an answer.

    Returns:
        The time that passed divided by that of the processor; about 1 on a machine that
        has nothing else to do.

    Example:

    >>> busy_factor(0.01) >= 1
    True
    """
    passed, computed = time.perf_counter(), time.thread_time()
    while time.thread_time() - computed < seconds:
        pass
    return max(1.0, (time.perf_counter() - passed) / seconds)
