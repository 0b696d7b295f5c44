"""Runs with a time limit: on a clock of their own, so that no test takes the time."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import types

import keras
import numpy as np
import pytest
from runs import StopAfter
from runs import without_times
from small import first_of_all

import cct_keras
from cct_keras.distributed.devices import Devices
from cct_keras.errors import RecipeError
from cct_keras.errors import RunError
from cct_keras.recipes.recipe import Recipe
from cct_keras.recipes.rows import find_recipe
from cct_keras.training.budget import make_budget
from cct_keras.training.build import build_model
from cct_keras.training.load import check_time
from cct_keras.training.load import load_training_data
from cct_keras.training.step_time import MeasuredStep

# 90 images to train and 10 to validate: 5 steps an epoch, one batch of validation.
PLAIN = {
    "variant": "tiny_1",
    "batch_size": 16,
    "crop": "none",
    "lr": 1e-2,
    "precision": "float32",
}
STEPS = 5


def train(source, out=None, **fields):
    fields = {**PLAIN, "verbose": False, **fields}
    return cct_keras.train(source, out=out, **fields)


class Machine(keras.callbacks.Callback):
    """A machine of which nobody has to wait: its clock moves with each step.

    Args:
        step: Seconds of a step.
        validation: Seconds of a validation.
        measured: Seconds of a step as it was measured before the training.
    """

    def __init__(self, step, validation=2, measured=None):
        super().__init__()
        self.step = step
        self.validation = validation
        self.measured = step if measured is None else measured
        self.now = 1000.0

    def on_train_batch_begin(self, batch, logs=None):
        self.now += self.step

    def on_test_batch_begin(self, batch, logs=None):
        self.now += self.validation

    def perf_counter(self):
        return self.now


@pytest.fixture
def on(monkeypatch):
    """Runs on a `Machine` instead of this one."""

    def use(machine):
        times = types.SimpleNamespace(perf_counter=machine.perf_counter)
        for module in ("clock", "budget"):
            monkeypatch.setattr(f"cct_keras.training.{module}.time", times)
        found = {
            "measure_step": lambda *args, **_: MeasuredStep(machine.measured, 0.0, []),
            "measure_validation": lambda *args: (float(machine.validation), 0.0),
            "_time_answers": lambda *args: (0.0, 0.0),
            "busy_factor": lambda: 1.0,
        }
        for name, function in found.items():
            monkeypatch.setattr(f"cct_keras.training.plan.{name}", function)
        # The results take no time of such a machine.
        for name in ("REPORT_SECONDS", "RESULT_SECONDS", "SNAPSHOT_SECONDS"):
            monkeypatch.setattr(f"cct_keras.training.plan.{name}", 0.0)
        return machine

    return use


def steps_of(run):
    return round(run.history[-1]["epoch"] * STEPS)


# === On time ===


@pytest.mark.backend
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("step", first_of_all([1, 10, 50, 300], 50))
def test_a_run_ends_on_time(step, source, on):
    """Whether the 20 minutes have hundreds of epochs or less than one."""
    machine = on(Machine(step))
    run = train(source, minutes=20, callbacks=[machine])
    minutes = [row["minutes"] for row in run.history]
    assert minutes == sorted(minutes)
    assert 1200 - 2 * step <= 60 * minutes[-1] <= 1200 + step
    assert machine.now - 1000 == pytest.approx(60 * minutes[-1], abs=0.01)
    # Nothing but steps and validations, which are neither too few nor too many.
    rounds = len(run.history)
    assert step * steps_of(run) + 2 * rounds == pytest.approx(60 * minutes[-1], abs=1)
    assert (4 if step < 100 else 2) <= rounds <= 60
    assert run.metrics["epochs"] == run.history[-1]["epoch"]
    assert run.metrics["minutes"] == 20
    planned = run.metrics["planned_epochs"]
    assert planned == pytest.approx(run.metrics["epochs"], abs=2 * step / 250 + 0.3)
    best = run.metrics["validation"]["epoch"]
    assert best in [row["epoch"] for row in run.history]


@pytest.mark.integration
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("measured", first_of_all([15, 150], 15))
def test_a_machine_that_changes_its_speed(measured, source, on):
    """The plan was for other steps, and the learning rate follows the clock."""
    machine = on(Machine(50, measured=measured))
    run = train(source, minutes=20, schedule="cosine", callbacks=[machine])
    assert run.history[-1]["minutes"] == pytest.approx(20, abs=1)
    recipe = Recipe(**PLAIN)
    for row in run.history:
        cosine = (1 + np.cos(np.pi * row["minutes"] / 20)) / 2
        expected = recipe.min_lr + (recipe.lr - recipe.min_lr) * cosine
        # The rate is that of the beginning of the last step.
        warmup = 3 / 50 * 20
        if row["minutes"] > warmup + 1:
            assert row["learning_rate"] == pytest.approx(expected, abs=0.15 * recipe.lr)
    assert run.history[-1]["learning_rate"] < 0.05 * recipe.lr


@pytest.mark.usefixtures("eagerly")
def test_the_plan_is_said_and_recorded(source, on, tmp_path, capsys):
    machine = on(Machine(50))
    train(source, tmp_path, minutes=20, callbacks=[machine], verbose=True)
    text = capsys.readouterr().out
    assert re.search(r"^20 minutes: about 4\.\d+ epochs, 4\d\d images$", text, re.M)
    assert re.search(r"^epoch 1/~4\.\d+  loss .* left", text, re.M)
    settings = json.loads((tmp_path / "run.json").read_text())
    assert settings["minutes"] == 20
    assert 4 < settings["plan"]["epochs"] < 5
    assert (tmp_path / "history.csv").read_text().splitlines()[0].endswith(",minutes")
    again = train(source, tmp_path, minutes=20, callbacks=[machine])
    assert again.history[-1]["epoch"] == again.metrics["epochs"]
    with pytest.raises(RunError, match="minutes 20.0 -> 30.0"):
        train(source, tmp_path, minutes=30)


@pytest.mark.integration
@pytest.mark.backend
@pytest.mark.usefixtures("eagerly")
def test_layers_begin_to_learn_by_the_clock(source, on, tmp_path):
    """One more after 0, 60 and 120 % of the time, though the plan is far too long."""
    recipe = find_recipe("finetune", **{**PLAIN, "variant": "tiny_2"})
    start = build_model(load_training_data(source, recipe), recipe)
    start.save(tmp_path / "start.keras")
    machine = on(Machine(20, measured=2))
    run = train(
        source,
        minutes=10,
        callbacks=[machine],
        recipe="finetune",
        variant="tiny_2",
        weights=tmp_path / "start.keras",
        unfreeze_epochs=30,
        ema=0.9,
    )
    assert run.metrics["epochs"] < run.metrics["planned_epochs"] / 5
    learned = {
        name: any(
            # Swapping averaged weights rounds them.
            np.abs(a - b).max() > 1e-5
            for a, b in zip(
                run.model.get_layer(name).get_weights(),
                start.get_layer(name).get_weights(),
                strict=True,
            )
        )
        for name in ("block_0", "block_1", "head")
    }
    assert learned == {"block_0": False, "block_1": True, "head": True}


# === Interrupted ===


@pytest.mark.integration
@pytest.mark.backend
@pytest.mark.usefixtures("eagerly")
def test_time_counts_over_all_sessions(source, on, tmp_path, capsys):
    machine = on(Machine(50))
    with pytest.raises(KeyboardInterrupt):
        train(
            source,
            tmp_path,
            minutes=20,
            callbacks=[machine, StopAfter(3)],
            verbose=True,
        )
    plan = json.loads((tmp_path / "run.json").read_text())["plan"]
    spent = json.loads((tmp_path / "clock.json").read_text())["seconds"]
    assert spent == machine.now - 1000
    # The time between the sessions does not count.
    machine.now += 1e6
    begun = machine.now
    run = train(source, tmp_path, minutes=20, callbacks=[machine], verbose=True)
    assert "going on after epoch" in capsys.readouterr().out
    assert machine.now - begun + spent == pytest.approx(1200, abs=60)
    assert run.history[-1]["minutes"] == pytest.approx(20, abs=1)
    assert json.loads((tmp_path / "run.json").read_text())["plan"] == plan
    validation = 2 * len(run.history)
    assert 50 * steps_of(run) + validation == pytest.approx(1200, abs=60)


@pytest.mark.integration
@pytest.mark.usefixtures("eagerly")
def test_time_that_a_kill_has_lost_counts(source, on, tmp_path):
    """The clock was written after the snapshot."""
    machine = on(Machine(50))
    with pytest.raises(KeyboardInterrupt):
        train(source, tmp_path, minutes=20, callbacks=[machine, StopAfter(2)])
    (tmp_path / "clock.json").write_text('{"seconds": 900}')
    begun = machine.now
    run = train(source, tmp_path, minutes=20, callbacks=[machine])
    assert machine.now - begun == pytest.approx(300, abs=60)
    assert run.history[-1]["minutes"] == pytest.approx(20, abs=1)
    for broken in ("", '{"seconds": "x"}', "[]"):
        (tmp_path / "clock.json").write_text(broken)
        (tmp_path / "metrics.json").unlink(missing_ok=True)
        # Everything is trained, as the snapshot knows.
        begun = machine.now
        train(source, tmp_path, minutes=20, callbacks=[machine])
        assert machine.now == begun


@pytest.mark.integration
@pytest.mark.usefixtures("eagerly")
def test_a_run_that_was_killed_before_its_first_snapshot(source, on, tmp_path):
    """What is left of the time is planned anew."""
    machine = on(Machine(50))

    class Killed(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(source, tmp_path, minutes=20, callbacks=[machine, Killed()])
    (tmp_path / "clock.json").write_text('{"seconds": 600}')
    begun = machine.now
    run = train(source, tmp_path, minutes=20, callbacks=[machine])
    assert machine.now - begun == pytest.approx(600, abs=60)
    # Trained from the beginning to the end of the schedule.
    rates = [row["learning_rate"] for row in run.history]
    assert rates[0] > 0.5 * PLAIN["lr"]
    assert rates[-1] < 0.1 * PLAIN["lr"]


# === What is refused ===


@pytest.mark.usefixtures("eagerly")
def test_too_short_for_one_step(source, on, tmp_path):
    """One line that says what is the least; and the folder is free for another run."""
    machine = on(Machine(50))
    with pytest.raises(
        RunError, match=r"is too short: .* take about [\d.]+ minutes"
    ) as e:
        train(source, tmp_path, minutes=0.1, callbacks=[machine])
    assert "\n" not in str(e.value)
    least = float(re.search(r"about ([\d.]+) minutes", str(e.value))[1])
    assert not (tmp_path / "run.json").exists()
    run = train(source, tmp_path, minutes=least, callbacks=[machine])
    assert steps_of(run) >= 1


def test_what_does_not_go_together(source):
    with pytest.raises(RecipeError, match="give `minutes` or `epochs`, not both"):
        train(source, minutes=2, epochs=3)
    several = Devices(2, hosts=2)
    with pytest.raises(RecipeError, match="several machines cannot agree on the time"):
        check_time(Recipe(), 20, several)
    with pytest.raises(RecipeError, match="several machines cannot measure together"):
        check_time(Recipe(precision="auto"), None, several)
    repeated = Recipe(teacher="x", teacher_views=3, mixup=1, epochs=3, mix_off_epoch=2)
    with pytest.raises(RecipeError, match="teacher_views=0 or mix_off_epoch=0"):
        check_time(repeated, 20, Devices())
    check_time(repeated, None, Devices())


# === How the time is divided ===


@pytest.mark.parametrize("step", [0.001, 0.05, 1, 30])
@pytest.mark.parametrize("validation", [0.01, 2, 60])
@pytest.mark.parametrize("steps_per_epoch", [1, 20, 1000, 100_000])
def test_rounds(step, validation, steps_per_epoch):
    """Neither eats validation the time, nor are there too few of them."""
    budget = make_budget(
        20,
        now=10,
        step=step,
        validation=validation,
        finish=20,
        steps_per_epoch=steps_per_epoch,
    )
    left = budget.end - budget.begun
    each = budget.round_steps * step
    if each < left:
        assert validation <= 0.1001 * each + 1e-9
    assert left / each <= 201
    if 10 * validation < left / 5 and step < left / 10:
        assert left / each >= 4
    if steps_per_epoch * step <= left / 5:
        assert budget.round_steps % steps_per_epoch == 0 or each >= left
    assert budget.epochs * steps_per_epoch * step <= left + validation


# === Without a limit ===

STATEFUL = {
    **PLAIN,
    "ema": 0.9,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "stochastic_depth": 0.1,
    "mixup": 0.5,
    "erase_prob": 0.3,
}


@pytest.mark.backend
@pytest.mark.usefixtures("eagerly")
def test_measuring_leaves_no_trace(source, capsys):
    """A run that nobody watches is not measured, and is the same to the last bit."""
    silent = train(source, epochs=1, **STATEFUL)
    assert capsys.readouterr().out == ""
    watched = train(source, epochs=1, **STATEFUL, verbose=True)
    text = capsys.readouterr().out
    assert re.search(r"^about [\d.]+ \w+ for 1 epoch$", text, re.M)
    assert without_times(watched.history) == without_times(silent.history)
    for a, b in zip(
        watched.model.get_weights(), silent.model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.integration
@pytest.mark.usefixtures("eagerly")
def test_the_time_of_what_is_left(source, tmp_path, capsys):
    with pytest.raises(KeyboardInterrupt):
        train(source, tmp_path, epochs=3, callbacks=[StopAfter(1)])
    train(source, tmp_path, epochs=3, verbose=True)
    text = capsys.readouterr().out
    assert re.search(r"^about \d+ \w+ for the last 2 epochs$", text, re.M)


# === Dry runs ===


@pytest.mark.backend
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("minutes", first_of_all([None, 10], None))
def test_a_dry_run_writes_nothing(minutes, source, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "run"
    plan = train(
        source, out, recipe="quick", minutes=minutes, dry_run=True, verbose=True
    )
    assert isinstance(plan, cct_keras.Plan)
    assert not list(tmp_path.iterdir())
    assert plan.precision == "float32"
    assert plan.recipe.variant == "tiny_1"
    if minutes is None:
        assert plan.epochs == plan.recipe.epochs == 5
        assert plan.minutes > 0
    else:
        assert plan.recipe.epochs == pytest.approx(plan.epochs, abs=1)
        assert plan.minutes <= 10
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == plan.data
    assert any(line.startswith("tiny_1, float32, ") for line in lines)
    assert any("batch_size=16" in line for line in lines)
    assert lines[-1] == "a dry run: nothing was trained or written"


@pytest.mark.integration
@pytest.mark.usefixtures("eagerly")
def test_a_dry_run_of_a_run_that_is_there(source, tmp_path, capsys):
    with pytest.raises(KeyboardInterrupt):
        train(source, tmp_path, epochs=3, callbacks=[StopAfter(1)])
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert train(source, tmp_path, epochs=3, dry_run=True, verbose=True).epochs == 3
    assert "holds a run already" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


# === Precision ===


@pytest.fixture
def timed(monkeypatch):
    """Steps of a given time in each precision."""

    def use(**seconds):
        calls = []

        def measure(model, batches, devices, **_):
            policy = model.get_layer("block_0").dtype_policy.name
            calls.append(policy)
            return MeasuredStep(seconds[policy], 0.0, [])

        monkeypatch.setattr("cct_keras.training.assemble.measure_step", measure)
        return calls

    return use


@pytest.mark.backend
@pytest.mark.usefixtures("eagerly")
def test_the_fastest_precision_is_taken_and_kept(source, timed, tmp_path, capsys):
    calls = timed(float32=0.08, mixed_bfloat16=0.05)
    fields = {"epochs": 2, "precision": "auto", "verbose": True}
    with pytest.raises(KeyboardInterrupt):
        train(source, tmp_path, **fields, callbacks=[StopAfter(1)])
    note = "chose mixed_bfloat16: a step takes 50 ms, 80 ms in float32"
    assert note in capsys.readouterr().out
    assert set(calls) == {"float32", "mixed_bfloat16"}
    settings = json.loads((tmp_path / "run.json").read_text())
    assert settings["precision"] == "auto"
    assert settings["plan"]["precision"] == "mixed_bfloat16"
    calls = timed(float32=0.01, mixed_bfloat16=0.05)
    run = train(source, tmp_path, **fields)
    assert calls == []
    assert any(note in text for text in run.data.notes)
    assert run.model.get_layer("block_0").dtype_policy.name == "mixed_bfloat16"


@pytest.mark.integration
@pytest.mark.backend
@pytest.mark.usefixtures("eagerly")
def test_a_tie_is_the_run_in_float32(source, timed):
    timed(float32=0.05, mixed_bfloat16=0.049)
    found = train(source, epochs=1, precision="auto", dropout=0.1)
    expected = train(source, epochs=1, precision="float32", dropout=0.1)
    assert without_times(found.history) == without_times(expected.history)


@pytest.mark.integration
@pytest.mark.backend
def test_precisions_are_timed(source):
    run = train(source, epochs=1, precision="auto")
    assert any("precision='auto' chose" in note for note in run.data.notes)


# === In real time ===

SCRIPT = """
import sys, time
import keras
import cct_keras
from cct_keras.training import plan, results

