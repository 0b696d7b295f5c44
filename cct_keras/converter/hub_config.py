"""What the JSON files of a repository tell, and the tensors do not.

Those of `transformers`, timm, open_clip and this package. Only plain values of known
names are read, and each is checked.
"""

import logging
import math
from collections.abc import Mapping
from typing import NamedTuple

from cct_keras.errors import CheckpointError
from cct_keras.errors import one_line

logger = logging.getLogger("cct_keras")
CONFIG = "config.json"
PREPROCESSOR = "preprocessor_config.json"
PROCESSOR = "processor_config.json"
OPEN_CLIP = "open_clip_config.json"
DOCUMENTS = (CONFIG, PREPROCESSOR, PROCESSOR, OPEN_CLIP)
# Where `config.json` of this package has what only it knows.
OWN = "cct_keras"

MOST_HEADS, LARGEST_SIDE, MOST_CLASSES = 1024, 65536, 200_000
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
}
# By the numbers of Pillow.
INTERPOLATIONS = {0: "nearest", 2: "bilinear", 3: "bicubic"}


class Kind(NamedTuple):
    """What `transformers` takes for a kind of model where a file tells nothing."""

    epsilon: float
    activation: str = "gelu"
    # Where a model of two towers describes that of images.
    section: str | None = None


KINDS = {
    "vit": Kind(1e-12),
    "deit": Kind(1e-12),
    "vit_mae": Kind(1e-12),
    "dinov2": Kind(1e-6),
    "dinov2_with_registers": Kind(1e-6),
    "clip": Kind(1e-5, "quick_gelu", "vision_config"),
    "clip_vision_model": Kind(1e-5, "quick_gelu"),
    "siglip": Kind(1e-6, "gelu_pytorch_tanh", "vision_config"),
    "siglip_vision_model": Kind(1e-6, "gelu_pytorch_tanh"),
}
HEADS = 12


class Told(NamedTuple):
    """What a repository tells of its checkpoint.

    Attributes:
        arguments: Constructor arguments. Beside them `image_size`, the height and width
            of its images, and `patch_size`, which have to agree with the tensors.
        preprocessing: Arguments of a `Preprocessing` layer, as far as they are told.
        settings_are_known: Whether the heads, the epsilon and the activation are told.
    """

    arguments: Mapping[str, object] = {}
    preprocessing: Mapping[str, object] = {}
    settings_are_known: bool = False


NOTHING = Told()


def read_documents(documents: Mapping[str, Mapping], file: str) -> Told:
    """Reads what describes a file.

    Args:
        documents: The contents of the JSON files, by their names.
        file: Name of the checkpoint file.
    """
    found = {name: _Document(name, values) for name, values in documents.items()}
    if file.startswith("open_clip") and OPEN_CLIP in found:
        return _read_open_clip(found[OPEN_CLIP])
    config = found.get(CONFIG, _Document(CONFIG, {}))
    own = config.section(OWN)
    if own is not None:
        return Told({}, _own_preprocessing(own))
    if "architecture" in config.values:
        return _read_timm(config)
    arguments, known = _read_transformers(config)
    preprocessing = _with_names({}, _names_by_number(config, "id2label"))
    if PREPROCESSOR in found:
        preprocessing |= _read_preprocessor(found[PREPROCESSOR])
    elif PROCESSOR in found:
        inner = found[PROCESSOR].section("image_processor")
        if inner is not None:
            preprocessing |= _read_preprocessor(inner)
    return Told(arguments, preprocessing, known)


# === transformers ===


def _read_transformers(config):
    name = config.text("model_type")
    if name not in KINDS:
        return {}, False
    kind = KINDS[name]
    if kind.section is not None:
        config = config.section(kind.section) or _Document(config.name, {})
    # Heads that do not divide the width are refused by the constructor.
    activation = config.text("hidden_act") or kind.activation
    if activation not in ACTIVATIONS:
        raise config.refused("hidden_act", f"one of {', '.join(ACTIVATIONS)}")
    epsilon = config.number("layer_norm_eps", 0, 0.1)
    heads = config.integer("num_attention_heads", MOST_HEADS) or HEADS
    dim = config.integer("hidden_size", LARGEST_SIDE)
    if dim is not None and dim % heads:
        raise config.refused("num_attention_heads", f"a divisor of hidden_size={dim}")
    arguments = {
        "num_heads": heads,
        "epsilon": kind.epsilon if epsilon is None else epsilon,
        "activation": ACTIVATIONS[activation],
        "patch_size": config.integer("patch_size", LARGEST_SIDE),
        "image_size": config.size("image_size"),
    }
    return {name: x for name, x in arguments.items() if x is not None}, True


