"""What is exported: weights, their architecture, and how images are prepared."""

import dataclasses
import os
import pathlib

import keras
import numpy as np

from cct_keras.errors import ExportError
from cct_keras.exporting.settings import ExportSettings
from cct_keras.inference.classifier import find_preprocessing
from cct_keras.inference.classifier import load_classifier
from cct_keras.layers.preprocessing import Preprocessing
from cct_keras.models.architecture import Architecture
from cct_keras.models.factory import CENTER
from cct_keras.models.factory import build_architecture
from cct_keras.models.inspection import architecture_of
from cct_keras.models.plain_weights import plain_weights
from cct_keras.models.transfer import fill
from cct_keras.models.variants import VARIANTS
from cct_keras.pretrained.catalog import WEIGHTS
from cct_keras.pretrained.catalog import class_names as known_class_names
from cct_keras.pretrained.source import is_tag
from cct_keras.pretrained.source import open_weights
from cct_keras.runtime.ranking import softmax

# Protocol buffers and flat buffers count their bytes in 31 bits; the graph needs some.
LARGEST_MODEL = 2**31 - 2**26


@dataclasses.dataclass(frozen=True, eq=False)
class Subject:
    """A trained classifier, taken apart.

    Attributes:
        architecture: Its architecture; the image shape is known.
        arrays: `{weight path: array}`, adapters merged.
        preprocessing: Arguments of a `Preprocessing` layer: `image_size`, `mean`,
            `std`, `crop`, `interpolation`, `class_names` and `trained_on`; and
            `class_names_known`, whether these names are more than numbers.
        reference: The Keras model that an exported file must agree with.
        notes: What had to be assumed.
    """

    architecture: Architecture
    arrays: dict[str, np.ndarray]
    preprocessing: dict
    reference: keras.Model
    notes: tuple[str, ...] = ()

    @property
    def channels(self) -> int:
        """Channels of its images."""
        return self.architecture.arguments["input_shape"][2]

    @property
    def map_grid(self) -> tuple[int, int] | None:
        """Rows and columns of the SeqPool weights; `None` for a model without."""
        if self.architecture.top_pooling != "seq":
            return None
        return self.architecture.token_grid

    def predict(self, pixels: np.ndarray) -> np.ndarray:
        """Probabilities of the reference.

        Args:
            pixels: `(images, *image_size, channels)` with values from 0 to 255.
        """
        outputs = self.reference.predict_on_batch(self._as_input(pixels))
        outputs = keras.ops.convert_to_numpy(outputs).astype("float32")
        return outputs if _ends_in_softmax(self.reference) else softmax(outputs)

    def predict_maps(self, pixels: np.ndarray) -> np.ndarray:
        """The weights that SeqPool of the reference gives to the tokens.

        Args:
            pixels: As for `predict`.

        Returns:
            float32 array `(images, rows, columns)`.
        """
        pool = self.reference.get_layer("pool")
        encoder = keras.Model(self.reference.input, pool.input)
        tokens = encoder.predict_on_batch(self._as_input(pixels))
        _, weights = pool(tokens, return_attention_scores=True)
        weights = keras.ops.convert_to_numpy(weights).astype("float32")
        return weights.reshape(-1, *self.map_grid)

    def _as_input(self, pixels):
        """Pixels in the form in which the reference takes them."""
        images = pixels.astype("float32")
        if any(isinstance(layer, Preprocessing) for layer in self.reference.layers):
            return images
        mean, std = (
            np.array(self.preprocessing[key], "float32") for key in ("mean", "std")
        )
        images = (images / np.float32(255) - mean) / std
        return np.moveaxis(images, -1, 1) if self._channels_first else images

    @property
    def _channels_first(self):
        shape = self.reference.input_shape
        return shape[1] == self.channels and shape[-1] != self.channels


