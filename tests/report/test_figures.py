"""Figures of any number of classes and epochs."""

import numpy as np
import pytest

from cct_keras.drawing.style import INK
from cct_keras.drawing.style import NothingToDraw
from cct_keras.inference.metrics import classification_metrics
from cct_keras.report import figures

HISTORY = [
    {"epoch": 1, "loss": 2.0, "accuracy": 0.3, "val_loss": 1.9, "val_accuracy": 0.4},
    {"epoch": 2, "loss": float("nan"), "val_accuracy": 0.5, "learning_rate": 1e-3},
    {"epoch": 3, "loss": 1.0, "val_accuracy": None, "learning_rate": 0.0},
]
BINS = [
    {"low": 0.0, "high": 0.5, "count": 0, "confidence": None, "accuracy": None},
    {"low": 0.5, "high": 1.0, "count": 4, "confidence": 0.8, "accuracy": 0.75},
]


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


def test_nothing_to_draw():
    with pytest.raises(NothingToDraw, match="the history has no values"):
        figures.learning_curves([{"epoch": 1, "loss": float("nan")}])
    with pytest.raises(NothingToDraw, match="no class has an image"):
        figures.per_class_accuracy([{"name": "cat", "count": 0, "accuracy": None}])


def test_a_confusion_matrix_of_another_size():
    with pytest.raises(ValueError, match=r"2 class names need a 2 x 2.*\(3, 3\)"):
        figures.confusion_matrix(np.eye(3), ["a", "b"])


def test_calibration_counts_the_images():
    top, bottom = figures.calibration(BINS, 0.05).axes
    assert "5.00 %" in top.get_title(loc="left")
    assert [bar.get_height() for bar in bottom.patches] == [0, 4]


def test_style_of_the_user_stays_out():
    import matplotlib

    with matplotlib.rc_context({"axes.facecolor": "black", "text.color": "white"}):
        figure = figures.calibration(BINS, 0.1)
        assert matplotlib.rcParams["axes.facecolor"] == "black"
    assert figure.axes[0].get_facecolor() == (1, 1, 1, 1)
    assert figure.axes[0].title.get_color() == INK
