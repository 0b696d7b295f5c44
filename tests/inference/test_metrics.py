import json
import math

import numpy as np
import pytest

from cct_keras.inference.metrics import classification_metrics
from cct_keras.inference.metrics import wilson_interval

NAMES = ["cat", "dog", "frog"]
LABELS = np.array([0, 0, 1, 1])
PROBABILITIES = np.array(
    [[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [0.1, 0.8, 0.1], [0.2, 0.3, 0.5]], "float32"
)


# As of scipy.stats.binomtest(...).proportion_ci(method="wilson")
@pytest.mark.parametrize(
    ("correct", "count", "low", "high"),
    [
        (0, 10, 0.0, 0.277533),
        (5, 10, 0.236593, 0.763407),
        (10, 10, 0.722467, 1.0),
        (9889, 10000, 0.986651, 0.990774),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson_interval(correct, count, low, high):
    assert wilson_interval(correct, count) == pytest.approx((low, high), abs=1e-6)


def test_wilson_interval_holds_the_roots_of_its_equation():
    z, count = 1.959963984540054, 37
    for correct in range(1, count):
        for end in wilson_interval(correct, count):
            distance = abs(correct / count - end)
            assert distance == pytest.approx(z * math.sqrt(end * (1 - end) / count))


@pytest.mark.parametrize(("correct", "count"), [(-1, 3), (4, 3), (0, -1)])
def test_wilson_interval_refuses_impossible_counts(correct, count):
    with pytest.raises(ValueError, match="between 0 and count"):
        wilson_interval(correct, count)


def test_small_set_by_hand():
    metrics = classification_metrics(LABELS, PROBABILITIES, NAMES)
    assert metrics["count"] == 4
    assert metrics["top1"] == 0.5
    assert metrics["top1_ci95"] == list(wilson_interval(2, 4))
    assert metrics["top5"] is None
    expected = -(math.log(0.7) + math.log(0.3) + math.log(0.8) + math.log(0.3)) / 4
    assert metrics["loss"] == pytest.approx(expected, rel=1e-6)
    # Each image is alone in its bin: |1 - 0.7|, |0 - 0.6|, |1 - 0.8|, |0 - 0.5|
    assert metrics["ece"] == pytest.approx((0.3 + 0.6 + 0.2 + 0.5) / 4)
    assert metrics["confusion"] == [[1, 1, 0], [0, 1, 1], [0, 0, 0]]
    assert metrics["per_class"] == [
        {"name": "cat", "count": 2, "accuracy": 0.5},
        {"name": "dog", "count": 2, "accuracy": 0.5},
        {"name": "frog", "count": 0, "accuracy": None},
    ]


def test_values_are_plain():
    metrics = classification_metrics(LABELS.astype("uint8"), PROBABILITIES, NAMES)
    assert json.loads(json.dumps(metrics, allow_nan=False)) == metrics


def test_loss_is_clipped():
    metrics = classification_metrics([1], [[1.0, 0.0]], ["a", "b"])
    assert metrics["loss"] == pytest.approx(-math.log(1e-7))


def test_ties_go_to_the_lowest_index():
    probabilities = np.full((8, 8), 1 / 8)
    metrics = classification_metrics(np.arange(8), probabilities, list("abcdefgh"))
    assert metrics["top1"] == 1 / 8
    assert metrics["top5"] == 5 / 8
    assert [row[0] for row in metrics["confusion"]] == [1] * 8


def test_top5_is_the_rank_of_the_truth():
    probabilities = np.array([[0.3, 0.25, 0.2, 0.12, 0.08, 0.05]]).repeat(6, axis=0)
    metrics = classification_metrics(np.arange(6), probabilities, list("abcdef"))
    assert metrics["top5"] == 5 / 6


def test_top5_starts_at_six_classes():
    for classes, expected in ((5, None), (6, 1.0)):
        metrics = classification_metrics([0], np.eye(classes)[:1], "abcdef"[:classes])
        assert metrics["top5"] == expected


def test_calibrated_predictor():
    # 90 % confident and right 9 times of 10; 60 % confident and right 6 of 10
    labels = np.array([0] * 9 + [1] + [0] * 6 + [1] * 4)
    first = np.array([0.9] * 10 + [0.6] * 10)
    metrics = classification_metrics(labels, np.stack([first, 1 - first], 1), "ab")
    assert metrics["ece"] == pytest.approx(0, abs=1e-12)
    filled = [row for row in metrics["calibration"] if row["count"]]
    assert [row["count"] for row in filled] == [10, 10]
    assert [row["accuracy"] for row in filled] == [0.6, 0.9]


def test_overconfident_predictor():
    labels = np.array([0, 1] * 50)
    first = np.full(100, 0.99)
    metrics = classification_metrics(labels, np.stack([first, 1 - first], 1), "ab")
    assert metrics["ece"] == pytest.approx(0.49)


def test_calibration_bins_cover_everything():
    first = np.linspace(0, 1, 31)
    labels = np.zeros(31, "int64")
    bins = classification_metrics(labels, np.stack([first, 1 - first], 1), "ab")[
        "calibration"
    ]
    assert len(bins) == 15
    assert bins[0]["low"] == 0
    assert bins[-1]["high"] == 1
    assert sum(row["count"] for row in bins) == 31
    for row in bins:
        assert (row["confidence"] is None) == (row["count"] == 0)
        if row["count"]:
            assert row["low"] - 1e-9 <= row["confidence"] <= row["high"] + 1e-9


def test_a_single_class():
    metrics = classification_metrics([0, 0], [[1.0], [1.0]], ["a"])
    assert (metrics["top1"], metrics["confusion"]) == (1.0, [[2]])
    assert metrics["loss"] == pytest.approx(0, abs=1e-12)


def test_half_precision():
    half = PROBABILITIES.astype("float16")
    metrics = classification_metrics(LABELS, half, NAMES)
    full = classification_metrics(LABELS, PROBABILITIES, NAMES)
    assert metrics["loss"] == pytest.approx(full["loss"], rel=1e-3)


@pytest.mark.parametrize(
    ("labels", "probabilities", "names", "message"),
    [
        ([0], [[np.nan, 1.0]], "ab", "NaN"),
        ([0], [[2.0, -1.0]], "ab", "logits"),
        ([0], [[3.0, 4.0]], "ab", "logits"),
        ([0], [[np.inf, 0.0]], "ab", "logits"),
        ([2], [[0.5, 0.5]], "ab", "in .0, 2"),
        ([-1], [[0.5, 0.5]], "ab", "in .0, 2"),
        ([[0]], [[0.5, 0.5]], "ab", "integers of shape"),
        ([0.0], [[0.5, 0.5]], "ab", "integers of shape"),
        ([0], [[0.5, 0.5]], "abc", "class names"),
        ([0, 1], [[0.5, 0.5]], "ab", "2 labels"),
        (np.zeros(0, "int64"), np.zeros((0, 2)), "ab", "no image"),
    ],
)
def test_refused(labels, probabilities, names, message):
    with pytest.raises(ValueError, match=message):
        classification_metrics(labels, probabilities, names)


def test_the_numbers_are_those_of_scikit_learn_and_scipy():
    """The package computes them itself, for places where neither is installed."""
    from scipy.stats import binomtest
    from sklearn.metrics import confusion_matrix
    from sklearn.metrics import log_loss

    generator = np.random.default_rng(0)
    probabilities = generator.dirichlet(np.full(7, 0.3), 200)
    labels = generator.integers(0, 7, 200)
    names = [str(index) for index in range(7)]
    found = classification_metrics(labels, probabilities, names)
    predicted = probabilities.argmax(axis=1)
    expected = confusion_matrix(labels, predicted, labels=range(7))
    assert found["confusion"] == expected.tolist()
    clipped = probabilities[np.arange(200), labels].clip(1e-7, 1)
    loss = log_loss(np.ones(200), clipped, labels=[0, 1])
    assert found["loss"] == pytest.approx(loss, rel=1e-12)
    for count in (1, 3, 200, 10_000):
        for correct in {0, 1, count // 3, count - 1, count}:
            interval = binomtest(correct, count).proportion_ci(0.95, method="wilson")
            found = wilson_interval(correct, count)
            assert found == pytest.approx((interval.low, interval.high), abs=1e-12)
