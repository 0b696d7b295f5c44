import numpy as np
import pytest
from runs import eager
from runs import no_report
from runs import tiny_variants
from small import stripes


@pytest.fixture(scope="module", autouse=True)
def variants():
    with tiny_variants(), eager():
        yield


@pytest.fixture(scope="module", autouse=True)
def quick_report():
    """The figures of each run take seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cct_keras.training.results.write_report", no_report)
        yield


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """Images without a test split; a part has the wrong class, so that runs differ."""
    path = tmp_path_factory.mktemp("data") / "stripes.npz"
    x, y = stripes(60)
    y = np.where(np.arange(60) % 5 == 0, 1 - y, y)
    np.savez(path, x_train=x, y_train=y)
    return path
