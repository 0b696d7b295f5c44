import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def tfds():
    return pytest.importorskip("tensorflow_datasets")
