import pytest
from colors import color_classifier
from colors import make_folder

import cct_keras


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """72 pictures of three colors, of which 11 are cut off as a test split."""
    return make_folder(tmp_path_factory.mktemp("colors") / "set")


@pytest.fixture(scope="session")
def data(folder):
    return cct_keras.load_data(folder, image_size=16)


@pytest.fixture(scope="session")
def model_file(data, tmp_path_factory):
    """The file of a model that is always right, as if trained on these data."""
    path = tmp_path_factory.mktemp("run") / "model.keras"
    color_classifier(data).save(path)
    return path
