"""What a user can choose of an exported file, and what each format can do."""

import dataclasses
import importlib.util
import os
import pathlib
from typing import NamedTuple

from cct_keras.errors import ExportError
from cct_keras.spelling import did_you_mean

# What the converter of TensorFlow graphs can write, and what onnxruntime and its
# version for browsers both run at full speed.
OPSETS = range(13, 19)
DEFAULT_OPSET = 17


class Format(NamedTuple):
    """A kind of exported file.

    Attributes:
        name: Its name, as `format=` takes it.
        suffix: How such a file ends; `None` for a folder.
        precisions: What it can store the weights in.
        packages: What writing and checking it needs, as `{module: name on PyPI}`.
        options: Options that it has beside those of all formats.
    """

    name: str
    suffix: str | None
    precisions: tuple[str, ...]
    packages: dict[str, str]
    options: tuple[str, ...] = ()


ONNX_PACKAGES = {"onnx": "onnx", "tf2onnx": "tf2onnx", "onnxruntime": "onnxruntime"}
ALL_PRECISIONS = ("float32", "float16", "int8")
FORMATS = {
    row.name: row
    for row in (
        Format("onnx", ".onnx", ALL_PRECISIONS, ONNX_PACKAGES, ("opset",)),
        Format(
            "litert", ".tflite", ALL_PRECISIONS, {"ai_edge_litert": "ai-edge-litert"}
        ),
        Format(
            "openvino",
            ".xml",
            ALL_PRECISIONS,
            {**ONNX_PACKAGES, "openvino": "openvino"},
            ("opset",),
        ),
        Format("saved_model", None, ("float32",), {}),
        Format("web", None, ALL_PRECISIONS, ONNX_PACKAGES, ("opset", "ort")),
    )
}


@dataclasses.dataclass(frozen=True)
class ExportSettings:
    """The choices of one export; see `export` for their meaning.

    Example:

    >>> ExportSettings("onnx", precision="int4")
    Traceback (most recent call last):
    cct_keras.errors.ExportError: `precision` of format 'onnx' must be one of \
float32, float16, int8. Received: precision='int4'
    """

    format: str
    precision: str = "float32"
    batch: int | None = None
    input_dtype: str = "float32"
    layout: str = "nhwc"
    opset: int = DEFAULT_OPSET
    logits: bool = False
    maps: bool = False

    def __post_init__(self):
        row = FORMATS[self.format]
        _check_one_of("input_dtype", self.input_dtype, ("float32", "uint8"))
        _check_one_of("layout", self.layout, ("nhwc", "nchw"))
        if self.precision not in row.precisions:
            raise ExportError(
                f"`precision` of format {self.format!r} must be "
                f"{_one_of(row.precisions)}. Received: precision={self.precision!r}"
            )
        if self.batch is not None and (
            not isinstance(self.batch, int) or isinstance(self.batch, bool)
        ):
            raise ExportError(
                "`batch` must be a positive integer, or None for a dynamic batch. "
                f"Received: batch={self.batch!r}"
            )
        if self.batch is not None and self.batch < 1:
            raise ExportError(
                f"`batch` must be 1 or more. Received: batch={self.batch}"
            )
        if self.opset not in OPSETS:
            raise ExportError(
                f"`opset` must be from {OPSETS[0]} to {OPSETS[-1]}. "
                f"Received: opset={self.opset!r}"
            )
        if self.opset != DEFAULT_OPSET and "opset" not in row.options:
            raise ExportError(f"format {self.format!r} has no `opset`")

    @property
    def row(self) -> Format:
        """What the format can do."""
        return FORMATS[self.format]


def find_format(path: str | os.PathLike, name: str | None) -> str:
    """The format that a user named, or that the suffix of the path tells.

    Args:
        path: Where the export goes.
        name: One of `FORMATS`, or `None`.

    Returns:
        A key of `FORMATS`.

    Example:

    >>> find_format("model.tflite", None)
    'litert'
    """
    suffix = pathlib.Path(path).suffix.lower()
    if name is None:
        by_suffix = {row.suffix: row.name for row in FORMATS.values() if row.suffix}
        if suffix in by_suffix:
            return by_suffix[suffix]
        raise ExportError(
            f"the format of {path} is unknown: let it end in {', '.join(by_suffix)}, "
            f"or name the `format`: {', '.join(FORMATS)}"
        )
    if name not in FORMATS:
        raise ExportError(
            f"`format` must be {_one_of(FORMATS)}. Received: format={name!r}. "
            + did_you_mean(name, FORMATS)
        )
    expected = FORMATS[name].suffix
    if expected is not None and suffix != expected:
        raise ExportError(
            f"a file of format {name!r} must end in {expected}. Received: {path}"
        )
    return name


def check_packages(settings: ExportSettings) -> None:
    """Refuses an export whose packages are not installed, with the command to do so."""
    missing = [
        package
        for module, package in settings.row.packages.items()
        if importlib.util.find_spec(module) is None
    ]
    if missing:
        raise ExportError(
            f"format {settings.format!r} needs {', '.join(missing)}: "
            f"pip install {' '.join(missing)}"
        )


def _check_one_of(name, value, choices):
    if value not in choices:
        raise ExportError(
            f"`{name}` must be {_one_of(choices)}. Received: {name}={value!r}"
        )


def _one_of(choices):
    return f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]
