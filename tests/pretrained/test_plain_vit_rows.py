"""The published plain ViTs by name: files of the real sizes, from a real server.

What they compute is compared in `tests/converter/test_plain_vits.py`; here the rows of
the catalog are: address, architecture, classes, settings that no file tells.
"""

import keras
import numpy as np
import pytest
from weights_server import as_bytes

import cct_keras
from cct_keras.cli.main import main
from cct_keras.converter.formats import open_checkpoint
from cct_keras.converter.infer import infer
from cct_keras.converter.timm import TABLE
from cct_keras.models.architecture import Architecture


def state_of(variant, **changes):
    """A state dict by timm's names, with zeros for weights."""
    architecture = Architecture.from_variant(variant, **changes)
    state = {}
    for path, shape in architecture.weight_shapes().items():
        if path.endswith("kernel"):
            shape = (*shape[:-3:-1], *shape[:-2]) if len(shape) == 4 else shape[::-1]
        state[TABLE.name_of(path)] = np.zeros(shape, "float16")
    return state


def dinov2(variant):
    """As its authors name it, at the size at which its training ended."""
    state = state_of(variant, input_shape=(518, 518, 3))
    if "reg_token" in state:
        state["register_tokens"] = state.pop("reg_token")
    state["mask_token"] = np.zeros((1, 384), "float16")
    return state


def deit3(variant):
    return {
        name.replace("ls1.gamma", "gamma_1").replace("ls2.gamma", "gamma_2"): array
        for name, array in state_of(variant).items()
    }


def clip(variant):
    """As timm has it: the projection is a head."""
    state = state_of(variant)
    state["head.weight"] = state.pop("projection.weight")
    state["head.bias"] = np.zeros(512, "float16")
    return state


FILES = {
    "dinov2_small.lvd142m": (
        "/dinov2/dinov2_vits14/dinov2_vits14_pretrain.pth",
        dinov2,
        (None, 257, 384),
        {"interpolation": "bicubic_offset", "epsilon": 1e-6, "activation": "gelu"},
    ),
    "dinov2_small_reg4.lvd142m": (
        "/dinov2/dinov2_vits14/dinov2_vits14_reg4_pretrain.pth",
        dinov2,
        (None, 261, 384),
        {"interpolation": "bicubic_antialias", "epsilon": 1e-6, "activation": "gelu"},
    ),
    "vit_small_patch16_224.dino": (
        "/dino/dino_deitsmall16_pretrain/dino_deitsmall16_pretrain.pth",
        lambda variant: state_of(variant, num_classes=0),
        (None, 197, 384),
        {"interpolation": "bicubic_offset", "epsilon": 1e-6, "activation": "gelu"},
    ),
    "deit3_small_patch16_384.imagenet": (
        "/deit_3_small_384_1k.pth",
        deit3,
        (None, 1000),
        {"interpolation": "bicubic", "epsilon": 1e-6, "activation": "gelu"},
    ),
    "clip_base_patch32_224.openai": (
        "/timm/vit_base_patch32_clip_224.openai/resolve/main/model.safetensors",
        clip,
        (None, 512),
        {"interpolation": "bicubic", "epsilon": 1e-5, "activation": "quick_gelu"},
    ),
    "siglip_base_patch16_224.webli": (
        "/timm/vit_base_patch16_siglip_224.webli/resolve/main/model.safetensors",
        state_of,
        (None, 768),
        {"interpolation": "bicubic", "epsilon": 1e-6, "activation": "gelu_tanh"},
    ),
}


@pytest.mark.integration
@pytest.mark.parametrize("name", FILES)
def test_by_name(server, name):
    url, make, output_shape, settings = FILES[name]
    variant, _, tag = name.partition(".")
    server.files[url] = as_bytes(make(variant))
    model = cct_keras.create_model(variant, weights=tag)
    assert model.output_shape == output_shape
    assert model.input_shape[1:3] == (int("384" in variant) * 160 + 224,) * 2
    block = model.get_layer("block_0")
    assert block.epsilon == settings["epsilon"]
    assert block.activation == settings["activation"]
    interpolation = model.get_layer("position_embedding").interpolation
    assert interpolation == settings["interpolation"]
    # Weights of zeros: the file was read, not a fresh model made.
    assert not np.any(block.attention.qkv.kernel)


