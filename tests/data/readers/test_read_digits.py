"""The digits of scikit-learn."""

import numpy as np

from cct_keras.data.readers.digits import read_digits


def test_digits():
    data = read_digits()
    assert data.name == "digits"
    assert data.class_names == tuple("0123456789")
    assert data.splits["train"].images.shape == (1437, 8, 8, 1)
    assert data.splits["test"].images.shape == (360, 8, 8, 1)
    again = read_digits()
    for name, split in data.splits.items():
        assert split.images.dtype == np.uint8
        assert (split.images.min(), split.images.max()) == (0, 255)
        assert split.labels.dtype == np.int64
        assert np.bincount(split.labels).min() > 0.09 * len(split.labels)
        np.testing.assert_array_equal(split.images, again.splits[name].images)
