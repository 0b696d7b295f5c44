"""The report: balanced, escaped, complete, and without anything outside."""

import base64
import html.parser
import sys
import xml.etree.ElementTree
from importlib import resources

import numpy as np
import pytest

from cct_keras.explaining.explanation import Explanation
from cct_keras.explaining.pictures import Picture
from cct_keras.inference.evaluate import Mistake
from cct_keras.inference.metrics import classification_metrics
from cct_keras.report.mistakes_page import write_mistakes
from cct_keras.report.page import write_report

HOSTILE = "<script>alert('x')</script>$\\frac{\" onload=\"y"
NAMES = ["cat", HOSTILE, "never seen"]
VOID = {"meta", "img"}
OUTSIDE = {"href", "srcset", "onload", "onerror"}
HISTORY = [
    {"epoch": 1, "loss": 2.0, "accuracy": 0.3, "val_loss": 1.9, "val_accuracy": 0.4},
    {"epoch": 2, "loss": float("nan"), "val_accuracy": 0.5, "learning_rate": 1e-3},
    {"epoch": 3, "loss": 1.0, "val_accuracy": None, "learning_rate": 0.0},
]


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.texts = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self):
        return "".join(self.texts)

    def images(self):
        for tag, attributes in self.tags:
            if tag == "img":
                head, data = attributes["src"].split(",")
                yield attributes["alt"], head, base64.b64decode(data, validate=True)


def measured(right=False):
    labels = np.array([0, 0, 1, 1])
    first = np.array([0.9, 0.2, 0.1, 0.3])
    if right:
        first = np.array([0.9, 0.8, 0.1, 0.3])
    probabilities = np.stack([first, 1 - first, np.zeros(4)], axis=1)
    return classification_metrics(labels, probabilities, NAMES)


PICTURE = np.random.default_rng(0).integers(0, 256, (28, 28, 1), "uint8")
MISTAKES = [Mistake(PICTURE, f"photos/{HOSTILE}.png", "test", "cat", HOSTILE, 0.8)]


def explanation(mistakes):
    pictures = [Picture("image 0", m.image, (28, 28), (0, 0, 28, 28)) for m in mistakes]
    return Explanation(
        method="gradient_rollout",
        meaning="relevance",
        signed=False,
        token_maps=np.linspace(0, 0.25, 16).reshape(1, 4, 4),
        probabilities=np.array([[0.2, 0.8, 0.0]]),
        targets=np.array([1]),
        class_names=tuple(NAMES),
        pictures=tuple(pictures),
    )


def written(path, **changes):
    arguments = {
        "title": "CCT & <b>friends</b>",
        "metrics": {
            "test": measured(),
            "validation": measured(right=True),
            "seconds": 3725.0,
            "images_per_second": 1234.5,
            "parameters": 3_760_000,
            "macs": 1_190_000_000,
        },
        "history": HISTORY,
        "class_names": NAMES,
        "mistakes": MISTAKES,
        "explanation": explanation(MISTAKES),
        "facts": {"command": "cct-keras train --note '<i>'", "keras": "3.13"},
        "notes": ["See https://example.org", "</ul><script src=x></script>"],
    }
    write_report(path, **{**arguments, **changes})
    return Page(path.read_text("utf-8"))


@pytest.fixture(scope="module", autouse=True)
def coarse_figures():
    """Fewer pixels take less time."""
    with pytest.MonkeyPatch.context() as context:
        context.setattr("cct_keras.drawing.html.DOTS_PER_INCH", 40)
        yield


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return written(tmp_path_factory.mktemp("report") / "report.html")


def test_markup_is_balanced(page):
    assert page.open == []


def mistake_images():
    """What a card shows to those who do not see it: the picture, its map, a legend."""
    name = MISTAKES[0].name
    return [name, "", f"map of {name}", ""]


def test_figures_are_inside(page):
    images = list(page.images())
    assert [name for name, *_ in images] == [
        "Learning curves",
        "Confusion matrix",
        "Accuracy by class",
        "Accuracy by confidence",
        *mistake_images(),
    ]
    for _, head, data in images:
        if head == "data:image/svg+xml;base64":
            assert xml.etree.ElementTree.fromstring(data).tag.endswith("svg")
        else:
            assert head == "data:image/png;base64"
            assert data.startswith(b"\x89PNG")


