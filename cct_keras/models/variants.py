"""The named variants of the papers, as rows of plain data."""

import types
from collections.abc import Mapping
from typing import NamedTuple

from cct_keras.models.families import FAMILIES
from cct_keras.spelling import did_you_mean


class Size(NamedTuple):
    """One row of a paper's table of sizes."""

    num_layers: int
    num_heads: int
    mlp_ratio: int
    embedding_dim: int


SIZES = {
    2: Size(2, 2, 1, 128),
    4: Size(4, 2, 1, 128),
    6: Size(6, 4, 2, 256),
    7: Size(7, 4, 2, 256),
    8: Size(8, 4, 2, 256),
    14: Size(14, 6, 3, 384),
    "tiny": Size(12, 3, 4, 192),
    "small": Size(12, 6, 4, 384),
    "base": Size(12, 12, 4, 768),
    "large": Size(24, 16, 4, 1024),
    "huge": Size(32, 16, 4, 1280),
}


class Variant(NamedTuple):
    """One named model.

    `kernel` is the patch size in families of patches; without classes it is a body;
    `arguments` are further ones of the family's constructor.
    """

    family: str
    size: int | str
    kernel: int
    stages: int
    image_size: int
    positional_embedding: str
    num_classes: int
    arguments: Mapping = types.MappingProxyType({})

    @property
    def layers(self) -> int:
        """Number of encoder blocks."""
        return SIZES[self.size].num_layers


DISTILLED = {"distilled": True}
# What makes a plain ViT one of these.
DINOV2 = {"layer_scale": 1e-5}
DINOV2_REGISTERS = {"layer_scale": 1e-5, "num_registers": 4}
DEIT3 = {"layer_scale": 1e-6, "class_token_position": False}
CLIP = {
    "patch_bias": False,
    "norm_before_blocks": True,
    "activation": "quick_gelu",
    "epsilon": 1e-5,
}
SIGLIP = {"top_pooling": "map", "activation": "gelu_tanh"}

