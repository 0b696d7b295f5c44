"""`predict`: files, folders and arrays of any size and kind."""

import keras
import numpy as np
import pytest
from colors import color_classifier
from PIL import Image

import cct_keras
from cct_keras.errors import DataError


def test_images_of_any_size_and_kind(model_file, tmp_path):
    Image.new("RGB", (301, 77), (250, 10, 10)).save(tmp_path / "red.jpg")
    Image.new("RGBA", (16, 16), (10, 250, 10, 255)).save(tmp_path / "green.png")
    Image.new("RGB", (16, 16), (5, 5, 250)).quantize(4).save(tmp_path / "blue.png")
    (tmp_path / "bad.webp").write_bytes(b"RIFF")
    rows = cct_keras.predict(model_file, tmp_path, top=2)
    assert [row["image"] for row in rows] == [
        str(tmp_path / name)
        for name in ("bad.webp", "blue.png", "green.png", "red.jpg")
    ]
    assert "bad.webp" in rows[0]["error"]
    assert [row["classes"][0]["name"] for row in rows[1:]] == ["blue", "green", "red"]
    for row in rows[1:]:
        first, second = (entry["probability"] for entry in row["classes"])
        assert 1 >= first > second >= 0


@pytest.mark.backend
def test_arrays():
    model = color_classifier()
    red = np.zeros((40, 30, 3), "uint8")
    red[..., 0] = 250
    one = cct_keras.predict(model, red, top=1)
    many = cct_keras.predict(model, np.stack([red, red[..., ::-1]]), top=1)
    assert one[0]["classes"][0]["name"] == "red"
    assert [row["classes"][0]["name"] for row in many] == ["red", "blue"]
    assert "3 channels" in cct_keras.predict(model, red[..., :2])[0]["error"]
    share = cct_keras.predict(model, red / 255, top=1)
    found = share[0]["classes"][0]["probability"]
    assert found == pytest.approx(one[0]["classes"][0]["probability"], abs=1e-5)


def test_more_images_than_a_batch():
    images = np.zeros((70, 16, 16, 3), "uint8")
    images[np.arange(70), ..., np.arange(70) % 3] = 255
    rows = cct_keras.predict(color_classifier(), images, top=1)
    names = [row["classes"][0]["name"] for row in rows]
    assert names == [("red", "green", "blue")[i % 3] for i in range(70)]
    assert rows[69]["image"] == "image 69"


def test_prediction_and_evaluation_agree(folder, model_file):
    """Files through `predict` and through the pipeline of `evaluate`."""
    rows = cct_keras.predict(model_file, folder, top=1)
    names = [row["classes"][0]["name"] for row in rows]
    assert names == [row["image"].split("/")[-2] for row in rows]


def test_classes_without_names_are_numbered():
    rows = cct_keras.predict(color_classifier(names=None), np.full((8, 8, 3), 9), top=3)
    assert sorted(entry["name"] for entry in rows[0]["classes"]) == ["0", "1", "2"]


def test_what_cannot_be_predicted(model_file, tmp_path):
    with pytest.raises(DataError, match="`top` must be 1 or more. Received: top=0"):
        cct_keras.predict(model_file, [], top=0)
    with pytest.raises(DataError, match="there is no image in"):
        cct_keras.predict(model_file, tmp_path)
    rows = cct_keras.predict(model_file, [tmp_path / "gone.png"])
    assert "no such file" in rows[0]["error"]


def test_a_model_without_preprocessing():
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten()])
    with pytest.raises(DataError, match="no `Preprocessing` layer"):
        cct_keras.predict(model, np.zeros((8, 8, 3)))
