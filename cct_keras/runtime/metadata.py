"""What an exported file knows of itself: its classes, its images, its graph."""

import dataclasses
import json
import math
import numbers

from cct_keras.errors import DataError

FORMAT_VERSION = 1
PACKAGE = "cct_keras"
# No model of ours comes near these; a file that claims more is broken or hostile.
LARGEST_SIDE = 4096
MOST_CLASSES = 1_000_000
LONGEST_TEXT = 100_000
LARGEST_METADATA = 2**26
# Numbers in a batch of images.
LARGEST_BATCH = 2**27


@dataclasses.dataclass(frozen=True)
class Metadata:
    """What an exported file knows of itself.

    Attributes:
        class_names: Name of each class; `"0"`, `"1"` and so on where unknown.
        image_size: Height and width of the images that the graph takes.
        channels: 1 for gray images, 3 for color.
        mean: Mean of each channel by which the graph normalizes, for pixels from 0
            to 1.
        std: Standard deviation of each channel, likewise.
        crop: Share of an image that is kept before it is resized.
        interpolation: How an image is resized: `"bicubic"`, `"bilinear"` or
            `"nearest"`.
        input_dtype: Type of the graph's input, `"float32"` or `"uint8"`; pixels are
            from 0 to 255 in both.
        layout: `"nhwc"`, or `"nchw"` if the channels come first.
        batch: How many images the graph takes at once; `None` for any number.
        output: What the graph computes: `"probabilities"` or `"logits"`.
        maps: Rows and columns of the maps that the graph computes too; `None` if it
            does not.
        precision: `"float32"`, `"float16"` or `"int8"`.
        variant: Name of the variant, if it is one.
        name: Name of the Keras model.
        trained_on: `name` and `fingerprint` of the data that the model was trained
            on, and how they were `cut` into splits.
        license: Text on the license of the weights.
        class_names_known: Whether the names are more than the numbers of the classes.
        version: Version of the package that wrote the file.
        package: Always `"cct_keras"`.
        format_version: Version of this list of fields.

    Example:

    >>> metadata = Metadata(("cat", "dog"), (32, 32), 3, (0.5,) * 3, (0.25,) * 3)
    >>> metadata.num_classes, metadata.input_shape
    (2, (None, 32, 32, 3))
    >>> Metadata.from_dict(metadata.to_dict()) == metadata
    True
    """

    class_names: tuple[str, ...]
    image_size: tuple[int, int]
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop: float = 1.0
    interpolation: str = "bicubic"
    input_dtype: str = "float32"
    layout: str = "nhwc"
    batch: int | None = None
    output: str = "probabilities"
    maps: tuple[int, int] | None = None
    precision: str = "float32"
    variant: str | None = None
    name: str = ""
    trained_on: dict | None = None
    license: str | None = None
    class_names_known: bool = True
    version: str = ""
    package: str = PACKAGE
    format_version: int = FORMAT_VERSION

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def input_shape(self) -> tuple:
        """Shape of the graph's input, `None` for a batch of any length."""
        height, width = self.image_size
        if self.layout == "nchw":
            return self.batch, self.channels, height, width
        return self.batch, height, width, self.channels

    def to_dict(self) -> dict:
        """All fields as plain values, as JSON has them."""
        fields = dataclasses.asdict(self)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}

    def to_json(self) -> str:
        """All fields as one JSON text."""
        return json.dumps(self.to_dict())

    def to_json_fields(self) -> dict[str, str]:
        """Each field as a JSON text, as an ONNX file keeps them."""
        return {name: json.dumps(value) for name, value in self.to_dict().items()}

    @classmethod
    def from_dict(cls, fields, where: str = "the metadata") -> "Metadata":
        """Checks the fields of a file, which may be broken or hostile.

        Args:
            fields: What `to_dict` returned. Unknown fields are ignored, as a later
                version may write more of them.
            where: The file, for messages.

        Returns:
            A `Metadata`.

        Raises:
            DataError: A field is missing or not as `Metadata` describes it.
        """
        if not isinstance(fields, dict) or fields.get("package") != PACKAGE:
            raise DataError(not_ours(where))
        known = {field.name: field for field in dataclasses.fields(cls)}
        fields = {name: value for name, value in fields.items() if name in known}
        version = fields.get("format_version")
        if _is_integer(version) and version > FORMAT_VERSION:
            raise DataError(
                f"{where} was written by a later version of cct_keras: install the "
                "latest one"
            )
        for name, (is_valid, expected) in _FIELDS.items():
            if name not in fields:
                if known[name].default is dataclasses.MISSING:
                    raise DataError(f"{where} is broken: its metadata lack {name!r}")
            elif not is_valid(fields[name]):
                raise DataError(
                    f"{where} is broken: {name!r} in its metadata must be {expected}. "
                    f"Received: {_shorten_value(fields[name])}"
                )
        tuples = {
            k: tuple(v) for k, v in fields.items() if isinstance(v, (list, tuple))
        }
        metadata = cls(**fields | tuples)
        for name in ("mean", "std"):
            if len(getattr(metadata, name)) != metadata.channels:
                raise DataError(
                    f"{where} is broken: {name!r} in its metadata must have one value "
                    f"for each of {metadata.channels} channels"
                )
        height, width = metadata.image_size
        if (metadata.batch or 1) * height * width * metadata.channels > LARGEST_BATCH:
            raise DataError(f"{where} is broken: its images or batches are too large")
        return metadata

    @classmethod
    def from_json_fields(cls, fields: dict[str, str], where: str) -> "Metadata":
        """Checks fields that are JSON texts; see `to_json_fields`."""
        if "package" not in fields:
            raise DataError(not_ours(where))
        names = {field.name for field in dataclasses.fields(cls)}
        return cls.from_dict(
            {k: parse_json(text, where) for k, text in fields.items() if k in names},
            where,
        )

    @classmethod
    def from_json(cls, text: str | bytes, where: str) -> "Metadata":
        """Checks fields that are one JSON text."""
        return cls.from_dict(parse_json(text, where), where)


