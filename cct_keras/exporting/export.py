"""`export`: from a trained model to a file for another runtime, proven equal."""

import dataclasses
import os
import pathlib

import cct_keras
from cct_keras.errors import ExportError
from cct_keras.exporting.files import write_files
from cct_keras.exporting.parity import check
from cct_keras.exporting.parity import compare
from cct_keras.exporting.publishing import check_target
from cct_keras.exporting.publishing import publish
from cct_keras.exporting.publishing import staging_folder
from cct_keras.exporting.sample_images import COMPARED
from cct_keras.exporting.sample_images import calibration_count
from cct_keras.exporting.sample_images import dataset_images
from cct_keras.exporting.sample_images import judged_count
from cct_keras.exporting.sample_images import photographs
from cct_keras.exporting.settings import DEFAULT_OPSET
from cct_keras.exporting.settings import ExportSettings
from cct_keras.exporting.settings import check_packages
from cct_keras.exporting.settings import find_format
from cct_keras.exporting.subject import Subject
from cct_keras.exporting.subject import check_size
from cct_keras.exporting.subject import open_subject
from cct_keras.exporting.web import find_runtime
from cct_keras.runtime.formats import open_engine
from cct_keras.runtime.metadata import Metadata


@dataclasses.dataclass(frozen=True)
class Export:
    """What `export` wrote, and how it was checked.

    Attributes:
        path: The file or folder.
        files: Everything that was written.
        parity: The comparison with the Keras model, as in `parity.json`.
        metadata: What the file tells of the model.
        notes: What a user should know.
    """

    path: pathlib.Path
    files: tuple[pathlib.Path, ...]
    parity: dict
    metadata: Metadata
    notes: tuple[str, ...]


def export(
    model,
    path: str | os.PathLike,
    *,
    format: str | None = None,
    precision: str = "float32",
    data=None,
    data_dir: str | os.PathLike | None = None,
    batch: int | None = None,
    input_dtype: str = "float32",
    layout: str = "nhwc",
    opset: int = DEFAULT_OPSET,
    logits: bool = False,
    maps: bool | None = None,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    class_names: tuple[str, ...] | None = None,
    license: str | None = None,
    script: bool = False,
    ort: str | os.PathLike | None = None,
) -> Export:
    """Writes a trained model for another runtime.

    The file takes raw pixels, in the size of the model and with values from 0 to 255,
    and returns probabilities. It knows its class names and how images are to be
    prepared; `predict`, `evaluate` and `cct_keras.runtime.Classifier` read it. Before
    it is written, it is opened in its runtime and compared with the Keras model; a
    file that differs is not written.

    Args:
        model: A Keras model of this package, a `.keras` file, the folder of a run,
            `VARIANT.TAG` of known weights, or an official checkpoint.
        path: Where to write: a file that ends in `.onnx`, `.tflite` or `.xml`, or a
            folder.
        format: `"onnx"`, `"litert"`, `"openvino"`, `"saved_model"` or `"web"`. By
            default the suffix of `path` tells it. A SavedModel takes images of any
            size.
        precision: `"float32"`, `"float16"` or `"int8"`. int8 is calibrated on the
            training images of `data`, and its accuracy is measured on the validation
            images.
        data: What `load_data` takes, or what it returned. By default the file is
            compared on photographs that scikit-learn brings along.
        data_dir: Where tensorflow-datasets keeps prepared data.
        batch: Images in a batch; `None` for any number.
        input_dtype: `"float32"` or `"uint8"`.
        layout: `"nhwc"` for `(batch, height, width, channels)`, or `"nchw"`.
        opset: Version of the ONNX operations.
        logits: Whether to return logits in the place of probabilities.
        maps: Whether to add the output `maps`: the weights that SeqPool gives to the
            tokens, `(batch, rows, columns)`. By default only a web page has them.
        mean: Mean of each channel for pixels from 0 to 1, if the model does not tell.
        std: Standard deviation of each channel, likewise.
        class_names: Names of the classes, if the model does not tell.
        license: The license of the weights, for the metadata.
        script: Whether to write `predict.py` beside the file: one file that needs
            nothing but NumPy, Pillow and the runtime.
        ort: For a web page, a folder with the files of onnxruntime-web. By default the
            page loads them from their public address.

    Returns:
        An `Export`.

    Example:

    >>> exported = export("cct_2_3x2_32.digits", "digits.onnx")  # doctest: +SKIP
    >>> exported.parity["largest_difference"] < 1e-4  # doctest: +SKIP
    True
    """
    path = pathlib.Path(path)
    settings = ExportSettings(
        find_format(path, format),
        precision,
        batch,
        input_dtype,
        layout,
        opset,
        logits,
        bool(maps),
    )
    check_packages(settings)
    check_target(path, settings, script)
    if precision == "int8" and data is None:
        raise ExportError("precision='int8' is calibrated on images: give their `data`")
    if ort is not None and settings.format != "web":
        raise ExportError("`ort` belongs to format='web'")
    if ort is not None:
        find_runtime(pathlib.Path(ort))
    subject = open_subject(model, mean=mean, std=std, class_names=class_names)
    settings = _with_maps(settings, subject, maps)
    check_size(subject, settings)
    metadata = describe(subject, settings, license)
    samples, calibration = _load_images(subject, settings, data, data_dir)
    with staging_folder(path) as folder:
        made = write_files(
            folder,
            path.name,
            subject,
            settings,
            metadata,
            calibration=calibration,
            ort=None if ort is None else pathlib.Path(ort),
        )
        engine = open_engine(made.runnable)
        record = compare(subject, engine, samples, settings, made.size)
        notes = [*subject.notes, *check(record, path)]
        if made.by_child:
            notes.append("the graph was made by a child process on TensorFlow")
        written = publish(made.paths, path, record, script)
    return Export(path, tuple(written), record, metadata, tuple(notes))


def describe(
    subject: Subject, settings: ExportSettings, license: str | None = None
) -> Metadata:
    """What an exported file tells of its model."""
    known = subject.preprocessing
    return Metadata(
        class_names=known["class_names"],
        class_names_known=known["class_names_known"],
        image_size=known["image_size"],
        channels=subject.channels,
        mean=known["mean"],
        std=known["std"],
        crop=known["crop"],
        interpolation=known["interpolation"],
        input_dtype=settings.input_dtype,
        layout=settings.layout,
        batch=settings.batch,
        output="logits" if settings.logits else "probabilities",
        maps=subject.map_grid if settings.maps else None,
        precision=settings.precision,
        variant=subject.architecture.variant or subject.architecture.nearest_variant(),
        name=subject.reference.model.name,
        trained_on=known["trained_on"],
        license=license,
        version=cct_keras.__version__,
    )


def _with_maps(settings, subject, maps):
    """The settings, with maps in a web page where the model has them."""
    if maps and subject.map_grid is None:
        raise ExportError(
            f"`maps` are the weights of SeqPool, and a {subject.architecture.family} "
            "has none"
        )
    if settings.format == "web" and maps is None:
        return dataclasses.replace(settings, maps=subject.map_grid is not None)
    return settings


def _load_images(subject, settings, data, data_dir):
    """Images to compare on, and those that int8 is calibrated on."""
    if data is None:
        return photographs(subject), None
    if settings.precision != "int8":
        return dataset_images(subject, data, "validation", COMPARED, data_dir), None
    judged = judged_count(subject.architecture)
    samples = dataset_images(subject, data, "validation", judged, data_dir)
    count = calibration_count(subject.architecture)
    calibration = dataset_images(subject, data, "train", count, data_dir)
    return samples, calibration.pixels.astype("float32")
