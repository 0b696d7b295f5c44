"""Files that version 0.1 wrote load, and compute what they computed then."""

import pathlib

import keras
import numpy as np
import pytest

import cct_keras
from cct_keras.models.inspection import architecture_of

FOLDER = pathlib.Path(__file__).parents[1] / "golden" / "version_0_1"
MODELS = sorted(path.stem for path in FOLDER.glob("*.keras"))
WEIGHTS = sorted(path.name for path in FOLDER.glob("*.weights.h5"))
SIZE = {"num_layers": 2, "num_heads": 2, "mlp_ratio": 1, "embedding_dim": 16}
BUILD = {
    "cct": lambda **k: cct_keras.CCT(kernel_size=3, **k),
    "cvt_no_positions": lambda **k: cct_keras.CVT(
        patch_size=8, positional_embedding=None, **k
    ),
    "vit_lite_sine": lambda **k: cct_keras.ViTLite(
        patch_size=4, positional_embedding="sine", **k
    ),
    "vit": lambda **k: cct_keras.ViT(patch_size=8, epsilon=1e-12, **k),
    "deit_distilled": lambda **k: cct_keras.DeiT(patch_size=8, distilled=True, **k),
}


def check(model, name):
    stored = np.load(FOLDER / f"{name}.npz")
    output = keras.ops.convert_to_numpy(model(stored["x"], training=False))
    np.testing.assert_allclose(output, stored["y"], atol=1e-6)


@pytest.mark.backend
@pytest.mark.parametrize("name", MODELS)
def test_a_model_loads(name):
    check(keras.models.load_model(FOLDER / f"{name}.keras"), name)


@pytest.mark.backend
@pytest.mark.parametrize("file", WEIGHTS)
def test_weights_load(file):
    name = file.partition(".")[0]
    shape = {"num_classes": 5, "input_shape": (16, 24, 3), **SIZE}
    check(BUILD[name](**shape, weights=FOLDER / file), name)
    model = BUILD[name](**shape)
    model.load_weights(FOLDER / file)
    check(model, name)


def test_a_model_is_a_start(recwarn):
    """Adapters are merged; the head for other classes is new."""
    shape = {"num_classes": 5, "input_shape": (16, 24, 3), **SIZE}
    path = FOLDER / "cct_lora.keras"
    model = cct_keras.CCT(kernel_size=3, num_conv_layers=1, **shape, weights=path)
    check(model, "cct_lora")
    assert not recwarn.list


def test_what_train_wrote():
    model = cct_keras.load_classifier(FOLDER / "trained.keras")
    check(model, "trained")
    named = cct_keras.create_model(
        "cct_2_3x2_32", weights=FOLDER / "trained.keras", include_preprocessing=True
    )
    assert architecture_of(named).get("input_shape") == (12, 12, 3)
    check(named, "trained")
    names = named.get_layer("preprocessing").class_names
    assert names == model.get_layer("preprocessing").class_names
