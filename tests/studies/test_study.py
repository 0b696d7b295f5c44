"""`study`: the same images for all seeds, every image once over the folds, resuming."""

import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
from runs import StopAfter
from runs import noise_images
from runs import without_times

import cct_keras
from cct_keras.errors import DataError
from cct_keras.errors import RecipeError
from cct_keras.errors import RunError

PLAIN = {"variant": "tiny_1", "batch_size": 16, "crop": "none", "epochs": 1}
RATES = {"lr": [2e-3, 1e-2]}


def study(source, out=None, **settings):
    return cct_keras.study(source, out=out, verbose=False, **{**PLAIN, **settings})


def settings_of(folder):
    return json.loads((folder / "run.json").read_text())


def stamps(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("metrics.json")}


@pytest.fixture(scope="module")
def finished(whole, tmp_path_factory):
    """Two rates with two seeds each."""
    out = tmp_path_factory.mktemp("studies") / "rates"
    return study(whole, out, seeds=2, tries=RATES), out


@pytest.fixture(scope="module")
def longer(whole, tmp_path_factory):
    """The same with two epochs, for what goes on after one."""
    out = tmp_path_factory.mktemp("studies") / "longer"
    return study(whole, out, seeds=2, tries=RATES, epochs=2)


# === What it leaves ===


def test_every_run_has_a_folder_and_every_seed_the_same_test_images(finished):
    found, out = finished
    names = [f"lr={lr}/seed={seed}" for lr in ("0.002", "0.01") for seed in (0, 1)]
    assert [run.name for run in found.runs] == names
    assert [run.folder for run in found.runs] == [out / name for name in names]
    assert {settings_of(out / name)["fingerprint"] for name in names} == {
        found.runs[0].metrics["fingerprint"]
    }
    assert [settings_of(out / name)["seed"] for name in names] == [0, 1, 0, 1]
    assert [settings_of(out / name)["lr"] for name in names] == [2e-3] * 2 + [1e-2] * 2


@pytest.mark.integration
def test_a_run_of_a_study_is_what_train_makes(finished, whole, tmp_path):
    found, _ = finished
    alone = cct_keras.train(
        whole, out=tmp_path, verbose=False, **PLAIN, lr=1e-2, seed=1
    )
    run = found.runs[3]
    assert without_times(alone.history) == without_times(run.history)
    assert alone.metrics["test"] == run.metrics["test"]
    assert settings_of(tmp_path) == run.settings
    np.testing.assert_array_equal(
        run.correct, alone.predictions == alone.data.test.labels
    )


def test_the_table_is_what_scipy_says(finished):
    found, _ = finished
    first, second = ([run.top1 for run in runs] for runs in found.groups.values())
    rows = found.table
    assert [row["name"] for row in rows] == ["lr=0.002", "lr=0.01"]
    for row, values in zip(rows, (first, second), strict=True):
        assert row["mean"] == pytest.approx(np.mean(values))
        assert row["std"] == pytest.approx(statistics.stdev(values))
        # SciPy warns of values that are all the same.
        if np.ptp(values):
            interval = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.95)
            np.testing.assert_allclose(row["ci95"], interval)
    assert rows[0]["difference"] is None
    assert rows[1]["pairs"] == 2
    assert rows[1]["difference"] == pytest.approx(np.mean(second) - np.mean(first))
    if np.ptp(np.subtract(second, first)):
        expected = scipy.stats.ttest_rel(second, first).confidence_interval()
        np.testing.assert_allclose(rows[1]["difference_ci95"], expected)
    assert json.loads(json.dumps(rows)) == json.loads(json.dumps(found.table))


def test_the_files_hold_the_table_and_the_curves(finished):
    found, out = finished
    stored = json.loads((out / "study.json").read_text())
    assert stored["table"] == json.loads(json.dumps(found.table))
    assert stored["settings"] == {"lr": ["0.002", "0.01"]}
    page = (out / "study.html").read_text("utf-8")
    assert page.count("<img") == 5
    # The reports of the runs, by addresses that a browser understands.
    assert 'href="lr%3D0.002/seed%3D0/report.html"' in page
    text = str(found)
    assert text.splitlines()[1].startswith("lr=0.002     2")
    assert "note: choose by the validation accuracy" in text
    assert set(found.plot()) == {
        *("accuracy", "differences"),
        *("validation accuracy", "validation loss", "training loss"),
    }


# === Going on ===


def test_finished_runs_are_not_trained_again(finished, whole, capsys):
    found, out = finished
    before = stamps(out)
    again = cct_keras.study(whole, out=out, seeds=2, tries=RATES, **PLAIN)
    assert again.table == found.table
    assert stamps(out) == before
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 runs: 2 settings with 2 seeds each"
    assert [line for line in lines if "is complete" in line] == lines[1:5]
    assert lines[6].startswith("lr=0.002     2")
    assert lines[-1] == f"page: {out / 'study.html'}"


