"""A trained model of Keras, whatever form it comes in, and how its images are prepared.

`load_classifier` returns a model that prepares its images itself. This module also
takes models and checkpoints that do not, and finds out what they leave unsaid.
"""

import dataclasses
import os
import pathlib

import keras
import numpy as np

from cct_keras.errors import ModelError
from cct_keras.hub import is_hub
from cct_keras.inference.classifier import find_preprocessing
from cct_keras.inference.classifier import load_classifier
from cct_keras.layers.preprocessing import Preprocessing
from cct_keras.models.architecture import Architecture
from cct_keras.models.factory import CENTER
from cct_keras.models.factory import build_architecture
from cct_keras.models.inspection import architecture_of
from cct_keras.pretrained.catalog import WEIGHTS
from cct_keras.pretrained.catalog import class_names as known_class_names
from cct_keras.pretrained.source import named_row
from cct_keras.pretrained.source import open_weights


@dataclasses.dataclass(frozen=True, eq=False)
class Trained:
    """A trained model and how images are prepared for it.

    Attributes:
        model: The Keras model.
        architecture: Its architecture.
        preprocessing: Arguments of a `Preprocessing` layer: `image_size`, `mean`,
            `std`, `crop`, `interpolation`, `class_names` and `trained_on`; and
            `class_names_known`, whether these names are more than numbers.
        notes: What had to be assumed.
    """

    model: keras.Model
    architecture: Architecture
    preprocessing: dict
    notes: tuple[str, ...] = ()

    @property
    def channels(self) -> int:
        """Channels of its images."""
        return self.architecture.arguments["input_shape"][2]

    @property
    def num_classes(self) -> int:
        """Classes that its head tells apart."""
        return _count_classes(self.model)

    @property
    def prepares_images(self) -> bool:
        """Whether the model itself resizes and normalizes raw pixels."""
        return any(isinstance(layer, Preprocessing) for layer in self.model.layers)

    @property
    def channels_first(self) -> bool:
        """Whether the model takes `(batch, channels, height, width)`."""
        shape = self.model.input_shape
        return shape[1] == self.channels and shape[-1] != self.channels

    def as_input(self, pixels: np.ndarray) -> np.ndarray:
        """Pixels in the form in which the model takes them.

        Args:
            pixels: `(images, *image_size, channels)` with values from 0 to 255.
        """
        images = pixels.astype("float32")
        if self.prepares_images:
            return images
        mean, std = (
            np.array(self.preprocessing[key], "float32") for key in ("mean", "std")
        )
        images = (images / np.float32(255) - mean) / std
        return np.moveaxis(images, -1, 1) if self.channels_first else images


def open_trained(
    model,
    *,
    mean: tuple | None = None,
    std: tuple | None = None,
    class_names: tuple | None = None,
    needs_head: bool = True,
) -> Trained:
    """Opens a trained model.

    Args:
        model: A Keras model of this package, a `.keras` file, the folder of a run,
            `VARIANT.TAG` of known weights, or a checkpoint that `convert` takes.
        mean: Mean of each channel in the place of what the model tells, for pixels
            from 0 to 1.
        std: Deviation of each channel, likewise.
        class_names: Names of the classes in the place of what the model tells.
        needs_head: Whether to refuse a model without head.

    Returns:
        A `Trained`.

    Raises:
        ModelError: There is no such model, it is not of this package, or it has no
            head.

    Example:

    >>> open_trained("cct_2_3x2_32.digits").preprocessing["image_size"]
    (16, 16)
    """
    if isinstance(model, keras.Model):
        found, settings = model, _settings_of(model)
    elif isinstance(model, (str, os.PathLike)):
        found, settings = _from_path(model)
    else:
        raise ModelError(
            "`model` must be a Keras model, a file, the folder of a run or "
            f"VARIANT.TAG. Received: {type(model).__name__}"
        )
    try:
        architecture = architecture_of(found)
    except ValueError as error:
        raise ModelError(_with_hint(found, str(error))) from error
    if needs_head and not _count_classes(found):
        raise ModelError("the model has no head that tells classes apart")
    return _with_known_preprocessing(
        Trained(found, architecture, settings), mean, std, class_names
    )


def output_activation(model: keras.Model) -> str:
    """Name of the activation that a classifier ends in; `"linear"` for logits."""
    last = last_operation(model)
    if _activation_name(last) is not None:
        return _activation_name(last)
    # A head of the user's own may end in a layer, or in a function of `keras.ops`.
    kind = type(last).__name__.lower()
    return kind if kind in ("softmax", "sigmoid") else "linear"


def last_operation(model: keras.Model):
    """The layer or function that makes the output of a model, without mere casts.

    Behind a softmax a linear activation often does nothing but return to float32.
    """
    operations = list(getattr(model, "operations", model.layers))
    while len(operations) > 1 and (
        isinstance(operations[-1], keras.layers.Activation)
        and _activation_name(operations[-1]) == "linear"
    ):
        operations.pop()
    return operations[-1]


