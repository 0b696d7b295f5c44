import numpy as np
import pytest
from small import stripes


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "stripes.npz"
    (x, y), (x_test, y_test) = stripes(150), stripes(40, 1)
    # Hard enough that losses tell runs apart.
    noise = np.random.default_rng(0).integers(0, 256, x.shape).astype("uint8")
    np.savez(path, x_train=x // 4 + noise // 2, y_train=y, x_test=x_test, y_test=y_test)
    return path
