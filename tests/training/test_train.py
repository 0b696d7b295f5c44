"""`train`, its run folder and what survives a kill."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest
from small import stripes

import cct_keras
from cct_keras.models.depth import encoder_blocks
from cct_keras.training import find_recipe
from cct_keras.training.run_folder import RunError
from cct_keras.training.run_folder import RunFolder
from cct_keras.training.trainer import build_model
from cct_keras.training.trainer import compile_model

# Everything that has a state: averaged weights, dropout, mixing, accumulation.
STATEFUL = {
    "variant": "cvt_2_4_32",
    "batch_size": 16,
    "ema": 0.9,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "stochastic_depth": 0.1,
    "mixup": 0.5,
    "cutmix": 0.5,
    "erase_prob": 0.3,
    "accumulate": 2,
}
PLAIN = {"variant": "cvt_2_4_32", "batch_size": 32}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "stripes.npz"
    (x, y), (x_test, y_test) = stripes(160), stripes(40, 1)
    np.savez(path, x_train=x, y_train=y, x_test=x_test, y_test=y_test)
    return path


@pytest.fixture(scope="module")
def undisturbed(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "undisturbed"
    keras.utils.clear_session()
    return train(source, out, **STATEFUL), out


@pytest.fixture(autouse=True)
def quick_report(request, monkeypatch):
    """Figures take seconds; one test looks at them."""
    if "undisturbed" not in request.fixturenames:
        name = "cct_keras.training.trainer.write_report"
        monkeypatch.setattr(name, lambda path, **_: path.write_text("report"))


def train(source, out=None, **fields):
    epochs = fields.pop("epochs", 4)
    return cct_keras.train(source, epochs=epochs, out=out, verbose=False, **fields)


def without_times(history):
    return [
        {k: v for k, v in row.items() if k not in ("seconds", "images_per_second")}
        for row in history
    ]


# === One run ===


def test_a_run_leaves_its_files(undisturbed):
    run, out = undisturbed
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics == json.loads(json.dumps(run.metrics))
    low, high = metrics["test"]["top1_ci95"]
    assert 0 <= low <= metrics["test"]["top1"] <= high <= 1
    assert metrics["seconds"] > 0
    assert metrics["images_per_second"] > 0
    assert metrics["parameters"] == run.model.count_params()
    lines = (out / "history.csv").read_text().splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("epoch,")
    assert "val_accuracy" in lines[0]
    report = (out / "report.html").read_text()
    assert run.data.fingerprint in report
    assert list((out / "tensorboard").rglob("events*"))
    assert len(list((out / "snapshots").iterdir())) == 2


def test_it_learns(source):
    run = train(source, **PLAIN, epochs=8)
    assert run.metrics["test"]["top1"] == 1.0
    assert len(run.history) == 8


def test_the_file_alone_answers_on_raw_images(undisturbed, source):
    run, out = undisturbed
    stored = keras.models.load_model(out / "model.keras")
    with np.load(source) as arrays:
        x, y = arrays["x_test"][..., None], arrays["y_test"]
    expected = keras.ops.convert_to_numpy(run.model(x.astype("float32")))
    found = keras.ops.convert_to_numpy(stored(x.astype("float32")))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert (found.argmax(1) == y).mean() == run.metrics["test"]["top1"]
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)
    # Twice the size is the same picture.
    larger = np.kron(x[..., 0], np.ones((2, 2)))[..., None].astype("float32")
    again = keras.ops.convert_to_numpy(stored(larger))
    assert np.abs(again - expected).max() < 0.05


def test_a_resumed_run_does_not_need_its_first_weights(undisturbed, source, tmp_path):
    start = tmp_path / "start.keras"
    start.write_bytes((undisturbed[1] / "model.keras").read_bytes())
    fields = {**PLAIN, "epochs": 2, "weights": str(start)}
    with pytest.raises(KeyboardInterrupt):
        train(source, tmp_path / "run", **fields, callbacks=[StopAfter(1)])
    start.unlink()
    assert len(train(source, tmp_path / "run", **fields).history) == 2


def test_a_trained_file_is_a_start(undisturbed, source):
    _, out = undisturbed
    run = train(source, **PLAIN, epochs=1, weights=str(out / "model.keras"), lr=0.0)
    assert run.metrics["test"]["top1"] == undisturbed[0].metrics["test"]["top1"]


def test_a_complete_run_is_not_trained_again(undisturbed, source):
    run, out = undisturbed
    stamp = (out / "metrics.json").stat().st_mtime_ns
    again = train(source, out, **STATEFUL)
    assert (out / "metrics.json").stat().st_mtime_ns == stamp
    assert again.metrics["test"] == run.metrics["test"]
    assert again.history == run.history


def test_other_settings_are_refused(undisturbed, source):
    _, out = undisturbed
    with pytest.raises(
        RunError, match=r"other settings \(.*lr 0.002 -> 0.01.*--restart"
    ):
        train(source, out, **STATEFUL, lr=0.01)
    assert (out / "model.keras").is_file()


def test_a_setting_that_is_not_used_is_no_other_setting(tmp_path):
    """A later version may know more of them."""
    with RunFolder(tmp_path) as folder:
        assert not folder.begin({"lr": 0.1}, restart=False)
        assert not folder.begin({"lr": 0.1, "teacher": None}, restart=False)


def test_another_image_size_is_another_run(undisturbed, source):
    _, out = undisturbed
    with pytest.raises(RunError, match=r"image_size \[16, 16\] -> \[24, 24\]"):
        train(source, out, **STATEFUL, image_size=24)


def test_two_processes_do_not_share_a_folder(tmp_path, source):
    with RunFolder(tmp_path), pytest.raises(RunError, match="another process trains"):
        train(source, tmp_path, **PLAIN)


def test_early_stopping(source):
    run = train(source, **PLAIN, epochs=30, patience=2, lr=0, min_lr=0, warmup_lr=0)
    assert len(run.history) == 3


def test_nan_stops_with_the_step_and_advice(source):
    with pytest.raises(RunError, match=r"at epoch \d+, step \d+\. Try a lower rate"):
        train(source, **PLAIN, lr=1e30, clip_norm=None, warmup_epochs=0)


def test_nan_in_the_last_step_of_an_epoch(source, tmp_path):
    with pytest.raises(RunError, match="validation loss is nan after epoch 1"):
        train(
            source,
            tmp_path,
            **{**PLAIN, "batch_size": 144},
            lr=1e30,
            clip_norm=None,
            warmup_epochs=0,
            weight_decay=0,
        )
    assert not RunFolder(tmp_path).has_snapshot()


def test_loaded_data_keep_their_size(source):
    with pytest.raises(ValueError, match="loaded at .*Received: image_size=24"):
        train(cct_keras.load_data(source), image_size=24)


def test_unknown_field(source):
    with pytest.raises(ValueError, match="unknown recipe field 'mixupp'.*mixup"):
        train(source, mixupp=1)


# === Killed runs ===

SCRIPT = """
import json, sys
import cct_keras
cct_keras.train(sys.argv[1], epochs=4, out=sys.argv[2], **json.loads(sys.argv[3]))
"""


def start(source, out):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, source, out, json.dumps(STATEFUL)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )


def test_a_killed_run_ends_as_an_undisturbed_one(undisturbed, source, tmp_path):
    run, _ = undisturbed
    with start(source, tmp_path) as process:
        for line in process.stdout:
            if line.startswith("epoch 2/4"):
                break
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "metrics.json").exists()
    resumed = train(source, tmp_path, **STATEFUL)
    assert without_times(resumed.history) == without_times(run.history)
    assert resumed.metrics["test"] == run.metrics["test"]
    for a, b in zip(resumed.model.get_weights(), run.model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


class StopAfter(keras.callbacks.Callback):
    """As a kill, without a new process."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_epoch_end(self, epoch, logs=None):
        if epoch + 1 == self.epoch:
            raise KeyboardInterrupt