def test_refers_to_nothing_outside(page):
    assert not {"script", "link", "iframe", "object"} & {t for t, _ in page.tags}
    links = [attributes for tag, attributes in page.tags if tag == "a"]
    assert links == [{"href": "mistakes.html"}]
    for tag, attributes in page.tags:
        assert tag == "a" or not OUTSIDE & set(attributes)
        assert attributes.get("src", "data:").startswith("data:")
        assert "url(" not in attributes.get("style", "")
    template = resources.files("cct_keras.drawing") / "page.html"
    assert "://" not in template.read_text("utf-8")


def test_texts_are_escaped_and_whole(page):
    for text in (
        "CCT & <b>friends</b>",
        HOSTILE,
        "cct-keras train --note '<i>'",
        "</ul><script src=x></script>",
    ):
        assert text in page.text


def test_numbers(page):
    for text in (
        "75.00 %",
        "95 % interval 30.06 % to 95.44 %",
        "3.76 M",
        "1.19 G",
        "1,234",
        "1 h 02 min",
    ):
        assert text in page.text
    # Three classes have no top-5, and one of them no image.
    assert "Top-5" not in page.text
    assert "no image" in page.text


def test_no_mistakes(tmp_path):
    metrics = {"test": measured(right=True)}
    page = written(tmp_path / "r.html", metrics=metrics, mistakes=[])
    assert "There was no mistake" in page.text
    assert "Wall time" not in page.text
    assert not set(mistake_images()) & {name for name, *_ in page.images()}


def test_mistakes_without_pictures(tmp_path):
    page = written(tmp_path / "r.html", mistakes=[])
    assert "No pictures of the 1 mistakes" in page.text


def test_evaluation_without_training(tmp_path):
    page = written(tmp_path / "r.html", history=[], facts={}, notes=[])
    assert "Learning curves" not in page.text
    assert "Facts" not in page.text


def test_names_that_no_font_or_encoding_has(tmp_path):
    names = ["猫\N{GRINNING FACE}", "\udcff", ""]
    metrics = measured()
    for row, name in zip(metrics["per_class"], names, strict=True):
        row["name"] = name
    page = written(tmp_path / "r.html", metrics={"test": metrics}, class_names=names)
    assert "猫\N{GRINNING FACE}" in page.text
    assert "\\udcff" in page.text


def test_same_run_same_report_and_no_pyplot(page, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    assert written(tmp_path / "r.html").tags == page.tags


def test_interruption_keeps_the_old_report(tmp_path, monkeypatch):
    path = tmp_path / "r.html"
    path.write_text("old")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        written(path, history=[], mistakes=[])
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_page_of_suspects(tmp_path):
    """Names, labels and files of what may be mislabelled, escaped, and nothing else."""
    path = tmp_path / "mistakes.html"
    write_mistakes(path, MISTAKES, explanation(MISTAKES), checked=12_345)
    page = Page(path.read_text("utf-8"))
    assert page.open == []
    for text in ("probably mislabelled", "12,345", "label: cat", HOSTILE, "80 %"):
        assert text in page.text
    assert MISTAKES[0].name in page.text
    assert "test image" in page.text
    assert not {"script", "a"} & {tag for tag, _ in page.tags}
    write_mistakes(path, [], None, checked=3)
    assert "There is none" in Page(path.read_text("utf-8")).text


def test_the_teacher_of_the_run(tmp_path):
    test = {"top1": 0.625, "top1_ci95": [0.5, 0.7], "loss": 1.2, "count": 40}
    metrics = {
        "test": test,
        "validation": {**test, "top1": 0.75, "epoch": 2},
        "epochs": 2,
        "seconds": 61.0,
        "parameters": 498_680,
    }
    page = written(tmp_path / "report.html", lesson=(metrics, HISTORY))
    assert page.open == []
    words = " ".join(page.text.split())
    assert "A convnet of 498.68 k parameters was trained first" in words
    assert "2 epochs in 1 min 01 s." in words
    assert "62.50 % of the test images and 75.00 % of the validation images" in words
    assert "Learning curves of the teacher" in (tmp_path / "report.html").read_text()