# fmt: off
VARIANTS = {
    #                         family     size  kernel  stages  image  positions  classes
    "cct_2_3x2_32":           Variant("CCT",      2, 3, 2,  32, "learnable",   10),
    "cct_2_3x2_32_sine":      Variant("CCT",      2, 3, 2,  32, "sine",        10),
    "cct_2_3x3_32":           Variant("CCT",      2, 3, 3,  32, "learnable",   10),
    "cct_4_3x2_32":           Variant("CCT",      4, 3, 2,  32, "learnable",   10),
    "cct_4_3x2_32_sine":      Variant("CCT",      4, 3, 2,  32, "sine",        10),
    "cct_6_3x1_32":           Variant("CCT",      6, 3, 1,  32, "learnable",   10),
    "cct_6_3x1_32_sine":      Variant("CCT",      6, 3, 1,  32, "sine",        10),
    "cct_6_3x2_32":           Variant("CCT",      6, 3, 2,  32, "learnable",   10),
    "cct_6_3x2_32_sine":      Variant("CCT",      6, 3, 2,  32, "sine",        10),
    "cct_7_3x1_32":           Variant("CCT",      7, 3, 1,  32, "learnable",   10),
    "cct_7_3x1_32_sine":      Variant("CCT",      7, 3, 1,  32, "sine",        10),
    "cct_7_3x1_32_c100":      Variant("CCT",      7, 3, 1,  32, "learnable",  100),
    "cct_7_3x1_32_sine_c100": Variant("CCT",      7, 3, 1,  32, "sine",       100),
    "cct_7_3x2_32":           Variant("CCT",      7, 3, 2,  32, "learnable",   10),
    "cct_7_3x2_32_sine":      Variant("CCT",      7, 3, 2,  32, "sine",        10),
    "cct_7_7x2_224":          Variant("CCT",      7, 7, 2, 224, "learnable",  102),
    "cct_7_7x2_224_sine":     Variant("CCT",      7, 7, 2, 224, "sine",       102),
    "cct_14_7x2_224":         Variant("CCT",     14, 7, 2, 224, "learnable", 1000),
    "cct_14_7x2_384":         Variant("CCT",     14, 7, 2, 384, "learnable", 1000),
    "cct_14_7x2_384_fl":      Variant("CCT",     14, 7, 2, 384, "learnable",  102),
    "cvt_2_4_32":             Variant("CVT",      2, 4, 1,  32, "learnable",   10),
    "cvt_2_4_32_sine":        Variant("CVT",      2, 4, 1,  32, "sine",        10),
    "cvt_4_4_32":             Variant("CVT",      4, 4, 1,  32, "learnable",   10),
    "cvt_4_4_32_sine":        Variant("CVT",      4, 4, 1,  32, "sine",        10),
    "cvt_6_4_32":             Variant("CVT",      6, 4, 1,  32, "learnable",   10),
    "cvt_6_4_32_sine":        Variant("CVT",      6, 4, 1,  32, "sine",        10),
    "cvt_7_4_32":             Variant("CVT",      7, 4, 1,  32, "learnable",   10),
    "cvt_7_4_32_sine":        Variant("CVT",      7, 4, 1,  32, "sine",        10),
    "cvt_7_8_32":             Variant("CVT",      7, 8, 1,  32, "learnable",   10),
    "cvt_8_4_32":             Variant("CVT",      8, 4, 1,  32, "learnable",   10),
    "vit_2_4_32":             Variant("ViTLite",  2, 4, 1,  32, "learnable",   10),
    "vit_2_4_32_sine":        Variant("ViTLite",  2, 4, 1,  32, "sine",        10),
    "vit_4_4_32":             Variant("ViTLite",  4, 4, 1,  32, "learnable",   10),
    "vit_4_4_32_sine":        Variant("ViTLite",  4, 4, 1,  32, "sine",        10),
    "vit_6_4_32":             Variant("ViTLite",  6, 4, 1,  32, "learnable",   10),
    "vit_6_4_32_sine":        Variant("ViTLite",  6, 4, 1,  32, "sine",        10),
    "vit_7_4_32":             Variant("ViTLite",  7, 4, 1,  32, "learnable",   10),
    "vit_7_4_32_sine":        Variant("ViTLite",  7, 4, 1,  32, "sine",        10),
    "vit_7_8_32":             Variant("ViTLite",  7, 8, 1,  32, "learnable",   10),
    "vit_tiny_patch16_224":   Variant("ViT",  "tiny", 16, 1, 224, "learnable", 1000),
    "vit_tiny_patch16_384":   Variant("ViT",  "tiny", 16, 1, 384, "learnable", 1000),
    "vit_small_patch16_224":  Variant("ViT", "small", 16, 1, 224, "learnable", 1000),
    "vit_small_patch32_224":  Variant("ViT", "small", 32, 1, 224, "learnable", 1000),
    "vit_small_patch16_384":  Variant("ViT", "small", 16, 1, 384, "learnable", 1000),
    "vit_small_patch32_384":  Variant("ViT", "small", 32, 1, 384, "learnable", 1000),
    "vit_base_patch8_224":    Variant("ViT",  "base",  8, 1, 224, "learnable", 1000),
    "vit_base_patch16_224":   Variant("ViT",  "base", 16, 1, 224, "learnable", 1000),
    "vit_base_patch32_224":   Variant("ViT",  "base", 32, 1, 224, "learnable", 1000),
    "vit_large_patch16_224":  Variant("ViT", "large", 16, 1, 224, "learnable", 1000),
    "vit_large_patch32_224":  Variant("ViT", "large", 32, 1, 224, "learnable", 1000),
    "vit_base_patch16_384":   Variant("ViT",  "base", 16, 1, 384, "learnable", 1000),
    "vit_base_patch32_384":   Variant("ViT",  "base", 32, 1, 384, "learnable", 1000),
    "vit_large_patch16_384":  Variant("ViT", "large", 16, 1, 384, "learnable", 1000),
    "vit_large_patch32_384":  Variant("ViT", "large", 32, 1, 384, "learnable", 1000),
    "vit_huge_patch14_224":   Variant("ViT",  "huge", 14, 1, 224, "learnable", 1000),
    "deit_tiny_patch16_224":  Variant("DeiT",  "tiny", 16, 1, 224, "learnable", 1000),
    "deit_small_patch16_224": Variant("DeiT", "small", 16, 1, 224, "learnable", 1000),
    "deit_base_patch16_224":  Variant("DeiT",  "base", 16, 1, 224, "learnable", 1000),
    "deit_base_patch16_384":  Variant("DeiT",  "base", 16, 1, 384, "learnable", 1000),
    "deit_tiny_distilled_patch16_224":  Variant("DeiT",  "tiny", 16, 1, 224, "learnable", 1000, DISTILLED),
    "deit_small_distilled_patch16_224": Variant("DeiT", "small", 16, 1, 224, "learnable", 1000, DISTILLED),
    "deit_base_distilled_patch16_224":  Variant("DeiT",  "base", 16, 1, 224, "learnable", 1000, DISTILLED),
    "deit_base_distilled_patch16_384":  Variant("DeiT",  "base", 16, 1, 384, "learnable", 1000, DISTILLED),
    "deit3_small_patch16_224": Variant("ViT", "small", 16, 1, 224, "learnable", 1000, DEIT3),
    "deit3_base_patch16_224":  Variant("ViT",  "base", 16, 1, 224, "learnable", 1000, DEIT3),
    "deit3_small_patch16_384": Variant("ViT", "small", 16, 1, 384, "learnable", 1000, DEIT3),
    "deit3_base_patch16_384":  Variant("ViT",  "base", 16, 1, 384, "learnable", 1000, DEIT3),
    "dinov2_small":            Variant("ViT", "small", 14, 1, 224, "learnable",    0, DINOV2),
    "dinov2_base":             Variant("ViT",  "base", 14, 1, 224, "learnable",    0, DINOV2),
    "dinov2_small_reg4":       Variant("ViT", "small", 14, 1, 224, "learnable",    0, DINOV2_REGISTERS),
    "dinov2_base_reg4":        Variant("ViT",  "base", 14, 1, 224, "learnable",    0, DINOV2_REGISTERS),
    "clip_base_patch16_224":   Variant("ViT",  "base", 16, 1, 224, "learnable",    0, {**CLIP, "projection_dim": 512}),
    "clip_base_patch32_224":   Variant("ViT",  "base", 32, 1, 224, "learnable",    0, {**CLIP, "projection_dim": 512}),
    "siglip_base_patch16_224": Variant("ViT",  "base", 16, 1, 224, "learnable",    0, SIGLIP),
}
# fmt: on


def constructor_arguments(variant: Variant) -> dict:
    """A row as the arguments of its family's constructor."""
    arguments = {
        **SIZES[variant.size]._asdict(),
        "num_classes": variant.num_classes,
        "input_shape": (variant.image_size, variant.image_size, 3),
        "positional_embedding": variant.positional_embedding,
    }
    if FAMILIES[variant.family].tokenizer == "convolutions":
        arguments["kernel_size"] = variant.kernel
        arguments["num_conv_layers"] = variant.stages
    else:
        arguments["patch_size"] = variant.kernel
    return {**arguments, **variant.arguments}


def find_variant(name: str) -> Variant:
    """The row of a variant, or an error that suggests others."""
    if name not in VARIANTS:
        raise ValueError(
            f"unknown variant {name!r}. " + did_you_mean(str(name), VARIANTS)
        )
    return VARIANTS[name]
