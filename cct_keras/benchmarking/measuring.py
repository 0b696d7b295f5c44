"""Times tasks side by side: every contestant in a process of its own, in turn.

Run as a script, this file is such a process. It imports nothing of the package, so that
the process of another implementation holds nothing but that implementation.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple


class Contestant(NamedTuple):
    """What is timed, in a process of its own.

    Attributes:
        name: Its name in the results.
        factory: `"module:function"` or `"file.py:function"`. The function returns a
            dictionary of tasks: from a name to a function that takes a number of
            steps and does them.
        arguments: Keyword arguments of the factory.
        environment: Environment variables of its process, beside those of this one.
    """

    name: str
    factory: str
    arguments: dict
    environment: dict = {}


class Timing(NamedTuple):
    """How long a task took.

    Attributes:
        best: Seconds per step in the best round.
        median: Seconds per step in the median round.
        first: Seconds of the very first step, which compiles.
        memory: Bytes by which the process grew at most during the first steps, or
            `None` where the system does not say (Linux does).
    """

    best: float
    median: float
    first: float
    memory: int | None


class TaskError(RuntimeError):
    """The process of a contestant failed."""


def measure(
    contestants: Sequence[Contestant],
    tasks: Sequence[str],
    *,
    rounds: int = 5,
    seconds: float = 1.0,
    log: Callable[[str], None] = lambda line: None,
) -> dict[str, dict[str, Timing]]:
    """Times each task of each contestant; the contestants take turns.

    Args:
        contestants: What is timed. All of their processes exist at the same time, and
            one at a time works.
        tasks: Names of tasks; a contestant may lack some.
        rounds: Turns of each contestant.
        seconds: About how long a turn takes, unless a single step takes longer.
        log: Called with a line of progress.

    Returns:
        The timings, by the name of the contestant and of the task.

    Example (the test skips it, as it needs a file `tasks.py`):

    >>> contestant = Contestant("sleeper", "tasks.py:sleep", {"seconds": 0.1})
    >>> timings = measure([contestant], ["sleep"])  # doctest: +SKIP
    >>> timings["sleeper"]["sleep"].best  # doctest: +SKIP
    0.1001
    """
    processes, timings = {}, {}
    with contextlib.ExitStack() as stack:
        for contestant in contestants:
            log(f"{contestant.name}: build")
            process = stack.enter_context(_start(contestant))
            processes[contestant.name] = process
            timings[contestant.name] = {}
        for task in tasks:
            able = {name: p for name, p in processes.items() if task in p.tasks}
            for name, timing in _take_turns(task, able, rounds, seconds, log).items():
                timings[name][task] = timing
    return timings


def _take_turns(task, processes, rounds, seconds, log):
    first_steps, steps, turns = {}, {}, {name: [] for name in processes}
    for name, process in processes.items():
        log(f"{name}: {task}")
        first_steps[name] = process.do(task, "first")
        warm = process.do(task, "time")
        steps[name] = max(1, round(seconds / max(warm["seconds"], 1e-5)))
    for _ in range(rounds):
        for name, process in processes.items():
            turn = process.do(task, "time", steps[name])
            turns[name].append(turn["seconds"] / steps[name])
    return {
        name: Timing(
            min(turn),
            statistics.median(turn),
            first_steps[name]["seconds"],
            first_steps[name]["memory"],
        )
        for name, turn in turns.items()
    }


@contextlib.contextmanager
def _start(contestant):
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            # -P keeps the folder of this file out of the import path.
            [sys.executable, "-P", __file__, contestant.factory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **contestant.environment},
            text=True,
        ) as process,
    ):
        try:
            yield _Process(contestant, process, errors)
        finally:
            process.kill()
            # The process may have ended before it read everything: that is no error.
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()


class _Process:
    """The process of a contestant, seen from here: one JSON line each way."""

    def __init__(self, contestant, process, errors):
        self.name = contestant.name
        self.process = process
        self.errors = errors
        self.tasks = self._exchange(contestant.arguments)["tasks"]

    def do(self, task, action, steps=1):
        return self._exchange({"task": task, "action": action, "steps": steps})

    def _exchange(self, request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            reply = self.process.stdout.readline()
        except BrokenPipeError:
            reply = ""
        if not reply:
            code = self.process.wait()
            self.errors.seek(0)
            lines = self.errors.read().strip().splitlines()
            reason = lines[-1] if lines else f"exit code {code}"
            raise TaskError(f"{self.name}: {reason}")
        return json.loads(reply)


# === Inside such a process ===


def _serve(factory):
    # What a task prints must not mix with the replies.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    requests = iter(sys.stdin.readline, "")
    tasks = _load(factory)(**json.loads(next(requests)))
    print(json.dumps({"tasks": list(tasks)}), file=replies)
    for line in requests:
        request = json.loads(line)
        act = _time_first if request["action"] == "first" else _time
        reply = act(tasks[request["task"]], request["steps"])
        print(json.dumps(reply), file=replies)


def _load(factory):
    place, name = factory.rsplit(":", 1)
    if not place.endswith(".py"):
        return getattr(importlib.import_module(place), name)
    spec = importlib.util.spec_from_file_location(pathlib.Path(place).stem, place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def _time_first(task, steps):
    """Seconds of the first steps, and the memory that they and two more take."""
    try:
        # This makes the system forget the peak of what came before.
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        timing = _time(task, steps)
        task(2)
        return {**timing, "memory": None}
    before = _memory("VmRSS")
    timing = _time(task, steps)
    task(2)
    return {**timing, "memory": _memory("VmHWM") - before}


def _time(task, steps):
    start = time.perf_counter()
    task(steps)
    return {"seconds": time.perf_counter() - start}


def _memory(field):
    """Bytes of a field of Linux' account of this process."""
    status = pathlib.Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(field))
    return 1024 * int(line.split()[1])


if __name__ == "__main__":
    _serve(sys.argv[1])
