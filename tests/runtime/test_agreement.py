"""An exported file answers as the Keras file does, whatever the picture is."""

import json
import pathlib

import numpy as np
import pytest
from exported import export_once
from exported import photo
from PIL import Image

import cct_keras
from cct_keras.cli.main import main
from cct_keras.errors import DataError
from cct_keras.runtime import Classifier

# The exporters' own.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.integration]

SAMPLES = pathlib.Path(__file__).parent.parent / "samples" / "cifar10_jpeg"
FORMATS = [
    "onnx",
    "litert",
    pytest.param("openvino", marks=pytest.mark.integration),
    pytest.param("saved_model", marks=pytest.mark.integration),
]


@pytest.fixture(scope="module", params=FORMATS)
def file(request, export_to):
    return export_to(request.param)


def assert_same(found, expected):
    assert [row["image"] for row in found] == [row["image"] for row in expected]
    for row, reference in zip(found, expected, strict=True):
        assert row.get("error") == reference.get("error")
        for entry, other in zip(
            row.get("classes", []), reference.get("classes", []), strict=True
        ):
            assert entry["name"] == other["name"], row["image"]
            assert entry["probability"] == pytest.approx(other["probability"], abs=1e-4)


@pytest.fixture(scope="module")
def answers(keras_file, pictures):
    return cct_keras.predict(keras_file, pictures, top=3)


def test_pictures_of_every_kind(file, pictures, answers):
    found = Classifier(file).predict(pictures, top=3)
    assert_same(found, answers)
    assert_same(cct_keras.predict(file, str(pictures), top=3), answers)
    assert sum("error" in row for row in found) == 3
    assert len({row["classes"][0]["name"] for row in found if "classes" in row}) > 2


def test_arrays_and_images_of_pillow(file, keras_file):
    pixels = photo(50, 70)
    sources = [pixels, pixels / 255, pixels.astype("float32"), pixels.astype("int64")]
    sources += [photo(9, 9), np.zeros((4, 4, 3), bool), pixels[..., :2], pixels[:0]]
    sources += [np.full((4, 4, 3), np.nan), pixels.astype("uint16") * 257]
    found = Classifier(file).predict(sources)
    assert_same(found, cct_keras.predict(keras_file, sources))
    assert [i for i, row in enumerate(found) if "error" in row] == [6, 7, 8, 9]
    image = Image.fromarray(pixels)
    assert_same(
        Classifier(file).predict([image.convert("P"), image.convert("CMYK"), image]),
        cct_keras.predict(
            keras_file, [image.convert("P"), image.convert("CMYK"), image]
        ),
    )


def test_probabilities(file, keras_file):
    classifier = Classifier(file, threads=1)
    batch = np.stack([photo(32, 32, seed=seed) for seed in range(70)])
    found = classifier(batch)
    model = cct_keras.load_classifier(keras_file)
    expected = model.predict(batch.astype("float32"), verbose=0)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_array_equal(classifier(batch[0]), classifier(batch[:1]))
    assert classifier(batch[:0]).shape == (0, 10)
    assert classifier.class_names[3] == "cat"
    with pytest.raises(DataError, match="no such file"):
        classifier(["none.png"])
    with pytest.raises(DataError, match="export the model with maps=True"):
        classifier.maps(batch[:1])


def test_the_command_prints_the_same(file, keras_file, pictures, capsys):
    def run(*words):
        code = main([str(word) for word in words])
        return code, *capsys.readouterr()

    kinds = [pictures / "turned_6.jpg", pictures / "mode_I16.png", pictures / "cut.jpg"]
    expected = run("predict", keras_file, *kinds)
    assert run("predict", file, *kinds) == expected
    assert expected[0] == 2
    expected = run("evaluate", keras_file, SAMPLES)
    assert run("evaluate", file, SAMPLES) == expected
    assert expected[0] == 0
    code, text, _ = run("predict", file, kinds[0], "--json", "--top", "1")
    assert code == 0
    assert json.loads(text)[0]["classes"][0].keys() == {"name", "probability"}


def test_evaluate_takes_loaded_data_of_another_size(file, keras_file):
    data = cct_keras.load_data(SAMPLES, image_size=40)
    found = cct_keras.evaluate(file, data)
    expected = cct_keras.evaluate(keras_file, data)
    assert found["loss"] == pytest.approx(expected["loss"], abs=1e-4)
    assert found["confusion"] == expected["confusion"]


@pytest.mark.integration
@pytest.mark.parametrize("format", ["onnx", "litert", "openvino", "saved_model"])
@pytest.mark.parametrize(
    "options",
    [
        {"batch": 4, "input_dtype": "uint8", "layout": "nchw", "logits": True},
        {"batch": 1, "maps": True},
    ],
    ids=["turned", "maps"],
)
def test_every_form_of_graph(format, options, keras_file, tmp_path, monkeypatch):
    """What the file takes and returns differs, and what the classifier does not."""
    path = export_once(keras_file, tmp_path, format, monkeypatch, **options)
    images = [photo(50, 70, seed=seed) for seed in range(6)]
    classifier = Classifier(path)
    assert_same(classifier.predict(images), cct_keras.predict(keras_file, images))
    if options.get("maps"):
        maps = classifier.maps(images)
        assert maps.shape == (6, 8, 8)
        np.testing.assert_allclose(maps.sum((1, 2)), 1, rtol=1e-4)
