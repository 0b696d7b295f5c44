"""Intervals and p values, against SciPy's own and against brute force."""

import itertools

import numpy as np
import pytest
import scipy.stats

from cct_keras.studies.statistics import deviation_of
from cct_keras.studies.statistics import image_p_value
from cct_keras.studies.statistics import interval_of_mean


@pytest.mark.parametrize("count", [2, 3, 5, 30])
def test_the_interval_of_a_mean_is_students(count):
    values = np.random.default_rng(count).normal(0.8, 0.02, count)
    expected = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.95)
    np.testing.assert_allclose(interval_of_mean(values), expected, rtol=1e-9)
    assert deviation_of(values) == pytest.approx(scipy.stats.tstd(values))


def test_one_value_has_no_interval():
    assert interval_of_mean([0.5]) is None
    assert deviation_of([0.5]) is None
    assert interval_of_mean([0.5, 0.5]) == (0.5, 0.5)


def test_two_runs_are_compared_by_mcnemars_exact_test():
    """The binomial sum, written out."""
    gained, lost = 9, 3
    differences = np.array([1] * gained + [-1] * lost + [0] * 50)
    total = gained + lost
    ways = [len([*itertools.combinations(range(total), k)]) for k in range(total + 1)]
    expected = 2 * sum(ways[: lost + 1]) / 2**total
    assert image_p_value(differences) == pytest.approx(expected)
    assert image_p_value(-differences) == pytest.approx(expected)


def test_several_pairs_are_one_observation_an_image():
    """Random signs, many times: images that all runs agree on count once."""
    generator = np.random.default_rng(0)
    differences = generator.integers(-2, 4, 60)
    signs = generator.choice([-1, 1], (40_000, 60))
    sums = np.abs((signs * differences).sum(1))
    expected = (sums >= abs(differences.sum())).mean()
    assert image_p_value(differences) == pytest.approx(expected, abs=0.01)
    # A hundred runs that all gain the same three images tell no more than one.
    agreeing = np.array([100] * 3 + [0] * 97)
    assert image_p_value(agreeing) > 0.05


def test_nothing_to_tell():
    assert image_p_value(np.zeros(9, int)) == 1.0
    assert image_p_value(np.zeros(0, int)) is None
