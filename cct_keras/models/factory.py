import difflib
import fnmatch
import inspect

import keras

from cct_keras.models.cct import CCT
from cct_keras.models.cvt import CVT
from cct_keras.models.deit import DeiT
from cct_keras.models.variants import VARIANTS
from cct_keras.models.variants import Variant
from cct_keras.models.variants import constructor_arguments
from cct_keras.models.vit import ViT
from cct_keras.models.vit_lite import ViTLite

FAMILIES = {"CCT": CCT, "CVT": CVT, "ViTLite": ViTLite, "ViT": ViT, "DeiT": DeiT}


def create_model(variant: str, **overrides) -> keras.Model:
    """Builds a named variant.

    Args:
        variant: One of `list_models()`, such as `"cct_7_3x1_32"`.
        **overrides: Arguments of the family's constructor that replace the
            variant's own, such as `num_classes`, `input_shape` or `weights`.

    Returns:
        A functional `keras.Model`, named after the variant.

    Example:

    >>> model = create_model("cct_7_3x1_32", num_classes=5)
    >>> model.output_shape
    (None, 5)
    """
    row = find_variant(variant)
    arguments = {"name": variant, **constructor_arguments(row)}
    if overrides.get("weights") is not None:
        from cct_keras import pretrained

        decided, source = pretrained.variant_defaults(variant, overrides["weights"])
        arguments |= decided
        overrides = {**overrides, "weights": source}
    return build_family(row.family, arguments, overrides)


def build_family(family: str, arguments: dict, overrides: dict) -> keras.Model:
    """Calls a family's constructor, `overrides` in place of `arguments`.

    Args:
        family: One of `FAMILIES`.
        arguments: Constructor arguments; `input_shape` with the channels last.
        overrides: What a user passed; unknown names are refused.
    """
    constructor = FAMILIES[family]
    accepted = inspect.signature(constructor).parameters
    for argument in overrides:
        if argument not in accepted:
            raise TypeError(
                f"{family} has no argument {argument!r}. {near(argument, accepted)}"
            )
    arguments = dict(arguments)
    data_format = overrides.get("data_format") or keras.config.image_data_format()
    if overrides.get("input_tensor") is not None:
        del arguments["input_shape"]
    elif data_format == "channels_first":
        height, width, channels = arguments["input_shape"]
        arguments["input_shape"] = (channels, height, width)
    if overrides.get("input_shape", ()) is None:
        overrides = {k: v for k, v in overrides.items() if k != "input_shape"}
    return constructor(**{**arguments, **overrides})


def list_models(pattern: str = "*", *, pretrained: bool = False) -> list[str]:
    """Names of the variants that match a shell-style pattern.

    Args:
        pattern: Such as `"cct_14_*"`.
        pretrained: Whether to list only variants with known weights, whose
            tags `list_weights` tells.

    Example:

    >>> list_models("cct_14_*")
    ['cct_14_7x2_224', 'cct_14_7x2_384', 'cct_14_7x2_384_fl']
    """
    names = [name for name in VARIANTS if fnmatch.fnmatchcase(name, pattern)]
    if pretrained:
        from cct_keras.pretrained import list_weights

        names = [name for name in names if list_weights(name)]
    return names


def find_variant(name: str) -> Variant:
    """The row of a variant, or an error with the names that come near."""
    if name not in VARIANTS:
        raise ValueError(
            f"create_model: unknown variant {name!r}. {near(str(name), VARIANTS)}"
        )
    return VARIANTS[name]


def near(word: str, known) -> str:
    """A sentence with the known words that come near, or with all of them."""
    matches = difflib.get_close_matches(word, known, n=3)
    listed = ", ".join(matches or known)
    return f"Did you mean: {listed}?" if matches else f"Known: {listed}."
