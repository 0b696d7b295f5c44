"""Named variants, and architectures of any kind, into models."""

import inspect

import keras

from cct_keras.layers.preprocessing import Preprocessing
from cct_keras.models.architecture import Architecture
from cct_keras.models.families import FAMILIES
from cct_keras.models.variants import constructor_arguments
from cct_keras.models.variants import find_variant
from cct_keras.models.weights_argument import open_weights
from cct_keras.spelling import did_you_mean

# Mean and deviation of images for weights that know none, for pixels from 0 to 1.
CENTER = 0.5


def create_model(
    variant: str | None = None, *, include_preprocessing: bool = False, **overrides
) -> keras.Model:
    """Builds a named variant, or the model that weights belong to.

    Args:
        variant: One of `list_models()`, such as `"cct_7_3x1_32"`. Not needed with
            `weights` other than a tag, which tell their architecture, named or not.
        include_preprocessing: Whether the model takes raw pixels: images of any size
            with values from 0 to 255. They are resized and normalized as the weights
            expect it; without weights that know, by a mean and a deviation of 0.5.
        **overrides: Arguments of the family's constructor that replace the variant's
            own, such as `num_classes`, `input_shape`, `activation` or `weights`.
            Weights decide the classes, the kind of positions and the activation where
            these are not given; files that this package wrote also decide the shape of
            the images.

    Returns:
        A functional `keras.Model`, named after the variant. Where neither the variant
        nor the weights have classes, as with DINOv2, it ends in no head unless
        `num_classes` asks for one.

    Example:

    >>> model = create_model("cct_7_3x1_32", num_classes=5)
    >>> model.output_shape
    (None, 5)
    >>> model = create_model("cct_2_3x2_32", weights="cifar10_jpeg",
    ...                      include_preprocessing=True)
    >>> model.input_shape
    (None, None, None, 3)
    """
    if overrides.get("num_classes", ...) is None:
        del overrides["num_classes"]
    if variant is None:
        return _create_from_weights(include_preprocessing, overrides)
    row = find_variant(variant)
    arguments = {"name": variant, **constructor_arguments(row)}
    source = None
    if overrides.get("weights") is not None:
        source = open_weights(overrides["weights"], variant=variant)
        known = {*arguments, *FAMILIES[row.family].defaults}
        decided = source.decided_arguments()
        arguments |= {name: decided[name] for name in decided if name in known}
        if not source.num_classes:
            arguments["num_classes"] = 0
        overrides = {**overrides, "weights": source}
    _leave_out_head(arguments, overrides, Architecture(row.family, arguments))
    if include_preprocessing:
        _put_preprocessing_first(arguments, overrides, source)
    return build_family(row.family, arguments, overrides)


def _create_from_weights(include_preprocessing, overrides):
    if overrides.get("weights") is None:
        raise ValueError(
            "create_model: give a `variant`, or `weights` that tell their architecture"
        )
    source = open_weights(overrides["weights"])
    overrides = {**overrides, "weights": source}
    if source.row is not None:
        return create_model(
            source.row.variant, include_preprocessing=include_preprocessing, **overrides
        )
    arguments = _constructor_arguments(source.architecture, overrides)
    told = {**arguments, **overrides}
    if told["num_heads"] is None:
        raise ValueError(
            f"create_model: {source.name} does not tell its heads: pass num_heads=..."
        )
    if None in (told["input_shape"] or ()) and told.get("input_tensor") is None:
        raise ValueError(
            f"create_model: {source.name} does not tell the size of its images: pass "
            "input_shape=(height, width, channels)"
        )
    if include_preprocessing:
        _put_preprocessing_first(arguments, overrides, source)
    return build_family(source.architecture.family, arguments, overrides)


def _put_preprocessing_first(arguments, overrides, source):
    """Makes the layer's output the input of the model to be built."""
    if overrides.get("input_tensor") is not None:
        raise ValueError(
            "create_model: give either `input_tensor` or include_preprocessing=True"
        )
    shape = overrides.pop("input_shape", None) or arguments["input_shape"]
    data_format = overrides.pop("data_format", None)
    if data_format == "channels_first":
        raise ValueError(
            "create_model: with include_preprocessing=True images are "
            f"'channels_last'. Received: data_format={data_format!r}"
        )
    if len(shape) != 3 or None in shape:
        raise ValueError(
            "create_model: with include_preprocessing=True `input_shape` must be the "
            "(height, width, channels) that images are resized to. "
            f"Received: input_shape={shape}"
        )
    channels = shape[2]
    settings = {} if source is None else source.preprocessing(channels)
    settings.setdefault("mean", (CENTER,) * channels)
    settings.setdefault("std", (CENTER,) * channels)
    asked = overrides.get("num_classes") or overrides.get("classes")
    num_classes = asked or arguments.get("num_classes", 0)
    if not overrides.get("include_top", arguments.get("include_top", True)):
        num_classes = 0
    if len(settings.get("class_names") or ()) != num_classes:
        settings.pop("class_names", None)
    images = keras.Input((None, None, channels), name="images")
    layer = Preprocessing(shape[:2], name="preprocessing", **settings)
    overrides["input_tensor"] = layer(images)
    overrides["data_format"] = "channels_last"


def build_architecture(architecture: Architecture, **overrides) -> keras.Model:
    """A model of an architecture.

    Args:
        architecture: The architecture.
        **overrides: Constructor arguments in the place of its own.
    """
    arguments = _constructor_arguments(architecture, overrides)
    return build_family(architecture.family, arguments, overrides)


def _constructor_arguments(architecture, overrides):
    arguments = dict(architecture.arguments)
    _leave_out_head(arguments, overrides, architecture)
    if architecture.variant is not None:
        arguments["name"] = architecture.variant
    return arguments


def _leave_out_head(arguments, overrides, architecture):
    """Makes these the arguments of a body, if there are no classes and none asked."""
    if arguments["num_classes"]:
        return
    del arguments["num_classes"]
    asked = overrides.get("num_classes", overrides.get("classes"))
    if asked is not None or overrides.get("include_top"):
        return
    arguments["include_top"] = False
    if architecture.get("projection_dim") or architecture.top_pooling == "map":
        # What was published without classes, but with one vector an image.
        arguments["pooling"] = architecture.top_pooling


def build_family(family: str, arguments: dict, overrides: dict) -> keras.Model:
    """Calls a family's constructor, `overrides` in place of `arguments`.

    Args:
        family: One of `FAMILIES`.
        arguments: Constructor arguments; `input_shape` with the channels last.
        overrides: What a user passed; unknown names are refused.
    """
    constructor = FAMILIES[family].find_constructor()
    accepted = inspect.signature(constructor).parameters
    for argument in overrides:
        if argument not in accepted:
            raise TypeError(
                f"{family} has no argument {argument!r}. "
                + did_you_mean(argument, accepted)
            )
    arguments = dict(arguments)
    overrides = dict(overrides)
    data_format = overrides.get("data_format") or keras.config.image_data_format()
    if overrides.get("input_tensor") is not None:
        del arguments["input_shape"]
    elif data_format == "channels_first":
        height, width, channels = arguments["input_shape"]
        arguments["input_shape"] = (channels, height, width)
    if overrides.get("input_shape", ()) is None:
        del overrides["input_shape"]
    if overrides.get("classes") is not None:
        # Of both names only the caller's; if the caller gave both, the constructor
        # says so.
        arguments.pop("num_classes", None)
    return constructor(**{**arguments, **overrides})
