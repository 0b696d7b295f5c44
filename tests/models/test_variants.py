"""The named variants, to the parameter."""

import pytest

import cct_keras
from cct_keras.models.cost import variant_cost

PARAMETERS = {
    "cct_2_3x2_32": 283_723,
    "cct_2_3x3_32": 314_443,
    "cct_4_3x2_32": 482_123,
    "cct_6_3x1_32": 3_233_803,
    "cct_6_3x2_32": 3_326_923,
    "cct_7_3x1_32": 3_760_139,
    "cct_7_3x1_32_c100": 3_783_269,
    "cct_7_3x2_32": 3_853_259,
    "cct_7_7x2_224": 4_573_735,
    "cct_14_7x2_224": 22_367_273,
    "cct_14_7x2_384": 22_513_193,
    "cct_14_7x2_384_fl": 22_167_463,
    "cvt_2_4_32": 214_539,
    "cvt_4_4_32": 412_939,
    "cvt_6_4_32": 3_190_283,
    "cvt_7_4_32": 3_716_619,
    "cvt_7_8_32": 3_741_195,
    "cvt_8_4_32": 4_242_955,
    "vit_2_4_32": 214_666,
    "vit_4_4_32": 413_066,
    "vit_6_4_32": 3_190_538,
    "vit_7_4_32": 3_716_874,
    "vit_7_8_32": 3_741_450,
    "vit_tiny_patch16_224": 5_717_416,
    "vit_tiny_patch16_384": 5_790_376,
    "vit_small_patch16_224": 22_050_664,
    "vit_small_patch32_224": 22_878_952,
    "vit_small_patch16_384": 22_196_584,
    "vit_small_patch32_384": 22_915_432,
    "vit_base_patch8_224": 86_576_872,
    "vit_base_patch16_224": 86_567_656,
    "vit_base_patch32_224": 88_224_232,
    "vit_large_patch16_224": 304_326_632,
    "vit_large_patch32_224": 306_535_400,
    "vit_base_patch16_384": 86_859_496,
    "vit_base_patch32_384": 88_297_192,
    "vit_large_patch16_384": 304_715_752,
    "vit_large_patch32_384": 306_632_680,
    "vit_huge_patch14_224": 632_045_800,
    "deit_tiny_patch16_224": 5_717_416,
    "deit_small_patch16_224": 22_050_664,
    "deit_base_patch16_224": 86_567_656,
    "deit_base_patch16_384": 86_859_496,
    "deit_tiny_distilled_patch16_224": 5_910_800,
    "deit_small_distilled_patch16_224": 22_436_432,
    "deit_base_distilled_patch16_224": 87_338_192,
    "deit_base_distilled_patch16_384": 87_630_032,
    # What timm has.
    "deit3_small_patch16_224": 22_059_496,
    "deit3_base_patch16_224": 86_585_320,
    "deit3_small_patch16_384": 22_205_416,
    "deit3_base_patch16_384": 86_877_160,
    # What `transformers` has, without the mask of DINOv2's training.
    "dinov2_small": 21_628_800,
    "dinov2_base": 85_724_928,
    "dinov2_small_reg4": 21_630_336,
    "dinov2_base_reg4": 85_728_000,
    "clip_base_patch16_224": 86_192_640,
    "clip_base_patch32_224": 87_849_216,
    "siglip_base_patch16_224": 92_884_224,
}
# What bodies without classes return for an image.
BODIES = {
    "dinov2_small": (257, 384),
    "dinov2_base": (257, 768),
    "dinov2_small_reg4": (261, 384),
    "dinov2_base_reg4": (261, 768),
    "clip_base_patch16_224": (512,),
    "clip_base_patch32_224": (512,),
    "siglip_base_patch16_224": (768,),
}
CLASSES = {"c100": 100, "fl": 102}


def test_all_variants_are_here():
    names = cct_keras.list_models()
    assert len(names) == len(set(names)) == 35 + 15 + 7 + 5 + 11 + 1
    assert {name.replace("_sine", "") for name in names} == set(PARAMETERS)


