"""A teacher that is trained for the run: one call, one folder, one report."""

import json
import shutil

import keras
import numpy as np
import pytest
from runs import StopAfter
from runs import eager
from runs import noise_images
from small import stripes
from taught_runs import TAUGHT
from taught_runs import assert_same_run
from taught_runs import train

import cct_keras
from cct_keras.cli.main import main
from cct_keras.errors import RunError
from cct_keras.training.load import load_job
from cct_keras.training.run_folder import RunFolder
from cct_keras.training.teacher import choose_precision
from cct_keras.training.teacher import with_trained_teacher


@pytest.fixture(scope="module", autouse=True)
def narrow():
    """A convnet that builds and trains in a second."""
    with eager(), pytest.MonkeyPatch.context() as context:
        context.setattr("cct_keras.distillation.convnet.WIDTHS", (4, 6))
        yield


@pytest.fixture(scope="module")
def finished(source, tmp_path_factory):
    """A run, its folder and what it has shown."""
    out, lines = tmp_path_factory.mktemp("run"), []
    with pytest.MonkeyPatch.context() as context:
        context.setattr(
            "cct_keras.training.results.write_report",
            lambda path, **arguments: path.write_text(repr(arguments["lesson"][1])),
        )
        run = train(source, out, verbose=True, log=lines.append)
    return run, out, lines


@pytest.mark.backend
def test_one_call_trains_both(finished, source):
    run, out, lines = finished
    metrics = json.loads((out / "metrics.json").read_text())
    taught = metrics["teacher"]
    assert taught == run.metrics["teacher"]
    assert (taught["epochs"], metrics["epochs"]) == (2, 2)
    assert taught["seconds"] > 0
    # The file answers as it was measured.
    for split in ("test", "validation"):
        found = cct_keras.evaluate(out / "teacher.keras", source, split=split)
        assert found["top1"] == taught[split]["top1"]
        assert found["loss"] == pytest.approx(taught[split]["loss"], rel=1e-4)
    stored = keras.models.load_model(out / "teacher.keras")
    assert taught["parameters"] == stored.count_params()
    assert run.model.count_params() == metrics["parameters"] != stored.count_params()
    text = "\n".join(lines)
    assert "teacher: a convnet of" in text
    assert f"teacher: test accuracy {taught['test']['top1']:.2%}" in text
    assert "soft distillation from convnet" in text
    # The curve of the teacher is in the report.
    history = RunFolder(out / "teacher").read_history()
    assert len(history) == 2
    assert f"{history[-1]['val_loss']}" in (out / "report.html").read_text()


@pytest.mark.integration
def test_the_student_learns_from_it(finished, source):
    run, out, _ = finished
    soft = {"distill": "soft", "distill_tau": 3.0, "distill_weight": 0.9}
    again = train(source, teacher=out / "teacher.keras", teacher_epochs=None, **soft)
    alone = train(source, teacher=None, teacher_epochs=None)
    losses = [[row["val_loss"] for row in x.history] for x in (run, again, alone)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[0] != pytest.approx(losses[2], rel=1e-3)


@pytest.fixture(scope="module")
def interrupted(source, tmp_path_factory):
    """The folder of a run that was interrupted while the student trained."""
    out = tmp_path_factory.mktemp("interrupted")
    with pytest.raises(KeyboardInterrupt):
        train(source, out, callbacks=[StopAfter(1)])
    return out


def test_a_finished_teacher_is_not_trained_again(
    finished, interrupted, source, tmp_path
):
    run, _, _ = finished
    out = shutil.copytree(interrupted, tmp_path / "run")
    stamp = (out / "teacher.keras").stat().st_mtime_ns
    lines = []
    again = train(source, out, verbose=True, log=lines.append)
    assert (out / "teacher.keras").stat().st_mtime_ns == stamp
    assert any("teacher: trained before, test accuracy" in line for line in lines)
    assert_same_run(again, run)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"teacher_epochs": 1}, "teacher_epochs 2 -> 1"),
        ({"teacher": None, "teacher_epochs": None}, "teacher convnet -> None"),
    ],
)
def test_another_teacher_is_another_run(finished, source, fields, words):
    _, out, _ = finished
    with pytest.raises(RunError, match=f"other settings.*{words}"):
        train(source, out, **fields)
    assert (out / "teacher.keras").is_file()