def _read_preprocessor(document):
    """An image processor of `transformers`, as arguments of `Preprocessing`."""
    found = {}
    factor = 1.0
    if document.flag("do_rescale", True):
        factor = document.number("rescale_factor", 1e-6, 1e6) or 1 / 255
    # Pixels are from 0 to 1 for us, and are multiplied by so much for them.
    scale = 255.0 * factor
    mean, std = document.numbers("image_mean"), document.numbers("image_std")
    if not document.flag("do_normalize", True):
        channels = len(mean or (0,) * 3)
        mean, std = [0.0] * channels, [1.0] * channels
    if mean is not None and std is not None:
        if len(mean) != len(std) or min(std) <= 0:
            raise document.refused("image_std", "one number above 0 for each mean")
        if abs(scale - 1) > 1e-6:
            mean, std = [x / scale for x in mean], [x / scale for x in std]
        found["mean"], found["std"] = tuple(mean), tuple(std)
    resample = document.integer("resample", 10, least=0)
    if resample in INTERPOLATIONS:
        found["interpolation"] = INTERPOLATIONS[resample]
    size, crop = document.size("size"), document.size("crop_size")
    center = document.flag("do_center_crop", False)
    if document.flag("do_resize", True) and size and crop and center:
        found["crop"] = min(1.0, max(crop) / min(size))
    elif size and not center:
        logger.info(
            "%s lets images be squeezed into %d x %d pixels; here their center is cut "
            "in this aspect ratio",
            document.name,
            *size,
        )
    return found


# === timm ===


def _read_timm(config):
    architecture, arguments = config.text("architecture") or "", {}
    pretrained = config.section("pretrained_cfg") or config
    model_args = config.section("model_args") or _Document(config.name, {})
    heads = model_args.integer("num_heads", MOST_HEADS)
    if heads is not None:
        arguments["num_heads"] = heads
    if "quickgelu" in architecture:
        arguments["activation"] = "quick_gelu"
    if config.text("global_pool") in ("token", "avg", "map"):
        arguments["top_pooling"] = config.text("global_pool")
    shape = pretrained.numbers("input_size")
    if shape is not None and (len(shape) != 3 or not min(shape) >= 1):
        raise pretrained.refused("input_size", "channels, height and width")
    if shape is not None:
        arguments["image_size"] = (int(shape[1]), int(shape[2]))
    found = {}
    mean, std = pretrained.numbers("mean"), pretrained.numbers("std")
    if mean is not None and std is not None:
        if len(mean) != len(std) or min(std) <= 0:
            raise pretrained.refused("std", "one number above 0 for each mean")
        found |= {"mean": tuple(mean), "std": tuple(std)}
    crop = pretrained.number("crop_pct", 0, 10)
    if crop:
        found["crop"] = min(1.0, crop)
    interpolation = pretrained.text("interpolation")
    if interpolation in INTERPOLATIONS.values():
        found["interpolation"] = interpolation
    names = next(
        (
            names
            for document in (config, pretrained)
            for names in (
                document.names("label_names"),
                _names_by_number(document, "labels"),
            )
            if names
        ),
        None,
    )
    return Told(arguments, _with_names(found, names))


# === open_clip ===


def _read_open_clip(document):
    model = document.section("model_cfg") or _Document(document.name, {})
    vision = model.section("vision_cfg") or _Document(document.name, {})
    arguments = {}
    if vision.text("timm_model_name") is None:
        width = vision.integer("width", LARGEST_SIDE) or 768
        head = vision.integer("head_width", LARGEST_SIDE) or 64
        if width % head:
            raise vision.refused("head_width", f"a divisor of width={width}")
        # Without a word the activation is the exact one; OpenAI's own files say so.
        quick = model.flag("quick_gelu", False)
        arguments = {
            "num_heads": width // head,
            "activation": "quick_gelu" if quick else "gelu",
        }
    found = {}
    images = document.section("preprocess_cfg")
    if images is not None:
        mean, std = images.numbers("mean"), images.numbers("std")
        if mean is not None and std is not None:
            if len(mean) != len(std) or min(std) <= 0:
                raise images.refused("std", "one number above 0 for each mean")
            found |= {"mean": tuple(mean), "std": tuple(std)}
        interpolation = images.text("interpolation")
        if interpolation in INTERPOLATIONS.values():
            found["interpolation"] = interpolation
    return Told(arguments, found)