@pytest.mark.parametrize("name", cct_keras.list_models())
def test_parameters(name):
    expected = PARAMETERS[name.replace("_sine", "")]
    assert variant_cost(name).parameters == expected


def large_ones_later(names):
    """Those of more than a million parameters are left to the integration tests."""
    large = {name for name in names if variant_cost(name).parameters > 1e6}
    marks = {name: pytest.mark.integration if name in large else () for name in names}
    return [pytest.param(name, marks=marks[name]) for name in names]


@pytest.mark.parametrize("name", large_ones_later(cct_keras.list_models()))
def test_variant(name):
    expected = PARAMETERS[name.replace("_sine", "")]
    is_plain = "patch" in name or "dinov2" in name
    if is_plain:
        # Hundreds of megabytes less: what a second block adds, as often as needed.
        one, model = (cct_keras.create_model(name, num_layers=n) for n in (1, 2))
        block = model.count_params() - one.count_params()
        depth = {"large": 24, "huge": 32}.get(name.split("_")[1], 12)
        assert one.count_params() + (depth - 1) * block == expected
    else:
        model = cct_keras.create_model(name)
        assert model.count_params() == expected
    size = 224 if "dinov2" in name else int(name.split("_")[-1 if is_plain else 3])
    assert model.input_shape == (None, size, size, 3)
    kind = "sine" if "sine" in name else "learnable"
    assert model.get_layer("position_embedding").kind == kind
    assert model.name == name
    if name in BODIES:
        assert model.output_shape == (None, *BODIES[name])
        model = cct_keras.create_model(name, num_layers=1, num_classes=3)
        assert model.output_shape == (None, 3)
        return
    tag = name.rsplit("_", 1)[-1]
    default = {32: 10, 224: 102 if "7_7x2" in name else 1000, 384: 1000}[size]
    assert model.output_shape == (None, CLASSES.get(tag, default))


@pytest.mark.parametrize(
    ("name", "macs", "attention"),
    [("cct_14_7x2_224", 5.11, 0.41), ("cct_14_7x2_384", 15.01, 3.57)],
)
def test_macs_by_the_papers_count(name, macs, attention):
    cost = variant_cost(name)
    assert round(cost.macs / 1e9, 2) == macs
    assert round(cost.attention_macs / 1e9, 2) == attention


@pytest.mark.parametrize("name", ["cct_7_3x1_32", "cvt_7_4_32", "vit_7_4_32"])
def test_cost_at_another_size(name):
    model = cct_keras.create_model(name, input_shape=(40, 64, 3), num_classes=3)
    cost = variant_cost(name, num_classes=3, image_size=(40, 64))
    assert cost.parameters == model.count_params()
    assert cost.tokens == model.get_layer("block_0").output.shape[1]


def test_patterns():
    assert cct_keras.list_models("cct_14_*") == [
        "cct_14_7x2_224",
        "cct_14_7x2_384",
        "cct_14_7x2_384_fl",
    ]
    assert len(cct_keras.list_models("vit_[0-9]*")) == 9
    assert len(cct_keras.list_models("deit_*")) == 8
    assert cct_keras.list_models("resnet*") == []


def test_unknown_names_bring_near_matches():
    with pytest.raises(ValueError, match="'cct_7_3x1'.*cct_7_3x1_32"):
        cct_keras.create_model("cct_7_3x1")
    with pytest.raises(TypeError, match="drop_rate.*dropout_rate"):
        cct_keras.create_model("cct_2_3x2_32", drop_rate=0.1)


def test_overrides():
    model = cct_keras.create_model(
        "cct_2_3x2_32_sine", num_classes=3, input_shape=(20, 24, 1), name="mine"
    )
    assert (model.name, model.output_shape) == ("mine", (None, 3))
    assert model.input_shape == (None, 20, 24, 1)