# Figures take longer or shorter on a busy machine; the rest takes its real time.
results.write_report = lambda path, **_: path.write_text("report")
plan.REPORT_SECONDS = 0.5

class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.05)

cct_keras.train(
    sys.argv[1], minutes=1, out=sys.argv[2], callbacks=[Slow()],
    variant="cvt_2_4_32", batch_size=16, crop="none",
)
"""


def start(source, out):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, source, out],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )


@pytest.mark.integration
@pytest.mark.backend
def test_a_budget_in_real_time(source, tmp_path):
    """Killed once; sleeping steps do not notice what else the machine does."""
    first = start(source, tmp_path)
    for line in first.stdout:
        if line.startswith("epoch "):
            break
    first.send_signal(signal.SIGKILL)
    first.communicate()
    spent = json.loads((tmp_path / "clock.json").read_text())["seconds"]
    assert spent > 1
    time.sleep(5)
    second = start(source, tmp_path)
    text, _ = second.communicate()
    assert second.returncode == 0
    assert "going on after epoch" in text
    total = json.loads((tmp_path / "clock.json").read_text())["seconds"]
    # 5 % of the minute, and what the results may take on a busy machine.
    assert 0.95 * 60 - 5 <= total <= 1.05 * 60 + 10
    rows = (tmp_path / "history.csv").read_text().splitlines()
    assert len(rows) > 3
    assert pathlib.Path(tmp_path / "model.keras").is_file()
