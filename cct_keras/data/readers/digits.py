"""The handwritten digits that come with scikit-learn."""

import numpy as np

from cct_keras.data.known import DATASETS
from cct_keras.data.raw import RawData
from cct_keras.data.raw import RawSplit
from cct_keras.runtime.packages import import_package


def is_digits(source) -> bool:
    """Whether a source is the name of this data set."""
    return source == "digits"


def read_digits(source: str = "digits") -> RawData:
    """Reads the 1,797 digits of scikit-learn, of 8 x 8 pixels, split 80 to 20.

    Args:
        source: The name of the data set.

    Example:

    >>> read_digits().splits["train"].images.shape
    (1437, 8, 8, 1)
    """
    datasets = import_package("sklearn.datasets", "scikit-learn")
    selection = import_package("sklearn.model_selection", "scikit-learn")
    digits = datasets.load_digits()
    # Their pixels have values from 0 to 16.
    images = np.rint(digits.images[..., None] * (255 / 16)).astype(np.uint8)
    x_train, x_test, y_train, y_test = selection.train_test_split(
        images,
        digits.target.astype(np.int64),
        test_size=0.2,
        stratify=digits.target,
        random_state=0,
    )
    return RawData(
        name=source,
        splits={"train": RawSplit(x_train, y_train), "test": RawSplit(x_test, y_test)},
        class_names=tuple(str(name) for name in digits.target_names),
        known=DATASETS["digits"],
    )