def test_a_teacher_of_other_settings_is_refused(interrupted, source, tmp_path):
    """Such as one that another version of the package has begun."""
    out = shutil.copytree(interrupted, tmp_path / "run")
    path = out / "teacher" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "lr": 3.0}))
    with pytest.raises(RunError, match="teacher holds a run with other.*lr 3.0 -> 0.0"):
        train(source, out)


@pytest.mark.integration
def test_restart_throws_the_teacher_away(interrupted, source, tmp_path):
    out = shutil.copytree(interrupted, tmp_path / "run")
    (out / "teacher.keras").write_text("something else")
    run = train(source, out, teacher_epochs=1, epochs=1, restart=True)
    assert run.metrics["teacher"]["epochs"] == 1
    assert keras.models.load_model(out / "teacher.keras").count_params()


@pytest.mark.integration
@pytest.mark.backend
def test_color_images_in_half_precision():
    """From both sides, and without a folder."""
    data = cct_keras.load_data(noise_images(60))
    fields = {"precision": "mixed_bfloat16", "distill": "soft", "teacher_views": 1}
    run = train(data, epochs=1, teacher_epochs=1, **fields)
    assert 0 <= run.metrics["teacher"]["test"]["top1"] <= 1


@pytest.mark.integration
def test_the_command(tmp_path, capsys):
    images, labels = stripes(80)
    np.savez(tmp_path / "stripes.npz", x_train=images, y_train=labels)
    out = tmp_path / "run"
    words = ["train", tmp_path / "stripes.npz", "--out", out]
    for name, value in {**TAUGHT, "epochs": 1, "teacher_epochs": 1}.items():
        words += [f"--{name.replace('_', '-')}", value]
    assert main([str(word) for word in words]) == 0
    assert "teacher: test accuracy" in capsys.readouterr().out
    assert json.loads((out / "run.json").read_text())["teacher"] == "convnet"


# === Time ===


@pytest.mark.integration
def test_a_number_of_seconds_decides_the_epochs_once(source, tmp_path):
    """More time than is needed changes nothing, and a run keeps what it began with."""
    job = load_job(source, cct_keras.Recipe(teacher="convnet", variant="tiny_1"))
    with RunFolder(tmp_path) as folder:
        taught = with_trained_teacher(job, folder, seconds=0.001)
        assert taught.lesson[0]["epochs"] == 1
        again = with_trained_teacher(job, folder, seconds=1000.0)
    assert again.lesson == taught.lesson
    assert again.teacher.name == taught.teacher.name


@pytest.mark.integration
def test_epochs_count_more_than_seconds(source):
    recipe = cct_keras.Recipe(teacher="convnet", teacher_epochs=2, variant="tiny_1")
    job = with_trained_teacher(load_job(source, recipe), None, seconds=0.001)
    assert job.lesson[0]["epochs"] == 2


@pytest.mark.parametrize(
    ("words", "precision"),
    [("fpu avx512_bf16 sse", "mixed_bfloat16"), ("fpu sse", "float32")],
)
def test_bfloat16_where_the_processor_has_it(words, precision, monkeypatch):
    monkeypatch.setattr("pathlib.Path.read_text", lambda path: f"flags: {words}")
    monkeypatch.setattr("keras.config.backend", lambda: "tensorflow")
    assert choose_precision("mixed") == precision
    # What the student is told to be holds for its teacher, too.
    assert choose_precision("float32") == "float32"
