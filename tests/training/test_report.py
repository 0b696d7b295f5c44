import base64
import html.parser
import sys
import xml.etree.ElementTree

import numpy as np
import pytest

from cct_keras.training import figures
from cct_keras.training import report
from cct_keras.training.metrics import classification_metrics
from cct_keras.training.report import write_report

HOSTILE = "<script>alert('x')</script>$\\frac{\" onload=\"y"
NAMES = ["cat", HOSTILE, "never seen"]
VOID = {"meta", "img"}
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


def pictures(*shapes):
    draw = np.random.default_rng(0)
    return [draw.integers(0, 256, shape, "uint8") for shape in shapes]


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
        "examples": {
            "images": pictures((28, 28, 1)),
            "truths": ["cat"],
            "predictions": [HOSTILE],
            "confidences": [0.8],
        },
        "facts": {"command": "cct-keras train --note '<i>'", "keras": "3.13"},
        "notes": ["See https://example.org", "</ul><script src=x></script>"],
    }
    write_report(path, **{**arguments, **changes})
    return Page(path.read_text("utf-8"))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return written(tmp_path_factory.mktemp("report") / "report.html")


def test_markup_is_balanced(page):
    assert page.open == []


def test_figures_are_inside(page):
    images = list(page.images())
    assert [name for name, *_ in images] == [
        "Learning curves",
        "Confusion matrix",
        "Accuracy by class",
        "Accuracy by confidence",
        "Misclassified pictures",
    ]
    for _, head, data in images:
        if head == "data:image/svg+xml;base64":
            assert xml.etree.ElementTree.fromstring(data).tag.endswith("svg")
        else:
            assert head == "data:image/png;base64"
            assert data.startswith(b"\x89PNG")


def test_refers_to_nothing_outside(page):
    assert not {"script", "link", "iframe", "a", "object"} & {t for t, _ in page.tags}
    for _, attributes in page.tags:
        assert not {"href", "srcset", "onload", "onerror"} & set(attributes)
        assert attributes.get("src", "data:").startswith("data:")
        assert "url(" not in attributes.get("style", "")
    template = report.resources.files("cct_keras.training") / "report_template.html"
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
    page = written(tmp_path / "r.html", metrics=metrics, examples={})
    assert "There was no mistake" in page.text
    assert "Wall time" not in page.text
    assert "Misclassified pictures" not in [name for name, *_ in page.images()]


def test_mistakes_without_pictures(tmp_path):
    page = written(tmp_path / "r.html", examples={"images": []})
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
        written(path, history=[], examples={})
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("classes", [1, 2, 21, 130])
def test_figures_of_any_number_of_classes(classes):
    labels = np.arange(classes).repeat(2)
    probabilities = np.roll(np.eye(classes), 1, axis=1).repeat(2, axis=0)
    probabilities[::2] = np.eye(classes)
    names = [f"class {index}" for index in range(classes)]
    metrics = classification_metrics(labels, probabilities, names)
    for figure in (
        figures.confusion_matrix(metrics["confusion"], names),
        figures.per_class_accuracy(metrics["per_class"]),
    ):
        figure.draw_without_rendering()


def test_confusion_pools_neighbours_of_many_classes():
    confusion = np.eye(300, dtype=int)
    confusion[17, 17], confusion[17, 201] = 0, 1
    confusion[40:42] = 0
    figure = figures.confusion_matrix(confusion, [str(i) for i in range(300)])
    cells = figure.axes[0].images[0].get_array()
    assert cells.shape == (150, 150)
    assert cells[8, 100] == 1
    assert cells.sum() == 150 - 1 + 1
    assert cells.mask.all(axis=1).nonzero()[0].tolist() == [20]


def test_per_class_shows_the_lowest_and_the_highest():
    rows = [{"name": f"{i}", "count": 100, "accuracy": i / 100} for i in range(60)]
    rows.append({"name": "none", "count": 0, "accuracy": None})
    low, high = figures.per_class_accuracy(rows[::-1]).axes
    assert [label.get_text() for label in low.get_yticklabels()] == [
        f"{i} (100)" for i in range(20)
    ]
    assert high.get_yticklabels()[-1].get_text() == "59 (100)"


def test_the_best_epoch_is_marked():
    history = [
        {"epoch": 1, "val_accuracy": 0.5, "val_loss": 2.0},
        {"epoch": 2, "val_accuracy": 0.25, "val_loss": 1.5},
    ]
    figure = figures.learning_curves(history, best_epoch=2)
    figure.draw_without_rendering()
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "best: epoch 2, 25.00 %" in texts[-1]
    figure = figures.learning_curves(history)
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert not any("best" in text for text in texts)


def test_single_epoch_has_markers():
    axes = figures.learning_curves(HISTORY[:1]).axes[0]
    assert {line.get_marker() for line in axes.lines[:2]} == {"o"}


def test_mistakes_of_any_size():
    images = pictures(*[(28, 28, 1), (300, 200, 3), (1, 1, 3)] * 10)
    figure = figures.mistakes(images, ["cat"] * 30, ["dog"] * 30, [0.98] * 30)
    assert len(figure.axes) == 24
    assert figure.axes[0].get_title() == "cat → dog 98 %"
    kinds = [axes.images[0].get_interpolation() for axes in figure.axes[:3]]
    assert kinds == ["nearest", "antialiased", "nearest"]


def test_long_names_keep_their_ends():
    image = pictures((8, 8, 3))
    figure = figures.predictions(image, ["a very long name of a class, 17"], [1.0])
    title = figure.axes[0].get_title()
    assert title.startswith("a very")
    assert title.endswith("17 100 %")
    assert len(title) <= 25


@pytest.mark.parametrize(
    "image", [np.zeros((8, 8, 3)), np.zeros((8, 8), "uint8"), np.zeros((8, 8, 4), "u1")]
)
def test_other_pictures_are_refused(image):
    with pytest.raises(ValueError, match="must be uint8"):
        figures.predictions([image], ["cat"], [0.5])


def test_style_of_the_user_stays_out():
    import matplotlib

    with matplotlib.rc_context({"axes.facecolor": "black", "text.color": "white"}):
        figure = figures.calibration(measured()["calibration"], 0.1)
        assert matplotlib.rcParams["axes.facecolor"] == "black"
    assert figure.axes[0].get_facecolor() == (1, 1, 1, 1)
    assert figure.axes[0].title.get_color() == figures.INK