# === This package ===


def check_preprocessing(name: str, values: Mapping) -> dict:
    """Arguments of a `Preprocessing` layer in a file of a stranger.

    Args:
        name: What errors call the file.
        values: The arguments.

    Returns:
        Those of them that describe images and classes, each checked.
    """
    document = _Document(name, values)
    mean, std = document.numbers("mean"), document.numbers("std")
    if mean is None or std is None or len(mean) != len(std) or min(std) <= 0:
        raise document.refused("std", "one number above 0 for each `mean`")
    found = {"mean": tuple(mean), "std": tuple(std)}
    crop = document.number("crop", 0, 1)
    if crop:
        found["crop"] = crop
    if document.text("interpolation") in INTERPOLATIONS.values():
        found["interpolation"] = document.text("interpolation")
    trained_on = document.section("trained_on")
    if trained_on is not None:
        cut = trained_on.section("cut")
        for key in cut.values if cut else ():
            cut.number(key, 0, 2**53)
        found["trained_on"] = {
            "name": trained_on.text("name"),
            "fingerprint": trained_on.text("fingerprint"),
            "cut": cut and dict(cut.values),
        }
    return _with_names(found, document.names("class_names"))


def _own_preprocessing(own):
    document = own.section("preprocessing")
    if document is None:
        return {}
    return check_preprocessing(own.name, document.values)


# === Values ===


def _with_names(found, names):
    return {**found, "class_names": names} if names else dict(found)


def _names_by_number(document, key):
    """Names such as `{"0": "cat", "1": "dog"}`; `None` for those made of numbers."""
    rows = document.section(key)
    if rows is None:
        return None
    expected = {str(number) for number in range(len(rows.values))}
    if rows.values.keys() != expected:
        raise document.refused(key, f"a name for each number below {len(expected)}")
    names = _Document(document.name, {key: [rows.values[n] for n in _numbers(rows)]})
    names = names.names(key)
    if all(name == f"LABEL_{number}" for number, name in enumerate(names)):
        return None
    return names


def _numbers(rows):
    return sorted(rows.values, key=int)


class _Document(NamedTuple):
    """A mapping of a JSON file, of which plain values are taken one by one."""

    name: str
    values: Mapping

    def refused(self, key, expected):
        value = one_line(repr(self.values.get(key)))
        shown = value if len(value) <= 60 else f"{value[:57]}..."
        return CheckpointError(
            f"{self.name}: `{key}` must be {expected}. Received: {key}={shown}"
        )

    def integer(self, key, most, least=1):
        value = self.values.get(key)
        if value is None:
            return None
        if type(value) is not int or not least <= value <= most:
            raise self.refused(key, f"an integer from {least} to {most}")
        return value

    def number(self, key, low, high):
        value = self.values.get(key)
        if value is None:
            return None
        if not _is_number(value) or not low <= value <= high:
            raise self.refused(key, f"a number from {low} to {high}")
        return float(value)

    def numbers(self, key):
        value = self.values.get(key)
        if value is None:
            return None
        few = isinstance(value, list) and 1 <= len(value) <= 16
        if not few or not all(_is_number(x) and abs(x) <= 1e6 for x in value):
            raise self.refused(key, "a list of a few numbers")
        return [float(x) for x in value]

    def text(self, key):
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise self.refused(key, "a text")
        return value

    def flag(self, key, default):
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refused(key, "true or false")
        return value

    def section(self, key):
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.refused(key, "a mapping")
        return _Document(self.name, value)

    def names(self, key):
        value = self.values.get(key)
        if value is None:
            return None
        is_list = isinstance(value, list) and len(value) <= MOST_CLASSES
        if not is_list or not all(isinstance(x, str) and len(x) <= 500 for x in value):
            raise self.refused(key, f"a list of at most {MOST_CLASSES} names")
        return tuple(one_line(x) for x in value)

    def size(self, key):
        """A side, a height and width, or one of the forms of an image processor."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, dict):
            value = [
                value.get("height", value.get("shortest_edge")),
                value.get("width", value.get("shortest_edge")),
            ]
        sides = value if isinstance(value, list) else [value, value]
        if len(sides) != 2 or not all(
            type(x) is int and 1 <= x <= LARGEST_SIDE for x in sides
        ):
            raise self.refused(key, "a side, or a height and a width, in pixels")
        return tuple(sides)


def _is_number(value):
    # Python's integers have no end, and those of JSON neither.
    is_small = type(value) is int and abs(value) < 2**53
    return is_small or (type(value) is float and math.isfinite(value))