@pytest.mark.parametrize(
    "variant",
    [
        name
        for name in cct_keras.list_models()
        if name.startswith(("dinov2", "deit3", "siglip"))
    ],
)
def test_a_variant_is_found_by_its_tensors(variant):
    assert infer(open_checkpoint(state_of(variant))).variant == variant


@pytest.mark.integration
def test_a_variant_alone_names_its_only_weights(server):
    server.files[FILES["dinov2_small.lvd142m"][0]] = as_bytes(dinov2("dinov2_small"))
    model = cct_keras.create_model(
        "dinov2_small",
        weights="dinov2_small",
        include_preprocessing=True,
        pooling="avg",
    )
    assert model.output_shape == (None, 384)
    layer = model.get_layer("preprocessing")
    np.testing.assert_allclose(layer.mean, (0.485, 0.456, 0.406))
    assert isinstance(model.get_layer("pool"), keras.layers.GlobalAveragePooling1D)
    with pytest.warns(UserWarning, match="no weights for the head"):
        model = cct_keras.create_model(
            "dinov2_small", weights="dinov2_small.lvd142m", num_classes=3
        )
    assert model.output_shape == (None, 3)
    assert len(server.requests) == 1


@pytest.mark.integration
def test_a_probe_by_name(server, capsys):
    """One command from nothing: what it brings is said before it is brought."""
    generator = np.random.default_rng(0)
    state = {
        name: (0.02 * generator.standard_normal(array.shape)).astype("float16")
        for name, array in dinov2("dinov2_small").items()
    }
    server.files[FILES["dinov2_small.lvd142m"][0]] = as_bytes(state)
    command = ["probe", "digits", "--weights", "dinov2_small", "--image-size", "14"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    first, second = (x for x in lines if x.startswith("weights: "))
    assert first.endswith("has to be downloaded first, about 87 MB")
    assert second == (
        "weights: dinov2_small.lvd142m, dinov2_small, 22,056,192 parameters without a "
        "head; DINOv2: the best features for few images: k-NN and probes without "
        "fine-tuning; 81.1 % linear probe on ImageNet"
    )
    assert "features: the class token" in "\n".join(lines)
    assert any(line.startswith("k-NN, k = ") for line in lines)
    assert main(command) == 0
    again = capsys.readouterr().out
    assert "downloaded" not in again
    assert "found in the cache" in again
    assert len(server.requests) == 1


def test_several_weights_of_a_variant_are_named():
    expected = (
        r"vit_7_4_32 has several weights; name one of: vit_7_4_32\.cifar10_legacy"
    )
    with pytest.raises(ValueError, match=expected):
        cct_keras.create_model("vit_7_4_32", weights="vit_7_4_32")
    with pytest.raises(ValueError, match="has no weights 'typo'"):
        cct_keras.create_model("dinov2_small", weights="dinov2_small.typo")


@pytest.mark.parametrize("name", ["dinov2_smal", "DINOv2_Small", "dinov2-small"])
def test_a_misspelled_variant_is_suggested(name, capsys):
    assert main(["probe", "digits", "--weights", name]) == 2
    assert "Did you mean: dinov2_small" in capsys.readouterr().err
    with pytest.raises(ValueError, match="Did you mean: dinov2_small"):
        cct_keras.create_model(weights=name)


def test_a_body_has_no_classes():
    with pytest.raises(ValueError, match="no names are known of the classes"):
        cct_keras.class_names("lvd142m")


def test_pixels_by_the_weights_own_name():
    """ViT and DeiT share a tag, and normalize otherwise."""
    gray = np.full((1, 2, 2, 3), 127.5, "float32")
    vit = cct_keras.preprocess_input(gray, "vit_base_patch16_224.imagenet")
    np.testing.assert_allclose(vit, 0.0, atol=1e-6)
    deit = cct_keras.preprocess_input(gray, "deit_base_patch16_224.imagenet")
    np.testing.assert_array_equal(deit, cct_keras.preprocess_input(gray, "imagenet"))
    red = cct_keras.preprocess_input(gray, "clip_base_patch32_224")[0, 0, 0, 0]
    np.testing.assert_allclose(red, (0.5 - 0.48145466) / 0.26862954, rtol=1e-5)
