"""`load_classifier`: a file, a run folder, or the name of known weights."""

import keras
import numpy as np
import pytest
from colors import COLORS
from colors import color_classifier

import cct_keras
from cct_keras.errors import DataError
from cct_keras.inference.classifier import find_preprocessing


def test_a_file_and_its_folder(model_file):
    for source in (model_file, str(model_file), model_file.parent):
        model = cct_keras.load_classifier(source)
        assert find_preprocessing(model).class_names == tuple(COLORS)


def test_known_weights_by_their_name():
    model = cct_keras.load_classifier("cct_2_3x2_32.digits")
    found = keras.ops.convert_to_numpy(model(np.full((2, 11, 9, 1), 255.0)))
    assert found.shape == (2, 10)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)


def test_a_model_is_returned_as_it_is():
    model = color_classifier()
    assert cct_keras.load_classifier(model) is model


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("none.keras", "no such model file: .*none.keras"),
        ("bad.keras", "bad.keras is not a Keras model file"),
        (".", "no such model file"),
        ("cct_2_3x2_32.keras", "no such model file"),
    ],
)
def test_bad_models(tmp_path, model, message):
    (tmp_path / "bad.keras").write_bytes(b"PK\3\4 nothing")
    with pytest.raises(DataError, match=message):
        cct_keras.load_classifier(tmp_path / model)


def test_a_tag_that_the_variant_does_not_have():
    with pytest.raises(ValueError, match="has no weights 'cifar'"):
        cct_keras.load_classifier("cct_2_3x2_32.cifar")


def test_a_model_without_preprocessing():
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten()])
    with pytest.raises(DataError, match="no `Preprocessing` layer"):
        find_preprocessing(model)
