"""What is exported: weights, their architecture, and how images are prepared."""

import dataclasses

import keras
import numpy as np

from cct_keras.errors import CCTKerasError
from cct_keras.errors import ExportError
from cct_keras.errors import ModelError
from cct_keras.exporting.settings import ExportSettings
from cct_keras.inference.trained import Trained
from cct_keras.inference.trained import open_trained
from cct_keras.inference.trained import output_activation
from cct_keras.models.architecture import Architecture
from cct_keras.models.factory import build_architecture
from cct_keras.models.plain_weights import plain_weights
from cct_keras.models.transfer import fill
from cct_keras.runtime.ranking import softmax

# Protocol buffers and flat buffers count their bytes in 31 bits; the graph needs some.
LARGEST_MODEL = 2**31 - 2**26


@dataclasses.dataclass(frozen=True, eq=False)
class Subject:
    """A trained classifier, taken apart.

    Attributes:
        reference: The Keras model that an exported file must agree with, and how its
            images are prepared.
        arrays: `{weight path: array}`, adapters merged.
        notes: What had to be assumed.
    """

    reference: Trained
    arrays: dict[str, np.ndarray]
    notes: tuple[str, ...] = ()

    @property
    def architecture(self) -> Architecture:
        """Its architecture; the image shape is known."""
        return self.reference.architecture

    @property
    def preprocessing(self) -> dict:
        """How its images are prepared; see `Trained`."""
        return self.reference.preprocessing

    @property
    def channels(self) -> int:
        """Channels of its images."""
        return self.reference.channels

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
        model = self.reference.model
        outputs = model.predict_on_batch(self.reference.as_input(pixels))
        outputs = keras.ops.convert_to_numpy(outputs).astype("float32")
        return outputs if output_activation(model) == "softmax" else softmax(outputs)

    def predict_maps(self, pixels: np.ndarray) -> np.ndarray:
        """The weights that SeqPool of the reference gives to the tokens.

        Args:
            pixels: As for `predict`.

        Returns:
            float32 array `(images, rows, columns)`.
        """
        model = self.reference.model
        pool = model.get_layer("pool")
        encoder = keras.Model(model.input, pool.input)
        tokens = encoder.predict_on_batch(self.reference.as_input(pixels))
        _, weights = pool(tokens, return_attention_scores=True)
        weights = keras.ops.convert_to_numpy(weights).astype("float32")
        return weights.reshape(-1, *self.map_grid)


def open_subject(
    model,
    *,
    mean: tuple | None = None,
    std: tuple | None = None,
    class_names: tuple | None = None,
) -> Subject:
    """Opens a model for export.

    Args:
        model: As for `open_trained`.
        mean: As for `open_trained`.
        std: As for `open_trained`.
        class_names: As for `open_trained`.

    Returns:
        A `Subject`.
    """
    try:
        trained = open_trained(model, mean=mean, std=std, class_names=class_names)
        arrays = plain_weights(trained.model)
    except ValueError as error:
        kept = isinstance(error, CCTKerasError) and not isinstance(error, ModelError)
        raise error if kept else ExportError(str(error)) from error
    shapes = trained.architecture.weight_shapes()
    if arrays.keys() != shapes.keys():
        raise _not_ours(trained.model.name, sorted(arrays.keys() ^ shapes.keys()))
    if None in trained.architecture.arguments["input_shape"]:
        raise ExportError(
            "the model takes images of any size, and an exported file needs one size: "
            "build the model with include_preprocessing=True, or use with_input_shape"
        )
    _check_ending(trained.model)
    reference, notes = _in_float32(trained)
    return Subject(reference, arrays, (*trained.notes, *notes))


def _in_float32(trained):
    """The model that exported files are compared with, and what to say about it.

    One that computes in half precision is off by more than a file may be.
    """
    model = trained.model
    others = {
        layer.compute_dtype for layer in model._flatten_layers(include_self=False)
    } - {"float32"}
    if not others:
        return trained, ()

    def clone_layer(layer):
        return type(layer).from_config({**layer.get_config(), "dtype": "float32"})

    clone = keras.models.clone_model(model, clone_function=clone_layer)
    clone.set_weights(model.get_weights())
    return dataclasses.replace(trained, model=clone), (
        f"the model computes in {' and '.join(sorted(others))}; it is exported, and "
        "compared, with its weights in float32",
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
    name = output_activation(model)
    if name not in ("softmax", "linear"):
        raise ExportError(
            f"the model ends in the activation {name!r}; an exported classifier needs "
            "'softmax', or None for logits"
        )


def _not_ours(name, paths):
    return ExportError(
        f"{name!r} is not a model of this package alone: it has more weights, or lacks "
        f"some ({', '.join(paths[:3])}{', ...' if len(paths) > 3 else ''}); Keras' own "
        "model.export writes any model"
    )
