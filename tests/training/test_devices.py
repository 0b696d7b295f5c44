"""One run on several devices, and on several machines."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading

import keras
import numpy as np
import pytest
from small import stripes

import cct_keras
from cct_keras.training import find_recipe
from cct_keras.training.recipe import RecipeError
from cct_keras.training.rendezvous import meet
from cct_keras.training.run_folder import RunError

BACKEND = keras.config.backend()
# Whatever draws numbers is off; validation of 15 images splits unevenly.
FIELDS = {
    "recipe": "small",
    "variant": "cvt_2_4_32",
    "batch_size": 32,
    "epochs": 3,
    "crop": "none",
    "flip": 0.0,
    "clip_norm": 0.05,
    "layer_decay": 0.8,
}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "stripes.npz"
    (x, y), (x_test, y_test) = stripes(150), stripes(40, 1)
    # Hard enough that losses tell runs apart.
    noise = np.random.default_rng(0).integers(0, 256, x.shape).astype("uint8")
    np.savez(path, x_train=x // 4 + noise // 2, y_train=y, x_test=x_test, y_test=y_test)
    return path


def losses(history):
    names = ("loss", "accuracy", "val_loss", "val_accuracy")
    return np.array([[row[name] for name in names] for row in history])


# === Devices of one machine ===

SCRIPT = """
import json, sys
import keras
if keras.config.backend() == "tensorflow":
    import tensorflow as tf
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
import cct_keras
source, fields = sys.argv[1], json.loads(sys.argv[2])
for devices in (1, 2):
    run = cct_keras.train(source, devices=devices, verbose=False, **fields)
    print(json.dumps({"history": run.history, "test": run.metrics["test"]["loss"]}))
