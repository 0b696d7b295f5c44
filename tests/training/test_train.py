"""`train`: what a run leaves, what it refuses, and how it ends."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest
from runs import StopAfter
from runs import assert_same_weights
from runs import weights_of
from runs import without_times
from small import stripes

import cct_keras
from cct_keras.errors import RunError
from cct_keras.models.inspection import encoder_blocks
from cct_keras.report.page import write_report
from cct_keras.training.run_folder import RunFolder
from cct_keras.training.train import Run

# Without crops the small model learns the stripes within an epoch.
PLAIN = {"variant": "tiny_1", "batch_size": 16, "crop": "none", "lr": 1e-2}
# Everything that has a state: averaged weights, dropout, mixing, accumulation.
STATEFUL = {
    "variant": "tiny_1",
    "batch_size": 16,
    "ema": 0.9,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "stochastic_depth": 0.1,
    "mixup": 0.5,
    "cutmix": 0.5,
    "erase_prob": 0.3,
}
if keras.config.backend() == "tensorflow":
    STATEFUL["accumulate"] = 2


def train(source, out=None, **fields):
    fields = {"epochs": 3, "verbose": False, **fields}
    return cct_keras.train(source, out=out, **fields)


@pytest.fixture(scope="module")
def undisturbed(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "undisturbed"
    return train(source, out, **STATEFUL), out


# === One run ===


def test_a_run_leaves_its_files(undisturbed):
    run, out = undisturbed
    assert isinstance(run, Run)
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics == json.loads(json.dumps(run.metrics))
    low, high = metrics["test"]["top1_ci95"]
    assert 0 <= low <= metrics["test"]["top1"] <= high <= 1
    assert metrics["seconds"] > 0
    assert metrics["images_per_second"] > 0
    assert metrics["parameters"] == run.model.count_params()
    lines = (out / "history.csv").read_text().splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("epoch,")
    assert "val_accuracy" in lines[0]
    report = (out / "report.html").read_text()
    assert run.data.fingerprint in report
    assert "recipe: mixup" in report
    assert list((out / "tensorboard").rglob("events*"))
    assert len(list((out / "snapshots").iterdir())) == 2
    last = keras.models.load_model(out / "last.keras")
    assert last.count_params() == run.model.count_params()


@pytest.mark.integration
def test_mistakes_are_beside_their_maps_and_files(tmp_path, monkeypatch):
    """So that wrong labels can be found: a few pictures lie in the other folder."""
    from PIL import Image

    pixels, labels = stripes(48)
    for index, (picture, label) in enumerate(zip(pixels, labels, strict=True)):
        wrong = index % 8 == 1
        folder = tmp_path / "data" / ("across", "down")[label ^ wrong]
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{'wrong' if wrong else 'right'}_{index}.png"
        Image.fromarray(picture.astype("uint8")).save(folder / name)
    monkeypatch.setattr("cct_keras.training.results.write_report", write_report)
    out = tmp_path / "run"
    run = train(str(tmp_path / "data"), out, epochs=6, **PLAIN, optimizer="adamw")
    page, report = (
        (out / name).read_text("utf-8") for name in ("mistakes.html", "report.html")
    )
    assert "probably mislabelled" in page
    names = re.findall(r'<p class="name">[^<]*/([^</]+)</p>', page)
    assert len(names) == page.count('class="map"') > 0
    # The most confident mistakes are the pictures that lie in the wrong folder.
    assert names[0].startswith("wrong")
    assert 'href="mistakes.html"' in report
    shown = re.findall(r'<p class="name">[^<]*/([^</]+)</p>', report)
    assert len(shown) == report.count('class="map"')
    assert set(shown) <= {pathlib.Path(file).name for file in run.data.test.files}


def test_the_file_alone_takes_raw_images(undisturbed, source):
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


def test_the_model_measures_itself_as_the_run_did(undisturbed, source):
    run, out = undisturbed
    found = cct_keras.evaluate(out, source)
    assert found["loss"] == pytest.approx(run.metrics["test"]["loss"], rel=1e-3)
    assert found["count"] == run.metrics["test"]["count"] == 40


@pytest.mark.backend
def test_it_learns(source, capsys):
    """And shows each epoch, the best one with a star."""
    run = train(source, **PLAIN, verbose=True)
    assert run.metrics["test"]["top1"] == 1.0
    assert len(run.history) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("stripes: 90 / 10 / 40 images to train, validate, test")
    epochs = [line for line in lines if line.startswith("epoch ")]
    assert len(epochs) == 3
    assert any(line.endswith(" *") for line in epochs)
    assert epochs[-1].split("  ")[-1].startswith("0:00 left")
    assert lines[-1].startswith("test accuracy 100.00% (95 % interval")


@pytest.mark.usefixtures("eagerly")
def test_early_stopping(source):
    frozen = {**PLAIN, "lr": 0, "min_lr": 0, "warmup_lr": 0}
    run = train(source, **frozen, epochs=30, patience=2)
    assert len(run.history) == 3


@pytest.mark.usefixtures("eagerly")
def test_recomputing_changes_neither_the_run_nor_the_model(source):
    whole = train(source, **PLAIN, epochs=1)
    run = train(source, **PLAIN, epochs=1, remat=True)
    assert run.history[0]["loss"] == pytest.approx(whole.history[0]["loss"], rel=1e-4)
    assert [block.remat for block in encoder_blocks(run.model)] == [False]


# === Interrupted ===


@pytest.mark.backend
def test_an_interrupted_run_ends_as_a_whole_one(undisturbed, source, tmp_path, capsys):
    """To the last bit on TensorFlow."""
    whole, _ = undisturbed
    with pytest.raises(KeyboardInterrupt):
        train(source, tmp_path, **STATEFUL, verbose=True, callbacks=[StopAfter(1)])
    assert "the same call goes on after epoch 1" in capsys.readouterr().out
    resumed = train(source, tmp_path, **STATEFUL, verbose=True)
    assert "going on after epoch 1 of 3" in capsys.readouterr().out
    assert_same_run(resumed, whole)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.integration
def test_another_activation(source, tmp_path):
    """It is kept by the files of the run, by going on, and by fine-tuning."""
    fields = {**PLAIN, "activation": "relu", "epochs": 2}
    with pytest.raises(KeyboardInterrupt):
        train(source, tmp_path / "a", **fields, callbacks=[StopAfter(1)])
    with pytest.raises(RunError, match="activation relu -> gelu"):
        train(source, tmp_path / "a", **PLAIN, epochs=2)
    run = train(source, tmp_path / "a", **fields)
    assert len(run.history) == 2
    assert json.loads((tmp_path / "a" / "run.json").read_text())["activation"] == "relu"
    stored = keras.models.load_model(tmp_path / "a" / "model.keras")
    tuned = train(source, tmp_path / "b", weights=tmp_path / "a", epochs=1)
    for model in (run.model, stored, tuned.model):
        assert {block.activation for block in encoder_blocks(model)} == {"relu"}
    result = cct_keras.evaluate(stored, source)
    assert result["top1"] == run.metrics["test"]["top1"]


@pytest.mark.usefixtures("eagerly")
@pytest.mark.integration
def test_a_run_from_before_the_choice_goes_on(source, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(source, tmp_path, **PLAIN, callbacks=[StopAfter(1)])
    settings = json.loads((tmp_path / "run.json").read_text())
    assert settings.pop("activation") == "gelu"
    (tmp_path / "run.json").write_text(json.dumps(settings))
    assert len(train(source, tmp_path, **PLAIN, activation="gelu").history) == 3


def assert_same_run(run, other):
    if keras.config.backend() == "tensorflow":
        assert without_times(run.history) == without_times(other.history)
        assert run.metrics["test"] == other.metrics["test"]
        assert_same_weights(run.model, other.model)
        return
    for a, b in zip(run.history, other.history, strict=True):
        assert a["val_loss"] == pytest.approx(b["val_loss"], rel=1e-4)
    assert run.metrics["test"]["loss"] == pytest.approx(
        other.metrics["test"]["loss"], rel=1e-4
    )


@pytest.mark.usefixtures("eagerly")
def test_a_snapshot_of_another_model(source, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(source, tmp_path, **PLAIN, callbacks=[StopAfter(1)])
    (snapshot,) = (tmp_path / "snapshots").iterdir()
    with np.load(snapshot) as arrays:
        arrays = dict(arrays)
    arrays["model_0"] = arrays["model_0"][..., :1]
    np.savez(snapshot, **arrays)
    with pytest.raises(RunError, match="does not fit the model.*restart=True throws"):
        train(source, tmp_path, **PLAIN)


SCRIPT = """
import json, sys
import cct_keras
cct_keras.train(sys.argv[1], epochs=3, out=sys.argv[2], **json.loads(sys.argv[3]))
"""


@pytest.mark.integration
def test_a_killed_run_ends_as_an_undisturbed_one(source, tmp_path):
    fields = {**STATEFUL, "variant": "cvt_2_4_32"}
    whole = train(source, **fields)
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, source, tmp_path, json.dumps(fields)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    ) as process:
        for line in process.stdout:
            if line.startswith("epoch 2/3"):
                break
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "metrics.json").exists()
    assert_same_run(train(source, tmp_path, **fields), whole)


# === A folder with a run ===


def test_a_complete_run_is_not_trained_again(undisturbed, source, capsys):
    run, out = undisturbed
    stamp = (out / "metrics.json").stat().st_mtime_ns
    again = train(source, out, **STATEFUL, verbose=True)
    assert (out / "metrics.json").stat().st_mtime_ns == stamp
    assert again.metrics["test"] == run.metrics["test"]
    assert again.history == run.history
    for path, value in weights_of(run.model).items():
        np.testing.assert_array_equal(weights_of(again.model)[path], value)
    assert "is complete; restart=True trains anew" in capsys.readouterr().out


def test_other_settings_are_refused(undisturbed, source):
    _, out = undisturbed
    with pytest.raises(
        RunError, match=r"other settings \(.*lr 0.002 -> 0.01.*restart=True"
    ):
        train(source, out, **STATEFUL, lr=0.01)
    assert (out / "model.keras").is_file()


def test_another_image_size_is_another_run(undisturbed, source):
    _, out = undisturbed
    with pytest.raises(RunError, match=r"image_size \[16, 16\] -> \[24, 24\]"):
        train(source, out, **STATEFUL, image_size=24)


def test_two_processes_do_not_share_a_folder(tmp_path, source):
    with RunFolder(tmp_path), pytest.raises(RunError, match="another process trains"):
        train(source, tmp_path, **PLAIN)


@pytest.mark.usefixtures("eagerly")
def test_restart_trains_anew(source, tmp_path):
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RunError, match=r"run\.json cannot be read.*restart=True"):
        train(source, tmp_path, **PLAIN)
    train(source, tmp_path, **PLAIN, epochs=1, restart=True)
    assert json.loads((tmp_path / "metrics.json").read_text())["epochs"] == 1


@pytest.mark.usefixtures("eagerly")
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


@pytest.mark.usefixtures("eagerly")
def test_results_that_cannot_be_written(source, tmp_path, monkeypatch):
    """The run is not complete then, and the same call writes them without training."""

    def full(path, **_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr("cct_keras.training.results.write_report", full)
        with pytest.raises(RunError, match="cannot write the results.*the same call"):
            train(source, tmp_path, **PLAIN, epochs=1)
    assert not (tmp_path / "metrics.json").exists()
    monkeypatch.setattr(keras.Model, "fit", None)
    assert train(source, tmp_path, **PLAIN, epochs=1).metrics["epochs"] == 1


# === What is refused ===


@pytest.mark.usefixtures("eagerly")
def test_nan_stops_with_the_step_and_advice(source):
    advice = r"Try a lower rate \(lr=3.3e\+29\), clip_norm=1 or precision='float32'"
    with pytest.raises(RunError, match=rf"at epoch \d+, step \d+\. {advice}"):
        train(source, **{**PLAIN, "lr": 1e30}, clip_norm=None, warmup_epochs=0)


@pytest.mark.usefixtures("eagerly")
def test_nan_in_the_last_step_of_an_epoch(source, tmp_path):
    with pytest.raises(RunError, match="validation loss is nan after epoch 1"):
        train(
            source,
            tmp_path,
            **{**PLAIN, "batch_size": 90, "lr": 1e30},
            clip_norm=None,
            warmup_epochs=0,
            weight_decay=0,
        )
    assert not RunFolder(tmp_path).has_snapshot()


@pytest.mark.parametrize("seed", [-1, 0.5, None])
def test_what_is_no_seed(source, seed):
    with pytest.raises(ValueError, match="`seed` must be an integer of 0 or more"):
        train(source, seed=seed)


def test_unknown_field(source, tmp_path):
    with pytest.raises(ValueError, match="unknown recipe field 'mixupp'.*mixup"):
        train(source, tmp_path / "run", mixupp=1)
    assert not (tmp_path / "run").exists()


def test_the_run_needs_a_folder_that_can_be_made(source, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot make .*file"):
        train(source, tmp_path / "file" / "run", **PLAIN)


# === The seed of the splits ===


def whole_source():
    """Without a test split, so that one is cut off."""
    return stripes(80)


@pytest.mark.usefixtures("eagerly")
def test_the_seed_does_not_change_which_images_are_tested(tmp_path):
    fields = {**PLAIN, "epochs": 1}
    first, second = (
        train(whole_source(), tmp_path / str(seed), **fields, seed=seed)
        for seed in (0, 1)
    )
    assert first.data.fingerprint == second.data.fingerprint
    assert first.history[0]["loss"] != second.history[0]["loss"]
    other = train(whole_source(), **fields, split_seed=1)
    assert other.data.test_fingerprint != first.data.test_fingerprint
    settings = json.loads((tmp_path / "1" / "run.json").read_text())
    assert (settings["seed"], settings["split_seed"]) == (1, 0)
    report = RunFolder(tmp_path / "1")
    np.testing.assert_array_equal(report.read_predictions(), second.predictions)
    correct = (second.predictions == second.data.test.labels).mean()
    assert correct == second.metrics["test"]["top1"]
    with pytest.raises(RunError, match="split_seed 0 -> 1"):
        train(whole_source(), tmp_path / "1", **fields, seed=1, split_seed=1)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("epochs", [0, 1, 2])
def test_a_run_of_an_earlier_version_keeps_its_splits(tmp_path, epochs):
    """It had one seed for everything, whether it is new, under way or complete."""
    data = cct_keras.load_data(whole_source(), seed=3)
    fields = {**PLAIN, "epochs": 2, "seed": 3}
    stop = [StopAfter(1)]
    with pytest.raises(KeyboardInterrupt):
        train(whole_source(), tmp_path, **fields, split_seed=3, callbacks=stop)
    if epochs == 2:
        train(whole_source(), tmp_path, **fields, split_seed=3)
    if epochs == 0:
        for path in (tmp_path / "snapshots").iterdir():
            path.unlink()
    settings = json.loads((tmp_path / "run.json").read_text())
    del settings["split_seed"]
    (tmp_path / "run.json").write_text(json.dumps(settings))
    run = train(whole_source(), tmp_path, **fields)
    assert run.data.fingerprint == data.fingerprint
    measured = cct_keras.evaluate(tmp_path, whole_source())
    assert measured["top1"] == run.metrics["test"]["top1"]
    assert measured["count"] == len(data.test)
    anew = train(whole_source(), tmp_path, **fields, restart=True)
    assert anew.data.fingerprint == cct_keras.load_data(whole_source()).fingerprint


@pytest.mark.parametrize("seed", [-1, 0.5, None])
def test_bad_split_seeds(seed, source):
    with pytest.raises(ValueError, match="`split_seed` must be an integer"):
        train(source, split_seed=seed)
