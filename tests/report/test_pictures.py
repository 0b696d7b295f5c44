"""Grids of pictures, and the files that are made of them."""

import numpy as np
import pytest
from PIL import Image

import cct_keras
from cct_keras.drawing.style import NothingToDraw
from cct_keras.recipes.rows import find_recipe
from cct_keras.report import pictures
from cct_keras.report.preview import write_predictions
from cct_keras.report.preview import write_preview


def random_pictures(*shapes):
    draw = np.random.default_rng(0)
    return [draw.integers(0, 256, shape, "uint8") for shape in shapes]


def test_pictures_of_any_size():
    images = random_pictures(*[(28, 28, 1), (300, 200, 3), (1, 1, 3)] * 10)
    figure = pictures.predictions(images, ["dog"] * 30, [0.98] * 30)
    assert len(figure.axes) == 24
    assert figure.axes[0].get_title() == "dog 98 %"
    kinds = [axes.images[0].get_interpolation() for axes in figure.axes[:3]]
    assert kinds == ["nearest", "antialiased", "nearest"]


def test_long_names_keep_their_ends():
    image = random_pictures((8, 8, 3))
    figure = pictures.predictions(image, ["a very long name of a class, 17"], [1.0])
    title = figure.axes[0].get_title()
    assert title.startswith("a very")
    assert title.endswith("17 100 %")
    assert len(title) <= 25


@pytest.mark.parametrize(
    "image", [np.zeros((8, 8, 3)), np.zeros((8, 8), "uint8"), np.zeros((8, 8, 4), "u1")]
)
def test_other_pictures_are_refused(image):
    with pytest.raises(ValueError, match="must be uint8"):
        pictures.predictions([image], ["cat"], [0.5])


def test_captions_of_mixed_images():
    targets = np.array([[0.05, 0.65, 0.3], [0.05, 0.9, 0.05]])
    figure = pictures.samples(
        random_pictures((8, 8, 3), (8, 8, 3)), targets, ["cat", "dog", "frog"]
    )
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["dog 65 %\nfrog 30 %", "dog"]


def test_an_empty_grid():
    with pytest.raises(NothingToDraw, match="no picture"):
        pictures.predictions([], [], [])
    with pytest.raises(ValueError, match="1 images have 0 captions"):
        pictures.predictions(random_pictures((8, 8, 3)), [], [])


def test_preview_of_the_augmentation(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (30, 16, 16, 3), "uint8")
    data = cct_keras.load_data((images, np.arange(30) % 3))
    recipe = find_recipe("cifar10_300", batch_size=6)
    path = write_preview(tmp_path / "new" / "preview.png", data, recipe, seed=1)
    assert path == tmp_path / "new" / "preview.png"
    with Image.open(path) as image:
        assert image.size[0] > 500


def test_a_picture_of_predictions(tmp_path):
    Image.new("RGB", (600, 400), (255, 0, 0)).save(tmp_path / "red.png")
    rows = [
        {"image": str(tmp_path / "gone.png"), "error": "no such file"},
        {
            "image": str(tmp_path / "red.png"),
            "classes": [{"name": "red", "probability": 0.9}],
        },
    ]
    path = write_predictions(tmp_path / "predictions.svg", rows)
    assert "<svg" in path.read_text()