@pytest.mark.backend
def test_resume_on_every_backend(source, tmp_path):
    if keras.config.backend() == "tensorflow":
        pytest.skip("a killed process shows it")
    fields = {**STATEFUL, "accumulate": 1, "epochs": 2}
    whole = train(source, tmp_path / "whole", **fields)
    with pytest.raises(KeyboardInterrupt):
        train(source, tmp_path / "cut", **fields, callbacks=[StopAfter(1)])
    resumed = train(source, tmp_path / "cut", **fields)
    for a, b in zip(resumed.history, whole.history, strict=True):
        assert a["val_loss"] == pytest.approx(b["val_loss"], rel=1e-4)
    assert resumed.metrics["test"]["loss"] == pytest.approx(
        whole.metrics["test"]["loss"], rel=1e-4
    )


def truncate(whole):
    return whole[:-100]


def flip_a_bit(whole):
    return whole[:600] + bytes([whole[600] ^ 255]) + whole[601:]


def empty(whole):
    return b""


def not_a_zip(whole):
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
    with pytest.raises(RunError, match="no snapshot .* can be read; --restart"):
        folder.load_snapshot()


def test_a_full_disk_keeps_the_snapshot_before(source, tmp_path, capsys, monkeypatch):
    real, epochs = np.savez, []

    def full_in_the_second_epoch(file, **arrays):
        epochs.append(1)
        if len(epochs) == 2:
            file.write(b"half a snap")
            raise OSError(28, "No space left on device")
        real(file, **arrays)

    monkeypatch.setattr(np, "savez", full_in_the_second_epoch)
    train(source, tmp_path, **PLAIN, epochs=3)
    assert "No space left on device" in capsys.readouterr().err
    left = sorted(path.name for path in (tmp_path / "snapshots").iterdir())
    assert left == ["epoch_000001.npz", "epoch_000003.npz"]
    assert RunFolder(tmp_path).load_snapshot()[1]["best_epoch"]