def open_subject(
    model,
    *,
    mean: tuple | None = None,
    std: tuple | None = None,
    class_names: tuple | None = None,
) -> Subject:
    """Opens a model for export.

    Args:
        model: A Keras model of this package, a `.keras` file, the folder of a run,
            `VARIANT.TAG` of known weights, or a checkpoint that `convert` takes.
        mean: Mean of each channel in the place of what the model tells, for pixels
            from 0 to 1.
        std: Deviation of each channel, likewise.
        class_names: Names of the classes in the place of what the model tells.

    Returns:
        A `Subject`.
    """
    if isinstance(model, keras.Model):
        subject = _from_model(model)
    elif isinstance(model, (str, os.PathLike)):
        subject = _from_path(model)
    else:
        raise ExportError(
            "`model` must be a Keras model, a file, the folder of a run or "
            f"VARIANT.TAG. Received: {type(model).__name__}"
        )
    if not subject.architecture.num_classes:
        raise ExportError("the model has no head that tells classes apart")
    if None in subject.architecture.arguments["input_shape"]:
        raise ExportError(
            "the model takes images of any size, and an exported file needs one size: "
            "build the model with include_preprocessing=True, or use with_input_shape"
        )
    _check_ending(subject.reference)
    return _with_known_preprocessing(subject, mean, std, class_names)


# === Forms ===


def _from_model(model):
    try:
        architecture = architecture_of(model)
        arrays = plain_weights(model)
    except ValueError as error:
        raise ExportError(str(error)) from error
    shapes = architecture.weight_shapes()
    if arrays.keys() != shapes.keys():
        raise _not_ours(model.name, sorted(arrays.keys() ^ shapes.keys()))
    preprocessing = {}
    for layer in model.layers:
        if isinstance(layer, Preprocessing):
            preprocessing = _arguments(layer)
    reference, notes = _in_float32(model)
    return Subject(architecture, arrays, preprocessing, reference, notes)


def _in_float32(model):
    """The model that exported files are compared with, and what to say about it.

    One that computes in half precision is off by more than a file may be.
    """
    others = {
        layer.compute_dtype for layer in model._flatten_layers(include_self=False)
    } - {"float32"}
    if not others:
        return model, ()

    def clone_layer(layer):
        return type(layer).from_config({**layer.get_config(), "dtype": "float32"})

    clone = keras.models.clone_model(model, clone_function=clone_layer)
    clone.set_weights(model.get_weights())
    return clone, (
        f"the model computes in {' and '.join(sorted(others))}; it is exported, and "
        "compared, with its weights in float32",
    )


def _from_path(model):
    path = pathlib.Path(model)
    variant, _, tag = str(model).partition(".")
    if not path.exists() and variant in VARIANTS and tag and is_tag(tag):
        reference = load_classifier(model)
        return _from_source(reference, _arguments(find_preprocessing(reference)))
    if not path.exists():
        raise ExportError(f"no such model: {model}")
    if path.is_dir() or path.suffix == ".keras":
        # The Keras model itself, not the weights in its file: what somebody has added
        # to the model would be missed otherwise.
        return _from_model(load_classifier(path))
    try:
        source = open_weights(path)
        reference = build_architecture(source.architecture, weights=source)
    except ValueError as error:
        raise ExportError(str(error)) from error
    channels = source.architecture.arguments["input_shape"][2]
    settings = source.preprocessing(channels) or _published_settings(path, source)
    return _from_source(reference, settings)


def _from_source(reference, preprocessing):
    arrays = plain_weights(reference)
    return Subject(architecture_of(reference), arrays, preprocessing, reference)


def _published_settings(path, source):
    """What is known of a published file, if this one has the name of it."""
    for row in WEIGHTS:
        same_name = row.url is not None and row.url.endswith(f"/{path.name}")
        if same_name and row.dataset.num_classes == source.num_classes:
            return {
                "mean": row.dataset.mean,
                "std": row.dataset.std,
                "crop": row.dataset.crop,
                "class_names": tuple(known_class_names(row.tag)),
            }
    return {}


def _arguments(layer):
    names = ("mean", "std", "crop", "interpolation", "class_names", "trained_on")
    return {name: getattr(layer, name) for name in names}


# === What the model does not tell ===


