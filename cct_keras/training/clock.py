"""The time that a run has taken, those of its sessions included that were killed."""

import contextlib
import threading
import time
from collections.abc import Iterator

from cct_keras.training.run_folder import RunFolder

# How often the time is written down. A kill loses no more than that.
BEAT_SECONDS = 1.0
# A longer wait has other reasons.
MOST_LOAD = 5.0


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


class Load:
    """A context that measures how much longer Python takes because of other work.

    Attributes:
        factor: The time that passed divided by that of the processor; 1 on a machine
            that has nothing else to do.

    Example:

    >>> with Load() as load:
    ...     total = sum(range(100_000))
    >>> load.factor >= 1
    True
    """

    def __enter__(self):
        self.factor = 1.0
        self._start = time.perf_counter(), time.thread_time()
        return self

    def __exit__(self, *exception):
        passed, computed = (
            now - start
            for now, start in zip(
                (time.perf_counter(), time.thread_time()), self._start, strict=True
            )
        )
        self.factor = min(max(1.0, passed / max(computed, 1e-9)), MOST_LOAD)