def not_ours(where: str) -> str:
    """The message for a file that has no metadata of this package."""
    return f"{where} was not written by `cct_keras.export`: it has no metadata of ours"


def parse_json(text: str | bytes, where: str):
    """Reads a JSON text of a file, which may be broken or hostile."""
    try:
        return json.loads(text)
    # Deeply nested brackets exceed the stack of the parser.
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is broken: its metadata are not JSON") from error


def _shorten_value(value):
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


# === What each field may be ===


def _is_integer(value):
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_number(value):
    is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    # An integer of JSON may be too large for a float.
    return is_real and abs(value) < 1e30 and math.isfinite(value)


def _is_text(value):
    return isinstance(value, str) and len(value) <= LONGEST_TEXT


def _is_list(value):
    return isinstance(value, (list, tuple))


def _is_size(value):
    sides = _is_list(value) and len(value) == 2 and all(map(_is_integer, value))
    return sides and all(0 < side <= LARGEST_SIDE for side in value)


def _is_class_names(value):
    return (
        _is_list(value) and 0 < len(value) <= MOST_CLASSES and all(map(_is_text, value))
    )


def _is_cut(value):
    needed = {"validation", "test", "seed"}
    further = {"smallest", "fold", "folds"}
    if not isinstance(value, dict) or set(value) - further != needed:
        return False
    if "fold" in value or "folds" in value:
        fold, folds = value.get("fold"), value.get("folds")
        if not (
            _is_integer(fold) and _is_integer(folds) and 1 <= fold <= folds < 2**32
        ):
            return False
    shares = (value["validation"], value["test"])
    numbers = (value["seed"], value.get("smallest", 0))
    return all(map(_is_number, shares)) and all(map(_is_seed, numbers))


def _is_seed(value):
    return _is_integer(value) and 0 <= value < 2**64


def _is_trained_on(value):
    return value is None or (
        isinstance(value, dict)
        and _is_text(value.get("name"))
        and _is_text(value.get("fingerprint"))
        and _is_cut(value.get("cut"))
    )


def _one_of(*choices):
    expected = ", ".join(map(repr, choices))
    return (lambda value: isinstance(value, str) and value in choices, expected)


_NUMBERS = (
    lambda value: (
        _is_list(value) and len(value) in (1, 3) and all(map(_is_number, value))
    ),
    "1 or 3 numbers",
)
_OPTIONAL_TEXT = (lambda value: value is None or _is_text(value), "a text or null")
_TEXT = (_is_text, "a text")
# By the name of each field: a function of its value, and what is expected.
_FIELDS = {
    "class_names": (_is_class_names, "a list of names"),
    "image_size": (_is_size, f"a height and a width of at most {LARGEST_SIDE}"),
    "channels": (lambda value: _is_integer(value) and value in (1, 3), "1 or 3"),
    "mean": _NUMBERS,
    "std": (
        lambda value: _NUMBERS[0](value) and all(number > 0 for number in value),
        "1 or 3 numbers above 0",
    ),
    "crop": (lambda value: _is_number(value) and 0 < value <= 1, "in (0, 1]"),
    "interpolation": _one_of("bicubic", "bilinear", "nearest"),
    "input_dtype": _one_of("float32", "uint8"),
    "layout": _one_of("nhwc", "nchw"),
    "batch": (
        lambda value: value is None or (_is_integer(value) and 0 < value <= 65536),
        "a positive integer or null",
    ),
    "output": _one_of("probabilities", "logits"),
    "maps": (lambda value: value is None or _is_size(value), "rows, columns or null"),
    "precision": _one_of("float32", "float16", "int8"),
    "variant": _OPTIONAL_TEXT,
    "name": _TEXT,
    "trained_on": (_is_trained_on, "name, fingerprint and cut, or null"),
    "license": _OPTIONAL_TEXT,
    "class_names_known": (lambda value: isinstance(value, bool), "true or false"),
    "version": _TEXT,
    "format_version": (lambda value: _is_integer(value) and value > 0, "an integer"),
}
