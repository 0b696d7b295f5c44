"""Two processes on this machine, as two machines."""

import json
import os
import re
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest
from machines import FIELDS
from machines import free_port
from machines import losses
from runs import StopAfter

import cct_keras

pytestmark = [
    pytest.mark.integration,
    pytest.mark.backend,
    pytest.mark.skipif(
        keras.config.backend() != "jax", reason="several machines need JAX"
    ),
]


def command(source, out, port, host, **fields):
    flags = [
        text
        for name, value in {**FIELDS, **fields}.items()
        for text in (f"--{name.replace('_', '-')}", str(value))
    ]
    place = ["--coordinator", f"127.0.0.1:{port}", "--num-hosts", "2"]
    program = os.path.join(os.path.dirname(sys.executable), "cct-keras")
    return subprocess.Popen(
        [
            program,
            "train",
            source,
            "--out",
            out,
            *place,
            "--host-id",
            str(host),
            *flags,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "CCT_KERAS_HOST_TIMEOUT": "60"},
    )


def run_both(source, folder, *fields):
    port = free_port()
    processes = [
        command(source, folder / str(host), port, host, **more)
        for host, more in enumerate(fields)
    ]
    results = [process.communicate() for process in processes]
    return [(p.returncode, *r) for p, r in zip(processes, results, strict=True)]


def read_history(path):
    lines = [line.split(",") for line in (path / "history.csv").read_text().split()]
    return [dict(zip(lines[0], map(float, row), strict=True)) for row in lines[1:]]


@pytest.fixture(scope="module")
def alone(source):
    return cct_keras.train(source, verbose=False, **FIELDS)


def test_two_machines_compute_what_one_computes(source, alone, tmp_path):
    results = run_both(source, tmp_path, {}, {})
    for code, _, error in results:
        assert code == 0, error[-2000:]
    history = read_history(tmp_path / "0")
    np.testing.assert_allclose(losses(history), losses(alone.history), rtol=1e-5)
    metrics = json.loads((tmp_path / "0/metrics.json").read_text())
    assert metrics["test"]["loss"] == pytest.approx(
        alone.metrics["test"]["loss"], rel=1e-5
    )
    assert not (tmp_path / "1").exists()
    assert "host 1 of 2" in results[1][1]
    # A complete run is not trained again, and nobody waits.
    again = run_both(source, tmp_path, {}, {})
    assert [code for code, _, _ in again] == [0, 0]
    assert "is complete" in again[0][1]


def test_machines_that_disagree(source, tmp_path):
    for code, _, error in run_both(source, tmp_path, {}, {"lr": 0.5}):
        assert code == 2
        line = error.strip().splitlines()[-1]
        assert line == (
            "cct-keras: error: host 1 disagrees with host 0: lr 0.002 -> 0.5"
        )
    assert not list(tmp_path.iterdir())


def test_a_machine_that_cannot_begin(source, tmp_path):
    """The others are told why, and end too."""
    port = free_port()
    processes = [
        command(source, tmp_path / "0", port, 0),
        command(tmp_path / "gone.npz", tmp_path / "1", port, 1),
    ]
    errors = [process.communicate()[1].strip() for process in processes]
    assert [process.returncode for process in processes] == [2, 2]
    assert re.search(r"error: host 1: .*gone\.npz", errors[0].splitlines()[-1])
    assert re.search(r"error: .*gone\.npz", errors[1].splitlines()[-1])

    (tmp_path / "0").mkdir()
    (tmp_path / "0/model.keras").write_text("mine")
    results = run_both(source, tmp_path, {}, {})
    assert [code for code, _, _ in results] == [2, 2]
    for _, _, error in results:
        assert "something else (model.keras)" in error.splitlines()[-1]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_machine_that_disappears(source, tmp_path, victim):
    """The other one ends with one line, and the snapshots allow to go on."""
    fields = {"epochs": 400}
    port = free_port()
    hosts = [
        command(source, tmp_path / str(host), port, host, **fields) for host in (0, 1)
    ]
    for line in hosts[0].stdout:
        if re.match(r"epoch +3/", line):
            break
    hosts[victim].send_signal(signal.SIGKILL)
    _, error = hosts[1 - victim].communicate(timeout=90)
    hosts[victim].communicate()
    assert hosts[1 - victim].returncode == 2
    line = error.strip().splitlines()[-1]
    assert re.match(
        r"cct-keras: error: lost another host after epoch \d+; the same", line
    )
    snapshots = sorted((tmp_path / "0/snapshots").glob("epoch_*.npz"))
    assert len(snapshots) == 2
    for path in snapshots:
        with np.load(path) as arrays:
            assert all(np.isfinite(arrays[name]).all() for name in arrays.files)


def test_a_run_goes_on_with_more_machines(source, alone, tmp_path):
    """The snapshot of the first reaches the other, which has no folder."""
    with pytest.raises(KeyboardInterrupt):
        cct_keras.train(
            source,
            out=tmp_path / "0",
            verbose=False,
            callbacks=[StopAfter(2)],
            **FIELDS,
        )
    results = run_both(source, tmp_path, {}, {})
    assert [code for code, _, _ in results] == [0, 0], results
    assert "going on after epoch 2 of 3" in results[0][1]
    history = read_history(tmp_path / "0")
    np.testing.assert_allclose(losses(history), losses(alone.history), rtol=1e-5)