def _activation_name(operation):
    activation = getattr(operation, "activation", None)
    if activation is None:
        return None
    return getattr(activation, "__name__", str(activation))


# === Forms ===


def _from_path(model):
    """A Keras model, and what is known of how its images are prepared."""
    if is_hub(model):
        found = load_classifier(model)
        return found, _settings_of(found)
    path = pathlib.Path(model)
    if "." in str(model) and named_row(str(model)) is not None:
        found = load_classifier(model)
        return found, _arguments(find_preprocessing(found))
    if not path.exists():
        raise ModelError(f"no such model: {model}")
    if path.is_dir() or path.suffix == ".keras":
        # The Keras model itself, not the weights in its file: what somebody has added
        # to the model would be missed otherwise.
        found = load_classifier(path)
        return found, _settings_of(found)
    try:
        source = open_weights(path)
        found = build_architecture(source.architecture, weights=source)
    except ValueError as error:
        raise ModelError(str(error)) from error
    channels = source.architecture.arguments["input_shape"][2]
    return found, source.preprocessing(channels) or _published_settings(path, source)


def _count_classes(model):
    """Outputs of a model that ends in a head of its own or of somebody else; or 0."""
    if len(model.outputs) != 1 or len(model.output_shape) != 2:
        return 0
    heads = [layer for layer in model.layers if isinstance(layer, keras.layers.Dense)]
    if heads and heads[-1].name == "projection":
        # What a model without head projects to are no classes.
        return 0
    return model.output_shape[-1] if heads else 0


def _settings_of(model):
    for layer in model.layers:
        if isinstance(layer, Preprocessing):
            return _arguments(layer)
    return {}


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


def _with_hint(model, message):
    """The message, and where the model of this package is, if it is one layer."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            try:
                architecture_of(layer)
            except ValueError:
                continue
            if _count_classes(layer):
                return f"{message}; its layer {layer.name!r} is: give that one"
            return (
                f"{message}; its layer {layer.name!r} is, without a head: put your "
                "layers on its output, as in keras.Model(body.input, head(body.output))"
            )
    return message


# === What the model does not tell ===


def _with_known_preprocessing(trained, mean, std, class_names):
    """The model with everything that preparing its images needs."""
    settings = {
        "crop": 1.0,
        "interpolation": "bicubic",
        "trained_on": None,
        "class_names": None,
        **trained.preprocessing,
        "image_size": tuple(trained.architecture.arguments["input_shape"][:2]),
    }
    notes = []
    if (mean is None) != (std is None):
        raise ModelError("give both `mean` and `std`, or neither of them")
    if mean is not None:
        settings["mean"], settings["std"] = tuple(mean), tuple(std)
    elif "mean" not in settings:
        found, note = _guess_normalization(trained)
        settings |= found
        notes.append(note)
    for name in ("mean", "std"):
        values = settings[name]
        fits = len(values) == trained.channels and all(
            isinstance(value, (int, float)) and np.isfinite(value) for value in values
        )
        if not fits or (name == "std" and min(values) <= 0):
            raise ModelError(
                f"`{name}` must have one number for each of the {trained.channels} "
                f"channels, `std` above 0. Received: {name}={values}"
            )
    classes = trained.num_classes
    if class_names is not None:
        settings["class_names"] = tuple(str(name) for name in class_names)
    elif len(settings["class_names"] or ()) != classes:
        # Somebody has put another head on the model.
        settings["class_names"] = None
    settings["class_names_known"] = settings["class_names"] is not None
    if settings["class_names"] is None:
        settings["class_names"] = tuple(str(index) for index in range(classes))
        notes.append(
            "the model does not tell the names of its classes; they are numbered "
            "(`class_names` names them)"
        )
    if len(settings["class_names"]) != classes:
        raise ModelError(
            f"`class_names` must name the {classes} classes of the model. "
            f"Received: {len(settings['class_names'])} names"
        )
    return dataclasses.replace(
        trained, preprocessing=settings, notes=(*trained.notes, *notes)
    )


def _guess_normalization(trained):
    """As the published weights of this architecture and these classes expect it."""
    variant = trained.architecture.nearest_variant()
    choices = {
        (row.dataset.mean, row.dataset.std, row.dataset.crop)
        for row in WEIGHTS
        if row.variant == variant
        # Files that come with the package tell theirs.
        and not row.is_shipped
        and len(row.dataset.mean) == trained.channels
        and row.dataset.num_classes == trained.num_classes
    }
    if len(choices) == 1:
        mean, std, crop = choices.pop()
        settings = {"mean": mean, "std": std, "crop": crop}
        assumed = f"those of the published weights of {variant} are assumed"
    else:
        settings = {key: (CENTER,) * trained.channels for key in ("mean", "std")}
        assumed = f"{CENTER} is assumed for all channels"
    return settings, (
        "the model does not tell the `mean` and `std` its images are normalized by; "
        f"{assumed}"
    )
