"""Times work side by side: every contestant in a process of its own, in turn.

Run as a script, this file is such a process. It imports nothing of the package, so that
the process of a rival holds nothing but the rival.
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
from typing import NamedTuple


class Contestant(NamedTuple):
    """Who is timed.

    Attributes:
        name: For the table.
        factory: `"module:function"` or `"file.py:function"`. The function returns a
            dictionary from the name of some work to a function that does a number
            of steps of it.
        arguments: Keyword arguments of the factory.
        environment: Variables of its process beside those of this one.
    """

    name: str
    factory: str
    arguments: dict
    environment: dict = {}


class Timing(NamedTuple):
    """How long some work took.

    Attributes:
        best: Seconds of a step in the best round.
        median: Seconds of a step in the median round.
        first: Seconds of the very first step, which compiles.
        memory: Bytes by which the process grew at most during the first steps; `None`
            where the system does not tell (it does on Linux).
    """

    best: float
    median: float
    first: float
    memory: int | None


class WorkError(RuntimeError):
    """A contestant's process failed."""


def measure(
    contestants: list[Contestant],
    works: list[str],
    *,
    rounds: int = 5,
    seconds: float = 1.0,
    say=lambda text: None,
) -> dict[str, dict[str, Timing]]:
    """Times each work of each contestant, the contestants taking turns.

    Args:
        contestants: Who is timed; all of their processes live at the same time, one
            works.
        works: Names of what the factories return; a contestant may lack some.
        rounds: Turns of each contestant.
        seconds: About how long a turn takes, if a step is not longer.
        say: Called with a line of progress.

    Returns:
        Timings by the contestant's name and the work.
    """
    processes, results = {}, {}
    with contextlib.ExitStack() as stack:
        for contestant in contestants:
            say(f"{contestant.name}: build")
            process = stack.enter_context(_process(contestant))
            processes[contestant.name] = process
            results[contestant.name] = {}
        for work in works:
            able = {k: p for k, p in processes.items() if work in p.works}
            for name, timing in _take_turns(work, able, rounds, seconds, say).items():
                results[name][work] = timing
    return results


def _take_turns(work, processes, rounds, seconds, say):
    firsts, steps, turns = {}, {}, {name: [] for name in processes}
    for name, process in processes.items():
        say(f"{name}: {work}")
        firsts[name] = process.ask(work, "first")
        warm = process.ask(work, "time")
        steps[name] = max(1, round(seconds / max(warm["seconds"], 1e-5)))
    for _ in range(rounds):
        for name, process in processes.items():
            answer = process.ask(work, "time", steps[name])
            turns[name].append(answer["seconds"] / steps[name])
    return {
        name: Timing(
            min(turn),
            statistics.median(turn),
            firsts[name]["seconds"],
            firsts[name]["memory"],
        )
        for name, turn in turns.items()
    }


@contextlib.contextmanager
def _process(contestant):
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            # -P keeps this file's folder out of the import path.
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
            # What the process has not read is lost, and no error.
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()


class _Process:
    def __init__(self, contestant, process, errors):
        self.name = contestant.name
        self.process = process
        self.errors = errors
        self.works = self._exchange(contestant.arguments)["works"]

    def ask(self, work, action, steps=1):
        return self._exchange({"work": work, "action": action, "steps": steps})

    def _exchange(self, message):
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            code = self.process.wait()
            self.errors.seek(0)
            lines = self.errors.read().strip().splitlines()
            reason = lines[-1] if lines else f"exit code {code}"
            raise WorkError(f"{self.name}: {reason}")
        return json.loads(answer)


# === Inside such a process ===


def _serve(factory):
    # What the work prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    requests = iter(sys.stdin.readline, "")
    works = _load(factory)(**json.loads(next(requests)))
    print(json.dumps({"works": list(works)}), file=answers)
    for line in requests:
        request = json.loads(line)
        act = _first if request["action"] == "first" else _time
        answer = act(works[request["work"]], request["steps"])
        print(json.dumps(answer), file=answers)


def _load(factory):
    place, name = factory.rsplit(":", 1)
    if not place.endswith(".py"):
        return getattr(importlib.import_module(place), name)
    spec = importlib.util.spec_from_file_location(pathlib.Path(place).stem, place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def _first(work, steps):
    try:
        # The peak is that of now.
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        answer = _time(work, steps)
        work(2)
        return {**answer, "memory": None}
    before = _memory("VmRSS")
    answer = _time(work, steps)
    work(2)
    return {**answer, "memory": _memory("VmHWM") - before}


def _time(work, steps):
    start = time.perf_counter()
    work(steps)
    return {"seconds": time.perf_counter() - start}


def _memory(field):
    status = pathlib.Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(field))
    return 1024 * int(line.split()[1])


if __name__ == "__main__":
    _serve(sys.argv[1])
