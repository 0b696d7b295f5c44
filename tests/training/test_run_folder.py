"""The folder of a run: settings, locks, snapshots that survive a kill."""

import json

import numpy as np
import pytest

from cct_keras.distributed.devices import Devices
from cct_keras.errors import RunError
from cct_keras.training.run_folder import COMPLETE
from cct_keras.training.run_folder import NEW
from cct_keras.training.run_folder import RESUMED
from cct_keras.training.run_folder import RunFolder
from cct_keras.training.run_folder import begin_run


def begin(folder, settings, restart=False):
    return begin_run(folder, settings, restart=restart, devices=Devices())


def test_the_states_of_a_run(tmp_path):
    with RunFolder(tmp_path) as folder:
        assert begin(folder, {"lr": 0.1}) == NEW
        assert folder.resumable_settings() == {}
        folder.save_snapshot(1, {"x": np.ones(2)}, {"epoch": 1})
        assert begin(folder, {"lr": 0.1}) == RESUMED
        assert folder.resumable_settings() == {"lr": 0.1}
        folder.write_json("metrics.json", {"epochs": 1})
        (tmp_path / "model.keras").write_text("model")
        assert begin(folder, {"lr": 0.1}) == COMPLETE
        assert begin(folder, {"lr": 0.2}, restart=True) == NEW


def test_other_settings_are_refused(tmp_path):
    with RunFolder(tmp_path) as folder:
        begin(folder, {"lr": 0.1})
        message = r"other settings \(lr 0.1 -> 0.2\).*out=\.\.\., or .*restart=True"
        with pytest.raises(RunError, match=message):
            begin(folder, {"lr": 0.2})


def test_a_setting_that_is_not_used_is_no_other_setting(tmp_path):
    """A later version may know more of them."""
    with RunFolder(tmp_path) as folder:
        assert not folder.begin({"lr": 0.1}, restart=False)
        assert not folder.begin({"lr": 0.1, "teacher": None}, restart=False)


def test_two_processes_do_not_share_a_folder(tmp_path):
    message = "another process trains in .*out=..."
    with RunFolder(tmp_path), pytest.raises(RunError, match=message):
        RunFolder(tmp_path).__enter__()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot make .*file"):
        RunFolder(tmp_path / "file" / "run").__enter__()
    assert RunFolder(tmp_path / "file" / "run").resumable_settings() == {}


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "model.keras").write_text("mine")
    message = r"something else \(model.keras\).*out=..."
    with RunFolder(tmp_path) as folder, pytest.raises(RunError, match=message):
        begin(folder, {})
    assert (tmp_path / "model.keras").read_text() == "mine"


def test_restart_removes_only_its_own_files(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "snapshots").mkdir()
    for name in ("metrics.json", "model.keras", "snapshots/epoch_000001.npz"):
        (tmp_path / name).write_text("old")
    with RunFolder(tmp_path) as folder:
        assert begin(folder, {}, restart=True) == NEW
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"notes.txt", "run.json", ".lock"}


def test_restart_keeps_the_weights_it_starts_from(tmp_path):
    (tmp_path / "model.keras").write_text("trained")
    for weights in (tmp_path, tmp_path / "model.keras"):
        message = "restart=True would throw .*away"
        with RunFolder(tmp_path) as folder, pytest.raises(RunError, match=message):
            begin(folder, {"weights": str(weights)}, restart=True)
    assert (tmp_path / "model.keras").read_text() == "trained"


def test_a_tag_with_the_name_of_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with RunFolder("cifar10") as folder:
        assert begin(folder, {"weights": "cifar10"}, restart=True) == NEW


@pytest.mark.parametrize("text", ["{", "\x00"])
def test_a_broken_settings_file(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with RunFolder(tmp_path) as folder:
        with pytest.raises(RunError, match=r"run\.json cannot be read.*restart=True"):
            begin(folder, {})
        with pytest.raises(RunError, match=r"run\.json cannot be read"):
            folder.resumable_settings()
        assert begin(folder, {}, restart=True) == NEW


def test_other_machines_are_told(tmp_path):
    """What the first machine finds decides for all."""

    class First(Devices):
        def broadcast(self, content):
            sent.append(content)
            return content

    class Second(Devices):
        def broadcast(self, content):
            return sent[-1]

    sent = []
    (tmp_path / "model.keras").write_text("mine")
    with RunFolder(tmp_path) as folder, pytest.raises(RunError):
        begin_run(folder, {}, restart=False, devices=First())
    with pytest.raises(RunError, match="host 0: .*something else"):
        begin_run(None, {}, restart=False, devices=Second())
    with RunFolder(tmp_path) as folder:
        begin_run(folder, {}, restart=True, devices=First())
    assert begin_run(None, {}, restart=False, devices=Second()) == NEW


# === Snapshots ===


def truncate(content):
    return content[:-100]


def flip_a_bit(content):
    return content[:600] + bytes([content[600] ^ 255]) + content[601:]


def empty(content):
    return b""


def not_a_zip(content):
    return b"x" * 1000


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, empty, not_a_zip])
def test_a_broken_snapshot_falls_back_on_the_one_before(tmp_path, damage):
    folder = RunFolder(tmp_path)
    for epoch in (1, 2, 3):
        folder.save_snapshot(epoch, {"x": np.full(999, epoch)}, {"epoch": epoch})
    files = sorted((tmp_path / "snapshots").iterdir())
    assert [path.name for path in files] == ["epoch_000002.npz", "epoch_000003.npz"]
    files[-1].write_bytes(damage(files[-1].read_bytes()))
    arrays, state, remarks = folder.load_snapshot()
    np.testing.assert_array_equal(arrays["x"], 2)
    assert state == {"epoch": 2}
    assert remarks == ["epoch_000003.npz is broken; going back to the one before"]
    files[0].write_bytes(damage(files[0].read_bytes()))
    with pytest.raises(RunError, match="no snapshot .* can be read; restart=True"):
        folder.load_snapshot()


def test_what_a_kill_left_behind_is_removed(tmp_path):
    (tmp_path / "snapshots").mkdir()
    left = [tmp_path / ".cct_keras-a.keras", tmp_path / "snapshots/.cct_keras-b.npz"]
    for path in left:
        path.write_bytes(b"half")
    with RunFolder(tmp_path):
        assert not any(path.exists() for path in left)


# === Other files ===


def test_the_history_comes_back(tmp_path):
    history = [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25, "val_loss": 1.5}]
    folder = RunFolder(tmp_path)
    folder.write_history(history)
    assert (tmp_path / "history.csv").read_text().startswith("epoch,loss,val_loss\n")
    assert folder.read_history() == history


def test_metrics_come_back(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_json("metrics.json", {"test": {"top1": 0.5}})
    assert folder.read_metrics() == {"test": {"top1": 0.5}}
    assert json.loads((tmp_path / "metrics.json").read_text()) == folder.read_metrics()
