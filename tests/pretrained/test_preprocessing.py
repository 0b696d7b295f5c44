"""Raw pixels in, and the constants of known weights."""

import keras
import numpy as np
import pytest
from small import images
from small import predict

import cct_keras


def pixels(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype="uint8")


def test_a_model_for_raw_pixels_is_the_model_behind_its_preprocessing():
    x = pixels(2, 32, 32, 3)
    plain = cct_keras.create_model("cct_2_3x2_32", weights="cifar10_jpeg")
    raw = cct_keras.create_model(
        "cct_2_3x2_32", weights="cifar10_jpeg", include_preprocessing=True
    )
    assert raw.input_shape == (None, None, None, 3)
    expected = predict(plain, cct_keras.preprocess_input(x, "cifar10_jpeg"))
    np.testing.assert_allclose(predict(raw, x), expected, atol=1e-5)
    names = raw.get_layer("preprocessing").class_names
    assert list(names) == cct_keras.class_names("cifar10_jpeg")
    same = cct_keras.load_classifier("cct_2_3x2_32.cifar10_jpeg")
    np.testing.assert_array_equal(predict(same, x), predict(raw, x))


def test_without_weights_the_range_is_minus_one_to_one():
    model = cct_keras.create_model(
        "cvt_2_4_32", include_preprocessing=True, num_classes=3, input_shape=(8, 12, 1)
    )
    layer = model.get_layer("preprocessing")
    assert (layer.mean, layer.std, layer.image_size) == ((0.5,), (0.5,), (8, 12))
    assert layer.class_names is None
    y = keras.ops.convert_to_numpy(layer(np.array([0, 255.0]).reshape(2, 1, 1, 1)))
    np.testing.assert_allclose(y[:, 0, 0, 0], [-1, 1], atol=1e-6)


@pytest.mark.parametrize("name", ["num_classes", "classes"])
def test_other_classes_do_not_keep_the_names(name):
    with pytest.warns(UserWarning, match="head"):
        model = cct_keras.create_model(
            "cct_2_3x2_32", weights="mnist", include_preprocessing=True, **{name: 3}
        )
    layer = model.get_layer("preprocessing")
    assert layer.class_names is None
    assert layer.mean == (0.1307,)
    assert model.input_shape == (None, None, None, 1)


def test_what_does_not_go_together_is_refused():
    tensor = keras.Input((32, 32, 3))
    with pytest.raises(ValueError, match="input_tensor"):
        cct_keras.create_model(
            "cct_2_3x2_32", include_preprocessing=True, input_tensor=tensor
        )
    with pytest.raises(ValueError, match="channels_first"):
        cct_keras.create_model(
            "cct_2_3x2_32", include_preprocessing=True, data_format="channels_first"
        )


def test_preprocess_input_returns_what_it_was_given():
    x = pixels(1, 2, 2, 3)
    y = cct_keras.preprocess_input(x, "cifar10")
    assert isinstance(y, np.ndarray)
    assert y.dtype == np.float32
    expected = (x / 255 - [0.4914, 0.4822, 0.4465]) / [0.2470, 0.2435, 0.2616]
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-6)
    tensor = cct_keras.preprocess_input(keras.ops.convert_to_tensor(x), "cifar10")
    assert keras.ops.is_tensor(tensor)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(tensor), y, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), r"one of .*cifar10.*imagenet.*Received: weights=None"),
        (("svhn",), "'svhn'"),
        (("mnist",), r"1 channel.*\(1, 2, 2, 3\)"),
    ],
)
def test_preprocess_input_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        cct_keras.preprocess_input(pixels(1, 2, 2, 3), *arguments)


# === Habits from elsewhere ===


def test_classes_is_another_name_of_num_classes():
    small = {"num_layers": 1, "num_heads": 2, "embedding_dim": 16}
    for family in (cct_keras.CVT, cct_keras.ViTLite):
        assert family(classes=3, **small).output_shape == (None, 3)
        with pytest.raises(ValueError, match="num_classes=4, classes=3"):
            family(4, classes=3, **small)
    model = cct_keras.create_model("cct_2_3x2_32", classes=3)
    assert model.output_shape == (None, 3)
    with pytest.raises(ValueError, match="`classes` is another name"):
        cct_keras.create_model("cct_2_3x2_32", classes=3, num_classes=4)


@pytest.mark.parametrize("none", [None, "none"])
def test_no_positions_by_either_name(none):
    model = cct_keras.create_model("cvt_2_4_32", positional_embedding=none)
    assert "position_embedding" not in {layer.name for layer in model.layers}


def test_small_images_in_a_model_for_large_ones():
    with pytest.warns(UserWarning, match=r"32 x 32 leave 4 tokens.*'cct_7_3x1_32'"):
        cct_keras.CCT(10, (32, 32, 3), num_layers=1)


def test_a_run_folder_is_a_start_for_a_model(tmp_path):
    model = cct_keras.create_model(
        "cct_2_3x2_32", num_classes=3, input_shape=(16, 20, 1)
    )
    with pytest.raises(ValueError, match=r"no model\.keras"):
        cct_keras.create_model("cct_2_3x2_32", weights=tmp_path)
    model.save(tmp_path / "model.keras")
    again = cct_keras.create_model("cct_2_3x2_32", weights=tmp_path)
    x = images(2, 16, 20, 1)
    np.testing.assert_array_equal(predict(again, x), predict(model, x))


@pytest.mark.parametrize("call", [cct_keras.preprocess_input, cct_keras.class_names])
def test_a_misspelled_tag_is_refused(call):
    arguments = (pixels(1, 2, 2, 3),) if call is cct_keras.preprocess_input else ()
    with pytest.raises(ValueError, match=r"'cifar10_jpg'.*cifar10_jpeg"):
        call(*arguments, "cifar10_jpg")