"""


@pytest.mark.backend
@pytest.mark.skipif(BACKEND == "torch", reason="Keras has no devices there")
@pytest.mark.parametrize("more", [{}, {"ema": 0.9, "optimizer": "sgd"}])
def test_two_devices_compute_what_one_computes(source, more):
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, source, json.dumps({**FIELDS, **more})],
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    one, two = (json.loads(line) for line in result.stdout.splitlines())
    np.testing.assert_allclose(
        losses(two["history"]), losses(one["history"]), rtol=1e-5
    )
    assert two["test"] == pytest.approx(one["test"], rel=1e-5)


@pytest.mark.backend
def test_more_devices_than_there_are(source):
    message = "several devices need" if BACKEND == "torch" else r"has \d+ device"
    with pytest.raises(RecipeError, match=message):
        cct_keras.train(source, devices=99, **FIELDS)


@pytest.mark.parametrize("devices", [0, "many"])
@pytest.mark.skipif(BACKEND == "torch", reason="Keras has no devices there")
def test_no_number_of_devices(source, devices):
    with pytest.raises(RecipeError, match="`devices` must be a number or 'all'"):
        cct_keras.train(source, devices=devices, **FIELDS)


@pytest.mark.skipif(BACKEND == "jax", reason="it has them")
def test_machines_need_jax(source):
    with pytest.raises(RecipeError, match="several machines need KERAS_BACKEND=jax"):
        cct_keras.train(source, coordinator="127.0.0.1:1", num_hosts=2, host_id=0)
    with pytest.raises(RecipeError, match="need all of --coordinator"):
        cct_keras.train(source, num_hosts=2)


# === Pipelines in parts ===


@pytest.fixture(scope="module")
def data(source):
    return cct_keras.load_data(source)


def test_parts_of_the_training_batches_make_the_whole(data):
    recipe = find_recipe(**FIELDS)
    whole = list(data.training_pipeline(recipe, epochs=1).as_numpy_iterator())
    parts = [
        list(data.training_pipeline(recipe, epochs=1, shard=(i, 2)).as_numpy_iterator())
        for i in range(2)
    ]
    assert len(whole) == len(parts[0]) == len(parts[1])
    for (x, y), (x0, y0), (x1, y1) in zip(whole, *parts, strict=True):
        np.testing.assert_array_equal(np.concatenate([x0, x1]), x)
        np.testing.assert_array_equal(np.concatenate([y0, y1]), y)


def test_machines_draw_apart(data):
    recipe = find_recipe(**{**FIELDS, "erase_prob": 1.0, "batch_size": 2})
    twice = cct_keras.load_data((np.zeros((40, 8, 8), "uint8"), np.arange(40) % 2))
    first, second = (
        next(twice.training_pipeline(recipe, shard=(i, 2)).as_numpy_iterator())[0]
        for i in range(2)
    )
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(("multiple", "hosts"), [(2, 1), (4, 2), (6, 3)])
@pytest.mark.parametrize("batch_size", [4, 7, 256])
def test_padding_changes_no_mean(data, multiple, hosts, batch_size):
    parts = [
        list(
            data.padded_pipeline(
                "validation", batch_size, multiple=multiple, shard=(host, hosts)
            ).as_numpy_iterator()
        )
        for host in range(hosts)
    ]
    value = 0.0
    seen = []
    for batches in zip(*parts, strict=True):
        sizes = {len(weights) for _, _, weights in batches}
        assert len(sizes) == 1
        assert hosts * sizes.pop() % multiple == 0
        for images, _, weights in batches:
            value += (images.mean(axis=(1, 2, 3)) * weights).sum()
            seen += [image for image, w in zip(images, weights, strict=True) if w]
    count = sum(len(weights) for part in parts for _, _, weights in part)
    truth = np.stack(seen).mean()
    assert len(seen) == len(data.validation) == 15
    # What Keras computes: divided by all, padding included.
    assert value / count == pytest.approx(truth, rel=1e-5)
    expected = np.stack([data.validation.images[i] for i in range(15)]).mean()
    assert truth == pytest.approx(expected, rel=1e-5)


# === Machines find each other ===


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def gather(*hosts, seconds=10, port=None, monkeypatch):
    """What each of these `(num_hosts, host_id)` is told: `None` or an error."""
    monkeypatch.setenv("CCT_KERAS_HOST_TIMEOUT", str(seconds))
    address = f"127.0.0.1:{port or free_port()}"
    told = [None] * len(hosts)

    def run(index, num_hosts, host_id):
        try:
            meet(address, num_hosts, host_id)
        except RunError as error:
            told[index] = str(error)

    threads = [
        threading.Thread(target=run, args=(i, *host)) for i, host in enumerate(hosts)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


def test_all_are_there(monkeypatch):
    told = gather((3, 2), (3, 0), (3, 1), monkeypatch=monkeypatch)
    assert told == [None, None, None]


def test_one_does_not_come(monkeypatch):
    first, second = gather((3, 0), (3, 2), seconds=1, monkeypatch=monkeypatch)
    assert first == second == "not all hosts came in time; missing: 1"


def test_the_first_does_not_come(monkeypatch):
    (told,) = gather((2, 1), seconds=1, monkeypatch=monkeypatch)
    assert "the first host did not answer at 127.0.0.1:" in told


def test_two_of_one_number(monkeypatch):
    told = gather((3, 0), (3, 1), (3, 1), monkeypatch=monkeypatch)
    assert told == ["two hosts have --host-id 1"] * 3


def test_two_numbers_of_hosts(monkeypatch):
    told = gather((2, 0), (3, 1), monkeypatch=monkeypatch)
    assert told == ["host 1 disagrees with host 0: --num-hosts 3 for 2"] * 2


def test_a_port_in_use(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (told,) = gather((2, 0), port=port, monkeypatch=monkeypatch)
    assert "cannot listen at" in told


def test_a_stranger_at_the_door(monkeypatch):
    port = free_port()

    def knock():
        for content in (b"GET / HTTP/1.1\r\n", b"{}\n", b"[1]\n", b'"x"\n', b""):
            for _ in range(20):
                try:
                    with socket.create_connection(("127.0.0.1", port), 1) as stranger:
                        stranger.sendall(content)
                    break
                except OSError:
                    threading.Event().wait(0.02)

    thread = threading.Thread(target=knock)
    thread.start()
    told = gather((2, 0), (2, 1), port=port, monkeypatch=monkeypatch)
    thread.join()
    assert told == [None, None]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("10.0.0.1", 2, 0), "must be ADDRESS:PORT"),
        (("10.0.0.1:x", 2, 0), "must be ADDRESS:PORT"),
        (("127.0.0.1:1", 2, 2), "--host-id must be from 0 to 1"),
    ],
)
def test_wrong_addresses(arguments, message):
    with pytest.raises(RunError, match=message):
        meet(*arguments)


# === Two processes on this machine, as two machines ===

needs_jax = pytest.mark.skipif(BACKEND != "jax", reason="several machines need JAX")


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


@pytest.mark.backend
@needs_jax
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


@pytest.mark.backend
@needs_jax
def test_machines_that_disagree(source, tmp_path):
    for code, _, error in run_both(source, tmp_path, {}, {"lr": 0.5}):
        assert code == 2
        line = error.strip().splitlines()[-1]
        assert line == (
            "cct-keras: error: host 1 disagrees with host 0: lr 0.002 -> 0.5"
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.backend
@needs_jax
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


@pytest.mark.backend
@needs_jax
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


class Stop(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt


@pytest.mark.backend
@needs_jax
def test_a_run_goes_on_with_more_machines(source, alone, tmp_path):
    """The snapshot of the first reaches the other, which has no folder."""
    with pytest.raises(KeyboardInterrupt):
        cct_keras.train(
            source, out=tmp_path / "0", verbose=False, callbacks=[Stop()], **FIELDS
        )
    results = run_both(source, tmp_path, {}, {})
    assert [code for code, _, _ in results] == [0, 0], results
    assert "going on after epoch 2 of 3" in results[0][1]
    history = read_history(tmp_path / "0")
    np.testing.assert_allclose(losses(history), losses(alone.history), rtol=1e-5)
