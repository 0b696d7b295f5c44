"""Maps lie over the pictures as they were given, whatever form these have."""

import keras
import numpy as np
import pytest
from PIL import Image
from raw_model import photo
from raw_model import raw_model
from small import images
from small import predict
from small import small_model

import cct_keras
from cct_keras.errors import DataError
from cct_keras.runtime import Classifier


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return raw_model()


def explain(*arguments, **options):
    return cct_keras.explain(*arguments, verbose=False, **options)


def assert_token_rectangles(values, tokens, box):
    """The tokens as flat rectangles in a box, and 0 around it."""
    top, left, bottom, right = box
    height, width = (bottom - top) // 4, (right - left) // 4
    expected = np.zeros_like(values)
    expected[top:bottom, left:right] = np.kron(tokens, np.ones((height, width)))
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize(
    ("crop", "size", "box"),
    [
        (1.0, (40, 64), (0, 12, 40, 52)),
        (1.0, (64, 40), (12, 0, 52, 40)),
        (0.8, (40, 64), (4, 16, 36, 48)),
        (1.0, (16, 16), (0, 0, 16, 16)),
    ],
)
def test_maps_lie_over_what_the_model_sees(crop, size, box):
    """The largest central square, or a share of it; the rest has 0."""
    model = raw_model(crop=crop)
    found = explain(model, photo(*size), "attention")
    assert found.maps.shape == (1, *size)
    assert found.pictures[0].size == size
    assert found.pictures[0].box == box
    assert found.token_maps.min() > 0
    assert_token_rectangles(found.maps[0], found.token_maps[0], box)


def test_a_model_of_oblong_images():
    """The box has the proportions of the model's images."""
    model = raw_model(size=(16, 32))
    found = explain(model, photo(40, 64), "attention")
    assert found.token_maps.shape == (1, 4, 8)
    assert found.pictures[0].box == (4, 0, 36, 64)
    expected = np.kron(found.token_maps[0], np.ones((8, 8)))
    np.testing.assert_array_equal(found.maps[0, 4:36], expected)
    assert not found.maps[0, :4].any()
    assert not found.maps[0, 36:].any()


def test_sides_that_tokens_do_not_divide(model):
    """Every pixel inside has the value of some token, in order, and none is left."""
    found = explain(model, photo(37, 61), "attention")
    top, left, bottom, right = found.pictures[0].box
    assert (bottom - top, right - left) == (37, 37)
    inside = found.maps[0, top:bottom, left:right]
    rows = np.floor(np.arange(37) * 4 / 37).astype(int)
    np.testing.assert_array_equal(inside, found.token_maps[0][rows][:, rows])
    outside = found.maps[0].copy()
    outside[top:bottom, left:right] = 0
    assert not outside.any()


def test_what_the_model_does_not_see_does_not_count(model):
    picture = photo(40, 64)
    changed = picture.copy()
    changed[:, :12], changed[:, 52:] = 0, 255
    first, second = (explain(model, x, "gradient", 1) for x in (picture, changed))
    np.testing.assert_array_equal(first.token_maps, second.token_maps)


def test_different_sizes_make_a_list(model):
    sizes = [(40, 64), (16, 16), (64, 40)]
    found = explain(model, [photo(*size) for size in sizes], "rollout")
    assert isinstance(found.maps, list)
    assert [x.shape for x in found.maps] == sizes
    # The model makes them equal, and so are the maps over tokens.
    assert found.token_maps.shape == (3, 4, 4)
    assert found.names == ["image 0", "image 1", "image 2"]
    alone = explain(model, photo(64, 40), "rollout")
    np.testing.assert_allclose(found.maps[2], alone.maps[0], atol=1e-6)


def test_the_model_sees_what_predict_sees(model):
    picture = photo(40, 64)
    expected = predict(model, picture[None].astype("float32"))
    found = explain(model, picture)
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-4)