@pytest.mark.integration
def test_seeds_may_be_added(finished, whole, tmp_path, capsys):
    found, _ = finished
    out = tmp_path / "copy"
    shutil.copytree(finished[1], out)
    before = stamps(out)
    more = cct_keras.study(whole, out=out, seeds=3, tries=RATES, **PLAIN)
    after = stamps(out)
    assert {path: after[path] for path in before} == before
    assert len(after) == 6
    assert [run.top1 for run in more.runs][:2] == [run.top1 for run in found.runs[:2]]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "6 runs: 2 settings with 3 seeds each"
    assert sum("is complete" in line for line in lines) == 4
    # What is the same for all runs is said once.
    assert sum(line.startswith("stripes: ") for line in lines) == 1
    assert any(line.startswith("lr=0.01      3") for line in lines)
    assert lines[-1] == f"page: {out / 'study.html'}"


def test_other_settings_are_refused_before_anything_is_trained(finished, whole):
    _, out = finished
    before = stamps(out)
    message = "holds a run with other settings .*epochs 1 -> 3.*restart=True"
    with pytest.raises(RunError, match=message):
        study(whole, out, epochs=3, tries={"lr": [5e-3, 2e-3]}, seeds=2)
    with pytest.raises(RunError, match="split_seed 0 -> 1"):
        study(whole, out, tries=RATES, seeds=2, split_seed=1)
    assert stamps(out) == before
    assert not (out / "lr=0.005").exists()


@pytest.mark.integration
def test_an_interrupted_study_ends_as_a_whole_one(longer, whole, tmp_path):
    found = longer
    settings = {"seeds": 2, "tries": RATES, "epochs": 2}
    with pytest.raises(KeyboardInterrupt):
        study(whole, tmp_path, **settings, callbacks=[StopAfter(1)])
    assert not stamps(tmp_path)
    resumed = study(whole, tmp_path, **settings)
    assert resumed.table == [
        {**row, "seconds": mine["seconds"]}
        for row, mine in zip(found.table, resumed.table, strict=True)
    ]


@pytest.mark.integration
def test_restart_throws_the_runs_away(whole, tmp_path):
    study(whole, tmp_path, seeds=1, epochs=2)
    (tmp_path / "notes.txt").write_text("mine")
    found = study(whole, tmp_path, seeds=1, epochs=1, restart=True)
    assert len(found.runs[0].history) == 1
    assert (tmp_path / "notes.txt").exists()
    with pytest.raises(RunError, match="from which this run starts"):
        study(whole, tmp_path, seeds=1, weights=tmp_path / "seed=0", restart=True)


SCRIPT = """
import json, sys
sys.path[:0] = json.loads(sys.argv[3])
import cct_keras
from runs import eager, tiny_variants
with tiny_variants(), eager():
    settings = json.loads(sys.argv[4])
    cct_keras.study(sys.argv[1], out=sys.argv[2], **settings)
"""


