"""One crop-and-resize: evaluation, predict and the layer in a model agree."""

import keras
import numpy as np
import pytest
from made_images import write_images_of_many_sizes
from PIL import Image

import cct_keras
from cct_keras.data.dataset import load_evaluation_data
from cct_keras.layers.preprocessing import Preprocessing
from cct_keras.runtime.resize import central_crop_resize

SIZE, CROP = (12, 16), 0.9
# Half a level is lost by rounding to uint8, a little by other orders of summation.
ROUNDING = 0.51


def noise(height, width, channels=3, seed=0):
    shape = (height, width, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, "uint8")


def pixels_of(row):
    """The pixels that came out of a model whose classes are its pixels."""
    found = {int(entry["name"]): entry["probability"] for entry in row["classes"]}
    return np.array([found[i] for i in range(len(found))]).reshape(*SIZE, 3) * 255


@pytest.mark.backend
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_evaluation_predict_and_layer_see_the_same(tmp_path, interpolation):
    """On noise, where every difference in method would show."""
    write_images_of_many_sizes(tmp_path, count=3, smallest=10)
    layer = Preprocessing(
        SIZE, mean=(0.0,) * 3, std=(1.0,) * 3, crop=CROP, interpolation=interpolation
    )
    images = keras.Input((None, None, 3))
    model = keras.Model(images, keras.layers.Flatten()(layer(images)))
    predicted = cct_keras.predict(model, tmp_path, top=SIZE[0] * SIZE[1] * 3)
    data = load_evaluation_data(
        tmp_path,
        "test",
        image_size=SIZE,
        channels=3,
        crop=CROP,
        interpolation=interpolation,
    )
    ((evaluated, _),) = data.pipeline("test").as_numpy_iterator()
    assert len(evaluated) == len(predicted) == 6
    for row, seen in zip(predicted, evaluated, strict=True):
        file = np.asarray(Image.open(row["image"]))
        computed = keras.ops.convert_to_numpy(model(file[None].astype("float32")))
        computed = 255 * computed.reshape(seen.shape)
        assert np.abs(pixels_of(row) - computed).max() <= ROUNDING
        assert np.abs(seen - computed).max() <= ROUNDING
        assert np.ptp(computed) > 100


def test_training_without_a_crop_sees_what_evaluation_sees(tmp_path):
    write_images_of_many_sizes(tmp_path, smallest=17, largest=20)
    data = cct_keras.load_data(tmp_path, image_size=16, crop=CROP)
    recipe = cct_keras.Recipe(
        crop="none",
        flip=0,
        augment="none",
        label_smoothing=0,
        batch_size=len(data.train),
    )
    trained, _ = next(data.training_pipeline(recipe).as_numpy_iterator())
    evaluated, _ = next(data.pipeline("train").as_numpy_iterator())
    assert {x.tobytes() for x in trained} == {x.tobytes() for x in evaluated}
    expected = central_crop_resize(data.train.images[0], (16, 16), CROP)
    np.testing.assert_array_equal(evaluated[0], expected)


def test_a_train_split_is_measured_as_any_other(tmp_path):
    """Not by way of the reduced images that training keeps."""
    write_images_of_many_sizes(tmp_path, count=4, smallest=80, largest=120)
    train, test = (
        load_evaluation_data(tmp_path, split, image_size=SIZE, channels=3, crop=CROP)
        for split in ("train", "test")
    )
    np.testing.assert_array_equal(train.train.images.array, test.test.images.array)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_against_pillow(channels):
    """Channels do not mix, transparency is a channel like any other."""
    image = noise(60, 90, channels)
    found = central_crop_resize(image, (30, 30), 0.8)
    # 60 x 60 in the middle, 0.8 of it: 48 x 48 from (6, 21).
    for channel in range(channels):
        cut = Image.fromarray(image[..., channel]).crop((21, 6, 69, 54))
        expected = cut.convert("F").resize((30, 30), Image.Resampling.BICUBIC)
        difference = found[..., channel] - np.asarray(expected).clip(0, 255)
        assert np.abs(difference).max() <= ROUNDING


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64", "int64"])
def test_types(dtype):
    image = noise(20, 30).astype(dtype)
    found = central_crop_resize(image, SIZE)
    assert found.dtype == ("uint8" if dtype == "uint8" else "float32")
    assert found.shape == (*SIZE, 3)
    assert found.min() >= 0
    assert found.max() <= 255
    exact = central_crop_resize(noise(20, 30).astype("float32"), SIZE)
    assert np.abs(found - exact).max() <= (ROUNDING if dtype == "uint8" else 1e-3)


def test_what_has_the_size_is_taken_as_cut_already():
    image = noise(*SIZE)
    assert central_crop_resize(image, SIZE, 0.5) is image


def test_tiny_and_thin_images():
    assert central_crop_resize(noise(1, 1), (8, 8), 0.5).shape == (8, 8, 3)
    assert central_crop_resize(noise(1, 500), (8, 8)).shape == (8, 8, 3)
    nearest = central_crop_resize(noise(2, 2), (4, 4), interpolation="nearest")
    np.testing.assert_array_equal(nearest, noise(2, 2).repeat(2, 0).repeat(2, 1))