def test_files_folders_arrays_and_images_of_pillow(model, tmp_path):
    """One picture in many forms has one map."""
    pixels = photo()
    folder = tmp_path / "folder" / "deeper"
    folder.mkdir(parents=True)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    Image.fromarray(pixels).save(folder / "b.bmp")
    expected = explain(model, pixels, "attention")
    forms = {
        "path": tmp_path / "a.png",
        "text": str(tmp_path / "a.png"),
        "folder": tmp_path / "folder",
        "pillow": Image.fromarray(pixels),
        "floats": pixels.astype("float32"),
        "up to 1": pixels / 255,
        "integers": pixels.astype("int64"),
        "list": [pixels],
        "batch": pixels[None],
    }
    for form, source in forms.items():
        found = explain(model, source, "attention")
        # Floats are not rounded when they are resized.
        close = {"atol": 1e-4, "err_msg": form}
        np.testing.assert_allclose(found.maps, expected.maps, **close)
    found = explain(model, [*forms.values()][:4], "attention")
    names = [str(tmp_path / "a.png")] * 2 + [str(folder / "b.bmp"), "image 3"]
    assert found.names == names


def test_a_picture_is_drawn_as_the_model_sees_it(model):
    """Whatever its numbers are: those of black and white, or a little above 1."""
    mask = photo()[..., :1].repeat(3, axis=2) > 127
    white = 255 * mask.astype("uint8")
    expected = explain(model, white, "attention")
    resized = np.where(mask, np.float32(1.0004), 0)
    dark = mask.astype("int64")
    for source, seen in ((mask, white), (resized, white), (dark, dark)):
        found = explain(model, source, "attention")
        np.testing.assert_array_equal(found.pictures[0].pixels(), seen)
        if seen is white:
            np.testing.assert_allclose(found.maps, expected.maps, atol=1e-5)


@pytest.mark.parametrize("channels", [2, 4])
def test_other_channels_than_colors_are_drawn_gray(channels, tmp_path):
    model = raw_model(channels=channels)
    pixels = photo(16, 16, channels=channels)
    found = explain(model, pixels, "attention")
    drawn = found.pictures[0].pixels()
    assert drawn.shape == (16, 16, 1)
    np.testing.assert_allclose(drawn[..., 0], pixels.mean(axis=-1), atol=0.51)
    found.plot()
    found.save(tmp_path)


def test_gray_pictures(tmp_path):
    model = raw_model(channels=1)
    pixels = photo(32, 32, channels=1)
    Image.fromarray(pixels[..., 0]).save(tmp_path / "gray.png")
    expected = explain(model, pixels, "attention").maps
    for source in (pixels[..., 0], tmp_path / "gray.png"):
        found = explain(model, source, "attention")
        assert found.maps.shape == (1, 32, 32)
        np.testing.assert_array_equal(found.maps, expected)


def test_a_gray_file_for_a_model_of_colors(model, tmp_path):
    gray = photo(32, 32, channels=1)
    Image.fromarray(gray[..., 0]).save(tmp_path / "gray.png")
    found = explain(model, tmp_path / "gray.png", "attention")
    expected = explain(model, gray.repeat(3, axis=2), "attention")
    np.testing.assert_allclose(found.maps, expected.maps, atol=1e-6)


def test_a_picture_that_lies_on_its_side(model, tmp_path):
    """What a camera stored turned is explained, and mapped, upright."""
    pixels = photo(64, 40)
    stored = Image.fromarray(np.ascontiguousarray(np.rot90(pixels)))
    orientation = Image.Exif()
    orientation[0x0112] = 6
    stored.save(tmp_path / "turned.png", exif=orientation)
    found = explain(model, tmp_path / "turned.png", "attention")
    expected = explain(model, pixels, "attention")
    assert found.pictures[0].size == (64, 40)
    np.testing.assert_allclose(found.maps, expected.maps, atol=1e-6)


