"""`compare`: finished runs of any origin, of which only their files are read."""

import html.parser
import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats

import cct_keras
from cct_keras.errors import RunError
from cct_keras.recipes.recipe import Recipe
from cct_keras.recipes.run_settings import recipe_settings
from cct_keras.studies.texts import text_lines

IMAGES = 200


def write_run(folder, top1=0.8, seed=0, *, older=False, images="a", **settings):
    """The files that `train` leaves, with a share of the test images right."""
    fields = {
        k: settings.pop(k) for k in [*settings] if k in ("lr", "augment", "epochs")
    }
    folder.mkdir(parents=True)
    generator = np.random.default_rng([seed, round(1e6 * top1)])
    correct = np.arange(IMAGES) < round(top1 * IMAGES)
    generator.shuffle(correct[: IMAGES // 2])
    recorded = {
        **recipe_settings(Recipe(**fields)),
        "data": "photos",
        "fingerprint": f"all-{images}",
        "seed": seed,
        "split_seed": 0,
        "activation": "gelu",
        **settings,
    }
    metrics = {
        "test": {"top1": float(correct.mean()), "count": IMAGES},
        "validation": {"top1": top1, "loss": 1.0, "epoch": 2},
        "seconds": 60.0,
        "fingerprint": recorded["fingerprint"],
        "test_fingerprint": f"test-{images}",
    }
    if older:
        del recorded["split_seed"], recorded["activation"]
        del metrics["test_fingerprint"]
    else:
        labels = np.zeros(IMAGES, int)
        np.savez(
            folder / "predictions.npz",
            labels=labels,
            predictions=(~correct).astype(int),
        )
    (folder / "run.json").write_text(json.dumps(recorded))
    (folder / "metrics.json").write_text(json.dumps(metrics))
    rows = [f"{epoch},{1 / epoch},{top1 - 0.1 / epoch}" for epoch in (1, 2, 3)]
    (folder / "history.csv").write_text("\n".join(["epoch,loss,val_accuracy", *rows]))
    return folder


def test_runs_that_differ_in_the_seed_alone_are_a_group(tmp_path):
    low, high = (0.7, 0.72, 0.75), (0.8, 0.81, 0.86)
    for seed in range(3):
        write_run(tmp_path / f"low-{seed}", low[seed], seed, lr=1e-3)
        write_run(tmp_path / f"high-{seed}", high[seed], seed, lr=2e-3)
    names = [f"{name}-{seed}" for name in ("low", "high") for seed in range(3)]
    found = cct_keras.compare([tmp_path / name for name in names])
    first, second = found.table
    assert (first["name"], second["name"]) == ("lr=0.001", "lr=0.002")
    assert (first["runs"], second["pairs"]) == (3, 3)
    assert second["mean"] == pytest.approx(np.mean(high))
    np.testing.assert_allclose(
        second["ci95"],
        scipy.stats.t.interval(0.95, 2, np.mean(high), scipy.stats.sem(high)),
    )
    expected = scipy.stats.ttest_rel(high, low).confidence_interval(0.95)
    np.testing.assert_allclose(second["difference_ci95"], expected)
    assert second["images_p"] < 0.05
    assert found.settings == {"lr": ["0.001", "0.002"]}
    assert found.notes == ("what differs: lr 0.001 / 0.002",)
    assert found.warnings == ()


def test_one_run_against_one_is_mcnemars_test(tmp_path):
    runs = [
        write_run(tmp_path / "a", 0.7, seed=1),
        write_run(tmp_path / "b", 0.8, seed=1, augment="auto"),
    ]
    found = cct_keras.compare(runs)
    a, b = (run.correct for run in found.runs)
    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    expected = scipy.stats.binomtest(only_a, only_a + only_b).pvalue
    row = found.table[1]
    assert row["images_p"] == pytest.approx(expected)
    assert (row["std"], row["ci95"], row["difference_ci95"]) == (None, None, None)
    assert row["difference"] == pytest.approx(0.1)


def test_other_seeds_are_no_pairs(tmp_path):
    runs = [
        write_run(tmp_path / "a", 0.7, seed=1),
        write_run(tmp_path / "b", 0.8, seed=2, augment="auto"),
    ]
    row = cct_keras.compare(runs).table[1]
    assert (row["pairs"], row["difference"], row["images_p"]) == (0, None, None)


@pytest.mark.parametrize(
    ("other", "warning"),
    [
        ({"images": "b", "split_seed": 1}, "same test images (split seeds 0, 1)"),
        ({"images": "b"}, "not all of these runs were measured on the same test"),
        ({"data": "flowers"}, "trained on different data: flowers, photos"),
    ],
)
def test_runs_that_cannot_be_compared_warn_in_one_line(tmp_path, other, warning):
    runs = [
        write_run(tmp_path / "a"),
        write_run(tmp_path / "b", 0.9, lr=0.1, **other),
    ]
    found = cct_keras.compare(runs)
    (line,) = found.warnings
    assert warning in line
    assert str(found).splitlines()[-1] == f"warning: {line}"
    if "images" in other:
        assert found.table[1]["difference"] is None


def test_more_images_to_train_on_and_the_same_test_images(tmp_path):
    """The data differ, and the comparison stands."""
    runs = [
        write_run(tmp_path / "few", 0.7, fingerprint="x"),
        write_run(tmp_path / "many", 0.8, fingerprint="y"),
    ]
    found = cct_keras.compare(runs)
    assert found.warnings == ()
    assert found.settings == {"data": ["photos (x)", "photos (y)"]}
    assert found.table[1]["difference"] == pytest.approx(0.1)


def test_runs_of_earlier_versions(tmp_path):
    """They had one seed for everything, and kept no predictions."""
    for seed in range(2):
        images = f"split-{seed}"
        write_run(tmp_path / f"a-{seed}", 0.7, seed, older=True, images=images)
        write_run(tmp_path / f"b-{seed}", 0.8, seed, older=True, images=images, lr=0.1)
    found = cct_keras.compare(tmp_path)
    assert [row["runs"] for row in found.table] == [2, 2]
    assert found.table[1]["pairs"] == 2
    assert found.table[1]["images_p"] is None
    assert "split seeds 0, 1" in found.warnings[0]
    # Activations came later; all had GELU.
    write_run(tmp_path / "c", 0.9, seed=2, lr=0.1, images="split-0")
    assert list(cct_keras.compare(tmp_path).settings) == ["lr"]


def test_folds_are_a_group_without_a_warning(tmp_path):
    for fold in (1, 2):
        of_fold = {"fold": fold, "folds": 2, "images": str(fold)}
        write_run(tmp_path / f"a-{fold}", 0.7, **of_fold)
        write_run(tmp_path / f"b-{fold}", 0.8, lr=0.1, **of_fold)
    found = cct_keras.compare(tmp_path)
    assert [row["runs"] for row in found.table] == [2, 2]
    assert found.table[1]["pairs"] == 2
    assert found.warnings == ()


def test_folders_of_folders_and_what_holds_no_run(tmp_path):
    study = tmp_path / "study"
    for seed in (10, 9):
        write_run(study / "lr=0.1" / f"seed={seed}", seed=seed, lr=0.1)
    (study / "study.json").write_text("{}")
    write_run(tmp_path / "alone")
    # Of students, one of which is under way.
    write_run(study / "lr=0.1" / "seed=9" / "teacher")
    write_run(study / "lr=0.1" / "seed=8" / "teacher")
    (study / "lr=0.1" / "seed=8" / "run.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    names = ("alone", "study", "study/lr=0.1/seed=9", "empty", "notes.txt")
    found = cct_keras.compare([tmp_path / name for name in names])
    assert [run.settings["seed"] for run in found.runs] == [0, 9, 10]
    assert "left out" in found.notes[0]
    assert found.notes[0].count(str(tmp_path)) == 2


def test_many_differing_settings_are_a_table(tmp_path):
    runs = [
        write_run(tmp_path / "runs" / "a-0", lr=0.1, seed=0),
        write_run(tmp_path / "runs" / "a-1", lr=0.1, seed=1),
        write_run(
            tmp_path / "runs" / "b", lr=0.2, epochs=9, augment="auto", variant="cvt"
        ),
    ]
    found = cct_keras.compare(runs)
    assert [name.rsplit("/")[-1] for name in found.groups] == ["a-*", "b"]
    assert found.settings["lr"] == ["0.1", "0.2"]
    assert set(found.settings) == {"lr", "epochs", "augment", "variant"}


@pytest.mark.parametrize("damage", ["[]", "{", '{"test": {}}'])
def test_refusals(tmp_path, damage):
    with pytest.raises(RunError, match="no such run: .*gone"):
        cct_keras.compare(tmp_path / "gone")
    with pytest.raises(RunError, match="there is no finished run in"):
        cct_keras.compare(tmp_path)
    with pytest.raises(RunError, match="one run or more"):
        cct_keras.compare([])
    (write_run(tmp_path / "a") / "metrics.json").write_text(damage)
    with pytest.raises(RunError, match="read") as caught:
        cct_keras.compare(tmp_path / "a")
    assert len(str(caught.value).splitlines()) == 1


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.addresses = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.addresses += [v for k, v in attributes if k in ("href", "src")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page(tmp_path):
    hostile = "<script>$x"
    runs = [
        write_run(tmp_path / hostile / "a", 0.7),
        write_run(tmp_path / hostile / "b", 0.8, lr=0.1, data=hostile),
    ]
    (runs[0] / "report.html").write_text("report")
    found = cct_keras.compare(runs)
    path = found.save(tmp_path / "compared")
    page = Page(path.read_text("utf-8"))
    assert page.open == []
    assert "<script>" not in path.read_text("utf-8")
    links = [x for x in page.addresses if not x.startswith("data:")]
    assert links == ["../%3Cscript%3E%24x/a/report.html"]
    assert len(page.addresses) - len(links) == len(found.plot())
    stored = json.loads((tmp_path / "compared" / "comparison.json").read_text())
    assert stored["table"] == json.loads(json.dumps(found.table))
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write to"):
        found.save(tmp_path / "file")


def test_reading_runs_needs_no_keras(tmp_path):
    write_run(tmp_path / "a")
    code = (
        "import sys, cct_keras\n"
        "cct_keras.compare(sys.argv[1]).save(sys.argv[2])\n"
        "print([x for x in ('keras', 'tensorflow') if x in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, tmp_path, tmp_path / "out"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "[]"


def test_columns_are_aligned(tmp_path):
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", 0.9, lr=0.1)]
    lines = text_lines(cct_keras.compare(runs).table)
    assert lines[0].split()[:3] == ["runs", "validation", "test"]
    assert len({len(line) for line in lines}) == 1
    assert lines[2].split()[-4:] == ["-", "+10.00", "-", "<0.001"]