def test_what_a_kill_left_behind_is_removed(tmp_path):
    (tmp_path / "snapshots").mkdir()
    left = [tmp_path / ".cct_keras-a.keras", tmp_path / "snapshots/.cct_keras-b.npz"]
    for path in left:
        path.write_bytes(b"half")
    with RunFolder(tmp_path):
        assert not any(path.exists() for path in left)


def test_a_broken_settings_file(source, tmp_path):
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RunError, match=r"run\.json cannot be read.*--restart"):
        train(source, tmp_path, **PLAIN)
    train(source, tmp_path, **PLAIN, epochs=1, restart=True)
    assert (tmp_path / "metrics.json").is_file()


def test_a_folder_of_something_else_is_left_alone(source, tmp_path):
    (tmp_path / "model.keras").write_text("mine")
    with pytest.raises(RunError, match=r"something else \(model.keras\)"):
        train(source, tmp_path, **PLAIN)
    assert (tmp_path / "model.keras").read_text() == "mine"


def test_restart_removes_only_its_own_files(source, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    train(source, tmp_path, **PLAIN, epochs=1)
    train(source, tmp_path, **PLAIN, epochs=2, restart=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert json.loads((tmp_path / "metrics.json").read_text())["epochs"] == 2


# === What a recipe decides ===


def compiled(**fields):
    data = cct_keras.load_data(stripes(160))
    recipe = find_recipe("small", **{**PLAIN, **fields})
    model = build_model(data, recipe, classifier_activation=None)
    compile_model(model, recipe, images=len(data.train), num_classes=data.num_classes)
    return model


def test_recomputing_changes_neither_the_run_nor_the_file(
    undisturbed, source, tmp_path
):
    run = train(source, tmp_path, **STATEFUL, remat=True)
    for found, expected in zip(run.history, undisturbed[0].history, strict=True):
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    blocks = encoder_blocks(keras.models.load_model(tmp_path / "model.keras"))
    assert [block.remat for block in blocks] == [False, False]
    assert [block.remat for block in encoder_blocks(compiled(remat=True))] == [True] * 2


@pytest.mark.parametrize(
    ("exempt", "expected"),
    [
        ("nothing", set()),
        ("vectors", {"bias", "gamma", "beta"}),
        ("positions", {"bias", "gamma", "beta", "embeddings", "token"}),
    ],
)
def test_what_is_not_decayed(exempt, expected):
    """A step with a gradient of zero moves only what is decayed."""
    model = compiled(
        decay_exempt=exempt, variant="vit_2_4_32", weight_decay=0.5, warmup_epochs=0
    )
    for variable in model.trainable_variables:
        variable.assign(np.ones(variable.shape))
    zeros = [keras.ops.zeros(v.shape) for v in model.trainable_variables]
    model.optimizer.apply(zeros, model.trainable_variables)
    kept = {
        v.path.split("/")[-1]
        for v in model.trainable_variables
        if np.all(keras.ops.convert_to_numpy(v) == 1)
    }
    assert kept == expected
    moved = model.get_layer("head").kernel
    # AdamW: the share lr x decay of the weight itself.
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(moved), 1 - 2e-3 * 0.5, rtol=1e-4
    )


def test_precision():
    assert compiled(precision="mixed").dtype_policy.name == "float32"
    model = compiled(precision="mixed_bfloat16")
    assert model.get_layer("block_0").compute_dtype == "bfloat16"
    assert all(weight.dtype == "float32" for weight in model.trainable_variables)


def test_half_precision_scales_the_loss():
    model = compiled(precision="mixed_float16")
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)


def test_data_that_no_patch_divides(source):
    data = cct_keras.load_data(source, image_size=18)
    with pytest.raises(ValueError, match=r"load_data\(..., multiple=4\)"):
        train(data, **PLAIN)


def test_sgd_and_clipping():
    model = compiled(optimizer="sgd", clip_norm=0.5, accumulate=4)
    assert isinstance(model.optimizer, keras.optimizers.SGD)
    assert model.optimizer.global_clipnorm == 0.5
    assert model.optimizer.gradient_accumulation_steps == 4


@pytest.mark.parametrize("name", cct_keras.list_recipes())
def test_one_step_of_every_recipe(name):
    """With a small stand-in for the variant; what it sees is the recipe's own."""
    data = cct_keras.load_data(stripes(60))
    recipe = find_recipe(name, variant="cvt_2_4_32", batch_size=16, weights=None)
    model = build_model(data, recipe, classifier_activation=None)
    compile_model(model, recipe, images=len(data.train), num_classes=data.num_classes)
    model.run_eagerly = True
    images, labels = next(iter(data.training_pipeline(recipe, epochs=1)))
    before = keras.ops.convert_to_numpy(model.get_layer("head").kernel)
    loss, _ = model.train_on_batch(images, labels)
    assert np.isfinite(loss)
    after = keras.ops.convert_to_numpy(model.get_layer("head").kernel)
    assert not np.array_equal(before, after)


def test_the_run_needs_a_folder_that_can_be_made(source, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot make .*file"):
        train(source, pathlib.Path(tmp_path / "file" / "run"), **PLAIN)