def test_floats_are_what_a_plain_model_predicts_from():
    """A model that does not normalize takes floats as `predict` does, and pixels not.

    Integers are pixels, which are normalized for it by the given mean and deviation.
    """
    model, x = small_model("CCT"), images(2, 16, 16, 3)
    found = explain(model, x)
    np.testing.assert_allclose(found.probabilities, predict(model, x), atol=1e-5)
    pixels = photo(16, 16)
    options = {"mean": (0.1, 0.2, 0.3), "std": (0.5, 0.6, 0.7)}
    found = explain(model, pixels, **options)
    prepared = (pixels / 255 - options["mean"]) / options["std"]
    expected = predict(model, prepared[None].astype("float32"))
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-5)
    assert len(found.notes) == 1
    assert "names of its classes" in found.notes[0]


@pytest.mark.backend
def test_tensors_are_arrays():
    """What `model.predict` takes is explained alike, a tensor of the backend too."""
    model, x = small_model("CCT"), images(2, 16, 16, 3)
    found = explain(model, keras.ops.convert_to_tensor(x), "attention")
    np.testing.assert_allclose(found.probabilities, predict(model, x), atol=1e-5)


def test_broken_files_are_told_and_left_out(model, tmp_path):
    Image.fromarray(photo()).save(tmp_path / "good.png")
    Image.fromarray(photo(seed=1)).save(tmp_path / "other.png")
    broken, missing = tmp_path / "broken.png", tmp_path / "missing.png"
    broken.write_bytes(b"\x89PNG no picture")
    sources = [tmp_path / "good.png", broken, missing, tmp_path / "other.png"]
    found = explain(model, sources, "gradient", [0, 1, 2, 3])
    assert found.names == [str(sources[0]), str(sources[3])]
    assert list(found.targets) == [0, 3]
    assert set(found.errors) == {str(broken), str(missing)}
    assert "broken.png" in found.errors[str(broken)]
    assert "no such file" in found.errors[str(missing)]
    alone = explain(model, sources[3], "gradient", 3)
    np.testing.assert_allclose(found.token_maps[1], alone.token_maps[0], atol=1e-6)


def test_nothing_that_can_be_read(model, tmp_path):
    (tmp_path / "broken.png").write_text("no picture")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="broken.png"):
        explain(model, tmp_path / "broken.png")
    with pytest.raises(DataError, match="no such file"):
        explain(model, tmp_path / "missing.png")
    with pytest.raises(DataError, match="no image in"):
        explain(model, tmp_path / "empty")
    with pytest.raises(DataError, match="3 channels"):
        explain(model, photo(channels=1))
    for bad in (np.nan, np.inf):
        for other in (model, small_model("CCT")):
            with pytest.raises(DataError, match="finite.*NaN or infinity"):
                explain(other, np.full((16, 16, 3), bad, "float32"))
    with pytest.raises(DataError, match="0 to 255. Received: 0 to 65535"):
        explain(model, np.array([0, 65535] * 6, "uint16").reshape(2, 2, 3))
    with pytest.raises(DataError, match=r"\(16, 16, 3\).*Received: \(8, 16, 3\)"):
        explain(small_model("CCT"), images(8, 16, 3))


def test_pictures_of_any_size_need_arrays(tmp_path):
    model = small_model("CCT", input_shape=(None, None, 3), positional_embedding=None)
    Image.fromarray(photo()).save(tmp_path / "a.png")
    with pytest.raises(DataError, match="any size.*arrays of floats"):
        explain(model, tmp_path / "a.png")


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")
def test_maps_of_an_exported_file(tmp_path):
    """A file that was exported with maps computes those of SeqPool."""
    path = tmp_path / "digits.onnx"
    cct_keras.export("cct_2_3x2_32.digits", path, maps=True)
    pixels = np.stack(list(cct_keras.load_data("digits").test.images[:20]))
    found = explain("cct_2_3x2_32.digits", pixels, "seqpool")
    exported = Classifier(path)
    np.testing.assert_allclose(exported.maps(pixels), found.token_maps, atol=1e-4)
    np.testing.assert_allclose(exported(pixels), found.probabilities, atol=1e-4)
