import keras
import pytest
from exported import PACKAGES
from exported import export_once
from exported import save_classifier
from exported import write_pictures


@pytest.fixture(scope="session")
def keras_file(tmp_path_factory):
    return save_classifier(tmp_path_factory.mktemp("keras") / "model.keras")


@pytest.fixture(scope="session")
def export_to(keras_file, tmp_path_factory):
    """A function from the name of a format to a file; each is exported once."""
    if keras.config.backend() != "tensorflow":
        pytest.skip("another backend exports in a child process, which takes longer")
    files = {}

    def export_to(format):
        if format not in files:
            pytest.importorskip(PACKAGES[format])
            folder = tmp_path_factory.mktemp(format)
            with pytest.MonkeyPatch.context() as monkeypatch:
                files[format] = export_once(
                    keras_file, folder / "", format, monkeypatch, script=True
                )
        return files[format]

    return export_to


@pytest.fixture(scope="session")
def onnx_file(export_to):
    return export_to("onnx")


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("pictures") / "all")
