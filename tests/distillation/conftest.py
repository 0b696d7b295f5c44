import pytest
from runs import no_report
from runs import tiny_variants
from small import stripes

import cct_keras


@pytest.fixture(scope="module", autouse=True)
def variants():
    with tiny_variants():
        yield


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """A cache of its own, and no figures, which take seconds."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("cct_keras.training.results.write_report", no_report)


@pytest.fixture(scope="session")
def source():
    return cct_keras.load_data(stripes(80))


@pytest.fixture(scope="session")
def some_images(source):
    return next(source.pipeline("test", 12).as_numpy_iterator())[0]
