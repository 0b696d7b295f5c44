import numpy as np
import pytest
from runs import eager
from runs import no_report
from runs import tiny_variants
from small import stripes


@pytest.fixture(scope="module", autouse=True)
def variants():
    with tiny_variants():
        yield


@pytest.fixture(autouse=True)
def quick_report(request, monkeypatch):
    """Figures take seconds; one run has them."""
    if "undisturbed" not in request.fixturenames:
        monkeypatch.setattr("cct_keras.training.results.write_report", no_report)


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "stripes.npz"
    (x, y), (x_test, y_test) = stripes(100), stripes(40, 1)
    np.savez(path, x_train=x, y_train=y, x_test=x_test, y_test=y_test)
    return path


@pytest.fixture
def eagerly():
    """For runs in which compiled steps are not what is tested."""
    with eager():
        yield