@pytest.mark.integration
@pytest.mark.parametrize("line", ["epoch 1/2", "run 4 of 4"])
def test_a_killed_study_ends_as_an_undisturbed_one(longer, whole, tmp_path, line):
    found = longer
    settings = {**PLAIN, "seeds": 2, "tries": RATES, "epochs": 2}
    with subprocess.Popen(
        [
            *(sys.executable, "-c", SCRIPT, whole, tmp_path),
            *(json.dumps(sys.path), json.dumps(settings)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    ) as process:
        for text in process.stdout:
            if text.startswith(line):
                break
        process.send_signal(signal.SIGKILL)
    before = stamps(tmp_path)
    assert len(before) == {"epoch 1/2": 0, "run 4 of 4": 3}[line]
    resumed = study(whole, tmp_path, **settings)
    assert {path: stamps(tmp_path)[path] for path in before} == before
    for run, undisturbed in zip(resumed.runs, found.runs, strict=True):
        assert without_times(run.history) == without_times(undisturbed.history)
        assert run.metrics["test"] == undisturbed.metrics["test"]


# === Folds ===


@pytest.fixture(scope="module")
def folds(whole, tmp_path_factory):
    out = tmp_path_factory.mktemp("studies") / "folds"
    return study(whole, out, folds=2, split_seed=4), out


def test_every_image_is_tested_once(folds, whole):
    found, _ = folds
    assert [run.name for run in found.runs] == ["fold=1", "fold=2"]
    assert [run.metrics["test"]["count"] for run in found.runs] == [30, 30]
    assert len({run.metrics["test_fingerprint"] for run in found.runs}) == 2
    for run in found.runs:
        assert (run.settings["folds"], run.settings["split_seed"]) == (2, 4)
        # The model remembers its fold, and is measured on its images.
        measured = cct_keras.evaluate(run.folder, whole)
        assert measured["confusion"] == run.metrics["test"]["confusion"]
    accuracies = [run.top1 for run in found.runs]
    (row,) = found.table
    assert row["mean"] == pytest.approx(np.mean(accuracies))
    assert "exactly one of the 2 folds" in str(found)


def test_a_model_of_a_fold_is_published_with_its_command(folds):
    from cct_keras.publishing.retraining import training_command

    command = " ".join(training_command(folds[0].runs[0].settings))
    assert command.startswith("cct-keras study stripes --folds 2 --variant tiny_1")
    assert command.endswith("--seed 0 --split-seed 4")


def test_other_folds_are_refused(folds, whole):
    with pytest.raises(RunError, match="folds 2 -> 3"):
        study(whole, folds[1], folds=3, split_seed=4)


def test_folds_of_what_cannot_be_divided(whole, tmp_path):
    with pytest.raises(DataError, match=r"smallest class, 30 of '0'.*folds=31"):
        study(whole, tmp_path / "a", folds=31)
    with pytest.raises(DataError, match="`folds` are cut from all images"):
        study(cct_keras.load_data(whole), folds=3)
    assert not list((tmp_path / "a").rglob("run.json"))


@pytest.mark.integration
def test_folds_leave_a_test_split_of_the_source_out(tmp_path):
    x, y = noise_images(36)
    source = ((x[:24], y[:24]), (x[24:], y[24:]))
    found = study(source, tmp_path, folds=2, epochs=1)
    assert [run.metrics["test"]["count"] for run in found.runs] == [12, 12]
    assert "has a test split of its own: its 12 images are left out" in str(found)


# === Data ===


@pytest.mark.integration
def test_the_data_are_loaded_once(whole, monkeypatch):
    from cct_keras.studies import study as module

    loaded = []

    def count(source, **settings):
        loaded.append(settings["image_size"])
        return cct_keras.load_data(source, **settings)

    monkeypatch.setattr(module, "load_data", count)
    tries = {"image_size": [16, 20], "lr": [2e-3, 1e-2]}
    found = study(whole, seeds=1, epochs=1, tries=tries)
    assert loaded == [16, 20]
    assert found.table[2]["pairs"] == 1


@pytest.mark.integration
def test_without_a_folder(finished, whole):
    """The same numbers, and nothing is written."""
    found, _ = finished
    data = cct_keras.load_data(whole)
    here = sorted(pathlib.Path().iterdir())
    kept = study(data, seeds=2, tries=RATES)
    assert sorted(pathlib.Path().iterdir()) == here
    for row, expected in zip(kept.table, found.table, strict=True):
        assert {**row, "seconds": 0} == {**expected, "seconds": 0}


# === What goes wrong ===


@pytest.mark.integration
def test_a_run_that_diverges_does_not_end_the_study(whole, tmp_path):
    tries = {"lr": [1e-2, 1e30]}
    settings = {"clip_norm": None, "warmup_epochs": 0, "weight_decay": 0}
    found = study(whole, tmp_path, seeds=1, epochs=1, tries=tries, **settings)
    assert [row["runs"] for row in found.table] == [1, 0]
    assert [row["failed"] for row in found.table] == [0, 1]
    assert found.table[1]["mean"] is None
    assert "lr=1e+30/seed=0 has no result: the" in str(found)
    assert "1 failed" not in str(found).splitlines()[1]
    assert "0, 1 failed" in str(found).splitlines()[2]
    assert (tmp_path / "study.html").is_file()


def test_impossible_settings_are_refused_before_any_training(whole, tmp_path):
    for tries, message in (
        ({"freeze": [0, 9]}, "`freeze` must be at most the 1 blocks"),
        ({"variant": ["tiny_1", "tiny_3"]}, "unknown variant 'tiny_3'"),
        ({"recipe": ["small", "smal"]}, "unknown recipe 'smal'"),
    ):
        fixed = {k: v for k, v in PLAIN.items() if k not in tries}
        with pytest.raises(RecipeError, match=message):
            cct_keras.study(whole, out=tmp_path / "s", tries=tries, **fixed)
        assert not list((tmp_path / "s").rglob("run.json"))
    with pytest.raises(RecipeError, match="`split_seed` must be an integer of 0"):
        study(whole, split_seed=-1)


def test_the_folder_of_a_single_run(whole, tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(RunError, match="holds a single run: choose another folder"):
        study(whole, tmp_path)
