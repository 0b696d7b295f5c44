"""`measure` and `cct-keras benchmark`: real processes, no asserted times."""

import json
import os
import sys

import pytest

from cct_keras import cli
from cct_keras.benchmark import Speed
from cct_keras.measuring import Contestant
from cct_keras.measuring import Timing
from cct_keras.measuring import WorkError
from cct_keras.measuring import measure
from cct_keras.models.cost import Cost

WORKS = """
import os
import time


def sleeper(pause, log):
    def work(count):
        with open(log, "a") as file:
            file.write(f"{pause} {count} {os.getpid()}\\n")
        print("noise on stdout")
        time.sleep(count * pause)

    return {"sleep": work}


def hungry(log):
    kept = []

    def work(count):
        for _ in range(count):
            kept[:] = [bytearray(os.urandom(2**20) * 64)]

    return {"eat": work, "sleep": lambda count: None}


def broken():
    raise SystemError("no such model")


def dies(log):
    return {"sleep": lambda count: os._exit(7)}


def dies_idle(log):
    import threading

    threading.Timer(0.3, os._exit, (9,)).start()
    return {"sleep": lambda count: time.sleep(0.01)}
"""


@pytest.fixture
def contestant(tmp_path):
    file = tmp_path / "works.py"
    file.write_text(WORKS)

    def make(function, **arguments):
        if function != "broken":
            arguments["log"] = str(tmp_path / "log")
        return Contestant(function, f"{file}:{function}", arguments)

    return make


def test_contestants_take_turns(contestant, tmp_path):
    fast = contestant("sleeper", pause=0.002)._replace(name="fast")
    slow = contestant("sleeper", pause=0.02)._replace(name="slow")
    timings = measure([fast, slow], ["sleep"], rounds=3, seconds=0.04)
    assert timings["fast"]["sleep"].best >= 0.002
    assert timings["slow"]["sleep"].median >= timings["slow"]["sleep"].best >= 0.02
    calls = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert len({pid for _, _, pid in calls}) == 2
    assert str(os.getpid()) not in {pid for _, _, pid in calls}
    # First step, two more for the memory, one to find the pace; then in turn.
    pauses = [pause for pause, _, _ in calls]
    assert pauses == ["0.002"] * 3 + ["0.02"] * 3 + ["0.002", "0.02"] * 3
    assert {count for pause, count, _ in calls[6:] if pause == "0.02"} <= {"1", "2"}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_memory_is_the_growth_of_the_process(contestant):
    timings = measure([contestant("hungry")], ["eat"], rounds=1, seconds=0.01)
    assert 64 <= timings["hungry"]["eat"].memory / 2**20 < 400


def test_a_contestant_may_lack_a_work(contestant):
    both = [contestant("hungry"), contestant("sleeper", pause=0.001)]
    timings = measure(both, ["eat", "sleep"], rounds=1, seconds=0.01)
    assert {name: set(works) for name, works in timings.items()} == {
        "hungry": {"eat", "sleep"},
        "sleeper": {"sleep"},
    }


def test_a_failing_process_is_named_with_its_reason(contestant):
    with pytest.raises(WorkError, match="broken: SystemError: no such model"):
        measure([contestant("broken")], ["sleep"])
    with pytest.raises(WorkError, match="dies: exit code 7"):
        measure([contestant("dies")], ["sleep"])
    slow = contestant("sleeper", pause=0.5)
    with pytest.raises(WorkError, match="dies_idle: exit code 9"):
        measure([contestant("dies_idle"), slow], ["sleep"], rounds=2)


def test_shares_of_the_machine():
    """A product of 2 * 2048 ** 3 operations in a second is the whole."""

    def timing(seconds):
        return Timing(seconds, seconds, seconds, None)

    cost = Cost(1, 1, macs=2048**3 // 8, attention_macs=0, activation_bytes=1)
    times = {"inference": 2.0, "latency": 1.0, "training": 6.0, "gemm": 1.0}
    speed = Speed("cct", 8, cost, **{k: timing(v) for k, v in times.items()})
    assert speed.peak_flops == 2 * 2048**3
    assert speed.inference_share == pytest.approx(1 / 2)
    assert speed.training_share == pytest.approx(3 / 6)


@pytest.mark.backend
def test_the_command_in_json(capsys):
    arguments = ["--batch-size", "8", "--rounds", "1", "--seconds", "0.01"]
    assert cli.main(["benchmark", "cvt_2_4_32", *arguments, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["variant"] == "cvt_2_4_32"
    assert row["batch_size"] == 8
    assert row["cost"]["parameters"] == 214_539
    for work in ("inference", "latency", "training", "gemm"):
        assert 0 < row[work]["best"] <= row[work]["median"]


def test_the_command(capsys):
    arguments = ["--batch-size", "4", "--rounds", "1", "--seconds", "0.01"]
    arguments += ["--image-size", "16", "--precision", "mixed_bfloat16"]
    assert cli.main(["benchmark", "cvt_2_4_32", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "GFLOP/s" in lines[0]
    assert lines[-1].split()[0] == "cvt_2_4_32"


def test_an_unknown_variant(capsys):
    assert cli.main(["benchmark", "cvt_2_4_33"]) == 2
    assert "cvt_2_4_32" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--batch-size", "0"], "`batch_size` must be a positive integer"),
        (["--rounds", "0"], "`rounds` must be a positive integer"),
        (["--seconds", "0"], "`seconds` must be more than 0"),
        (["--image-size", "8", "8", "8"], "a side or a height and a width"),
        (["--precision", "half"], "`precision` must be one of float32, mixed"),
        (["--image-size", "30"], "divisible by the patch size 4"),
    ],
)
def test_bad_settings_are_refused_in_one_line(arguments, reason, capsys):
    assert cli.main(["benchmark", "cvt_2_4_32", *arguments]) == 2
    captured = capsys.readouterr()
    assert reason in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out
