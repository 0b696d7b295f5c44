"""Mean and standard deviation of the training images."""

import numpy as np
import pytest
from made_images import arrays
from made_images import write_images

import cct_keras
from cct_keras.data import statistics


def test_normalization_is_the_mean_of_the_training_pixels():
    x, y = arrays(60)
    data = cct_keras.load_data((x, y))
    train = data.train.images.array / 255
    np.testing.assert_allclose(data.mean, train.mean((0, 1, 2)), atol=6e-5)
    np.testing.assert_allclose(data.std, train.std((0, 1, 2)), atol=6e-5)


def test_statistics_are_cached(monkeypatch):
    x, y = arrays(40)
    first = cct_keras.load_data((x, y))

    def refuse(pixels):
        raise AssertionError("computed again")

    monkeypatch.setattr(statistics, "channel_statistics", refuse)
    assert cct_keras.load_data((x, y)).mean == first.mean
    with pytest.raises(AssertionError, match="computed again"):
        cct_keras.load_data((x, y), image_size=16)


def test_statistics_are_exact():
    """Counted in chunks, of which the last is shorter."""
    pixels = np.random.default_rng(0).integers(0, 256, (2**22 + 999, 2), "uint8")
    pixels[:, 1] = 77
    mean, std = statistics.channel_statistics(pixels)
    scaled = pixels[:, 0] / 255
    assert mean == (round(scaled.mean(), 4), round(77 / 255, 4))
    # A single color has no deviation, but images are divided by it.
    assert std == (round(scaled.std(), 4), 1 / 255)


def test_a_cache_that_cannot_be_used(tmp_path, monkeypatch):
    """Neither a broken file in the cache nor a missing cache stops anybody."""
    expected = cct_keras.load_data(arrays(40)).mean
    (file,) = (tmp_path / "cache").rglob("statistics/*.json")
    file.write_text("{")
    assert cct_keras.load_data(arrays(40)).mean == expected
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "file"))
    assert cct_keras.load_data(arrays(40)).mean == expected


def test_normalization_does_not_depend_on_earlier_loads(tmp_path):
    write_images(tmp_path / "set", ["a", "b"], 20, (80, 80))
    cct_keras.load_data(tmp_path / "set", image_size=16)
    std = cct_keras.load_data(tmp_path / "set", image_size=64).std
    assert min(std) > 0.25