def _with_known_preprocessing(subject, mean, std, class_names):
    """The subject with everything that preparing its images needs."""
    settings = {
        "crop": 1.0,
        "interpolation": "bicubic",
        "trained_on": None,
        "class_names": None,
        **subject.preprocessing,
        "image_size": tuple(subject.architecture.arguments["input_shape"][:2]),
    }
    notes = []
    if (mean is None) != (std is None):
        raise ExportError("give both `mean` and `std`, or neither of them")
    if mean is not None:
        settings["mean"], settings["std"] = tuple(mean), tuple(std)
    elif "mean" not in settings:
        found, note = _guess_normalization(subject)
        settings |= found
        notes.append(note)
    for name in ("mean", "std"):
        values = settings[name]
        fits = len(values) == subject.channels and all(
            isinstance(value, (int, float)) and np.isfinite(value) for value in values
        )
        if not fits or (name == "std" and min(values) <= 0):
            raise ExportError(
                f"`{name}` must have one number for each of the {subject.channels} "
                f"channels, `std` above 0. Received: {name}={values}"
            )
    classes = subject.architecture.num_classes
    if class_names is not None:
        settings["class_names"] = tuple(str(name) for name in class_names)
    settings["class_names_known"] = settings["class_names"] is not None
    if settings["class_names"] is None:
        settings["class_names"] = tuple(str(index) for index in range(classes))
        notes.append(
            "the model does not tell the names of its classes; they are numbered "
            "(`class_names` names them)"
        )
    if len(settings["class_names"]) != classes:
        raise ExportError(
            f"`class_names` must name the {classes} classes of the model. "
            f"Received: {len(settings['class_names'])} names"
        )
    return dataclasses.replace(
        subject, preprocessing=settings, notes=(*subject.notes, *notes)
    )


def _guess_normalization(subject):
    """As the published weights of this architecture and these classes expect it."""
    variant = subject.architecture.nearest_variant()
    choices = {
        (row.dataset.mean, row.dataset.std, row.dataset.crop)
        for row in WEIGHTS
        if row.variant == variant
        # Files that come with the package tell theirs.
        and not row.is_shipped
        and len(row.dataset.mean) == subject.channels
        and row.dataset.num_classes == subject.architecture.num_classes
    }
    if len(choices) == 1:
        mean, std, crop = choices.pop()
        settings = {"mean": mean, "std": std, "crop": crop}
        assumed = f"those of the published weights of {variant} are assumed"
    else:
        settings = {key: (CENTER,) * subject.channels for key in ("mean", "std")}
        assumed = f"{CENTER} is assumed for all channels"
    return settings, (
        "the model does not tell the `mean` and `std` its images are normalized by; "
        f"{assumed}"
    )


# === Parts ===


def build_body(
    architecture: Architecture, arrays: dict[str, np.ndarray]
) -> keras.Model:
    """The model from normalized images to logits, in float32.

    Args:
        architecture: Its architecture.
        arrays: Its weights by their path.
    """
    model = build_architecture(
        architecture,
        classifier_activation=None,
        data_format="channels_last",
        dtype="float32",
    )
    fill(model, dict(arrays), origin="the model", architecture=architecture)
    return model


def check_size(subject: Subject, settings: ExportSettings) -> None:
    """Refuses a model that is too large for its format."""
    size = sum(array.nbytes for array in subject.arrays.values())
    if settings.format != "saved_model" and size > LARGEST_MODEL:
        raise ExportError(
            f"the model has {size / 1e9:.1f} GB of weights, and a file of format "
            f"{settings.format!r} holds at most {LARGEST_MODEL / 1e9:.1f}; use "
            "format='saved_model'"
        )


def _check_ending(model):
    """Refuses what is neither probabilities nor logits."""
    name = _activation_name(model)
    if name not in ("softmax", "linear"):
        raise ExportError(
            f"the model ends in the activation {name!r}; an exported classifier needs "
            "'softmax', or None for logits"
        )


def _ends_in_softmax(model):
    return _activation_name(model) == "softmax"


def _activation_name(model):
    if "predictions" not in {layer.name for layer in model.layers}:
        return "linear"
    activation = model.get_layer("predictions").activation
    return getattr(activation, "__name__", str(activation))


def _not_ours(name, paths):
    return ExportError(
        f"{name!r} is not a model of this package alone: it has more weights, or lacks "
        f"some ({', '.join(paths[:3])}{', ...' if len(paths) > 3 else ''}); Keras' own "
        "model.export writes any model"
    )
