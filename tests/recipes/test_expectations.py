"""What similar data sets reached: rows of a table, and when none is near enough."""

import pytest

from cct_keras.models.variants import VARIANTS
from cct_keras.recipes.expectations import EXPECTATIONS
from cct_keras.recipes.expectations import Expectation
from cct_keras.recipes.expectations import expectation_text
from cct_keras.recipes.expectations import nearest_expectation

ROWS = (
    Expectation("few", 10, 3, 100, 10, 0.4),
    Expectation("some", 10, 3, 200, 10, 0.5),
    Expectation("long", 10, 3, 200, 25, 0.6),
    Expectation("gray", 10, 1, 200, 10, 0.9),
    Expectation("taught", 10, 3, 200, 10, 0.7, teacher=True),
)
RUN = {
    "classes": 10,
    "channels": 3,
    "images_per_class": 180,
    "minutes": 9,
    "variant": "cct_2_3x2_32",
}


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, "some"),
        ({"images_per_class": 120}, "few"),
        ({"minutes": 24}, "long"),
        ({"channels": 1}, "gray"),
        ({"teacher": True}, "taught"),
        ({"images_per_class": 50, "minutes": 20}, "few"),
        # Too few, too many, too short, too long, too many classes, another model.
        ({"images_per_class": 49}, None),
        ({"images_per_class": 401}, None),
        ({"minutes": 4.9}, None),
        ({"minutes": 51}, None),
        ({"classes": 100}, None),
        ({"variant": "cct_7_3x1_32"}, None),
        ({"images_per_class": 0}, None),
        ({"minutes": 0}, None),
    ],
)
def test_the_nearest_row(changed, found):
    row = nearest_expectation(**{**RUN, **changed}, rows=ROWS)
    assert (row and row.data) == found


def test_an_empty_table_says_nothing():
    assert nearest_expectation(**RUN, rows=()) is None


def test_words():
    assert expectation_text(ROWS[1]) == (
        "some, 200 images a class, reached 50.0 % in 10 minutes of 2 CPU cores"
    )


def test_rows_are_possible():
    for row in EXPECTATIONS:
        assert row.variant in VARIANTS
        assert 1 / row.classes < row.accuracy < 1
        assert row.channels in (1, 3)
        assert min(row.images_per_class, row.minutes) > 0
