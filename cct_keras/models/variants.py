"""The named variants of the paper, as rows of plain data."""

from typing import NamedTuple


class Size(NamedTuple):
    """One row of the paper's table of sizes."""

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
}


class Variant(NamedTuple):
    """One architecture: `kernel` is the patch size of CVT and ViT-Lite."""

    family: str
    size: int
    kernel: int
    stages: int
    image_size: int
    positional_embedding: str
    num_classes: int


# fmt: off
VARIANTS = {
    #                         family     size  kernel  stages  image  positions  classes
    "cct_2_3x2_32":           Variant("CCT",      2, 3, 2,  32, "learnable",   10),
    "cct_2_3x2_32_sine":      Variant("CCT",      2, 3, 2,  32, "sine",        10),
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
    "vit_2_4_32":             Variant("ViTLite",  2, 4, 1,  32, "learnable",   10),
    "vit_2_4_32_sine":        Variant("ViTLite",  2, 4, 1,  32, "sine",        10),
    "vit_4_4_32":             Variant("ViTLite",  4, 4, 1,  32, "learnable",   10),
    "vit_4_4_32_sine":        Variant("ViTLite",  4, 4, 1,  32, "sine",        10),
    "vit_6_4_32":             Variant("ViTLite",  6, 4, 1,  32, "learnable",   10),
    "vit_6_4_32_sine":        Variant("ViTLite",  6, 4, 1,  32, "sine",        10),
    "vit_7_4_32":             Variant("ViTLite",  7, 4, 1,  32, "learnable",   10),
    "vit_7_4_32_sine":        Variant("ViTLite",  7, 4, 1,  32, "sine",        10),
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
    if variant.family == "CCT":
        arguments["kernel_size"] = variant.kernel
        arguments["num_conv_layers"] = variant.stages
    else:
        arguments["patch_size"] = variant.kernel
    return arguments
