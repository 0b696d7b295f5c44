"""`measure`, with small processes; times are compared only with pauses."""

import os
import sys

import pytest

from cct_keras.benchmarking.measuring import Contestant
from cct_keras.benchmarking.measuring import TaskError
from cct_keras.benchmarking.measuring import measure

TASKS = """
import os
import time


def sleeper(pause, log):
    def sleep(steps):
        with open(log, "a") as file:
            file.write(f"{pause} {steps} {os.getpid()}\\n")
        print("noise on stdout")
        time.sleep(steps * pause)

    return {"sleep": sleep}


def hungry(log):
    kept = []

    def eat(steps):
        for _ in range(steps):
            kept[:] = [bytearray(os.urandom(2**20) * 64)]

    return {"eat": eat, "sleep": lambda steps: None}


def broken():
    raise SystemError("no such model")


def dies(log):
    return {"sleep": lambda steps: os._exit(7)}


def dies_idle(log):
    import threading

    threading.Timer(0.3, os._exit, (9,)).start()
    return {"sleep": lambda steps: time.sleep(0.01)}
"""


@pytest.fixture
def contestant(tmp_path):
    file = tmp_path / "tasks.py"
    file.write_text(TASKS)

    def make(function, **arguments):
        if function != "broken":
            arguments["log"] = str(tmp_path / "log")
        return Contestant(function, f"{file}:{function}", arguments)

    return make


def test_contestants_take_turns(contestant, tmp_path):
    fast = contestant("sleeper", pause=0.002)._replace(name="fast")
    slow = contestant("sleeper", pause=0.02)._replace(name="slow")
    lines = []
    timings = measure([fast, slow], ["sleep"], rounds=3, seconds=0.04, log=lines.append)
    assert lines == ["fast: build", "slow: build", "fast: sleep", "slow: sleep"]
    assert timings["fast"]["sleep"].best >= 0.002
    assert timings["slow"]["sleep"].median >= timings["slow"]["sleep"].best >= 0.02
    calls = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert len({pid for _, _, pid in calls}) == 2
    assert str(os.getpid()) not in {pid for _, _, pid in calls}
    # First step, two more for the memory, one to find out how many fill a turn.
    pauses = [pause for pause, _, _ in calls]
    assert pauses == ["0.002"] * 3 + ["0.02"] * 3 + ["0.002", "0.02"] * 3
    assert {count for pause, count, _ in calls[6:] if pause == "0.02"} <= {"1", "2"}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says")
def test_memory_is_the_growth_of_the_process(contestant):
    timings = measure([contestant("hungry")], ["eat"], rounds=1, seconds=0.01)
    assert 64 <= timings["hungry"]["eat"].memory / 2**20 < 400


def test_a_contestant_may_lack_a_task(contestant):
    both = [contestant("hungry"), contestant("sleeper", pause=0.001)]
    timings = measure(both, ["eat", "sleep"], rounds=1, seconds=0.01)
    assert {name: set(tasks) for name, tasks in timings.items()} == {
        "hungry": {"eat", "sleep"},
        "sleeper": {"sleep"},
    }


@pytest.mark.integration
def test_a_failing_process_is_named_with_its_reason(contestant):
    with pytest.raises(TaskError, match="broken: SystemError: no such model"):
        measure([contestant("broken")], ["sleep"])
    with pytest.raises(TaskError, match="dies: exit code 7"):
        measure([contestant("dies")], ["sleep"])
    slow = contestant("sleeper", pause=0.5)
    with pytest.raises(TaskError, match="dies_idle: exit code 9"):
        measure([contestant("dies_idle"), slow], ["sleep"], rounds=2)
