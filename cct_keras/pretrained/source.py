"""Weights, whatever form they come in, opened once and handed on."""

import contextlib
import copy
import dataclasses
import os
import pathlib
from collections.abc import Mapping

import keras
import numpy as np

from cct_keras.cache import file_hash
from cct_keras.converter.conversion import arrays_by_path
from cct_keras.converter.formats import open_checkpoint
from cct_keras.converter.hub_config import check_preprocessing
from cct_keras.converter.hub_model import HubModel
from cct_keras.converter.hub_model import checkpoint_in
from cct_keras.converter.hub_model import named_after
from cct_keras.converter.hub_model import open_hub_model
from cct_keras.converter.infer import infer
from cct_keras.converter.infer import weight_shapes
from cct_keras.download import cached_file
from cct_keras.download import download
from cct_keras.download import forget_on_error
from cct_keras.download import is_url
from cct_keras.errors import CheckpointError
from cct_keras.hub import PREFIX
from cct_keras.hub import is_hub
from cct_keras.hub import is_name
from cct_keras.models.architecture import Architecture
from cct_keras.models.inspection import architecture_of
from cct_keras.models.transfer import fill
from cct_keras.models.transfer import list_problems
from cct_keras.pretrained.catalog import FILE_SUFFIXES
from cct_keras.pretrained.catalog import HOSTS
from cct_keras.pretrained.catalog import WEIGHTS
from cct_keras.pretrained.catalog import Weights
from cct_keras.pretrained.catalog import class_names
from cct_keras.pretrained.catalog import find_named
from cct_keras.pretrained.catalog import find_weights
from cct_keras.pretrained.keras_file import SUFFIXES
from cct_keras.pretrained.keras_file import read_keras_file
from cct_keras.spelling import suggest

# What `train` calls the model in the folder of a run.
RUN_MODEL = "model.keras"
# In a wheel the files are inside the package, in a checkout beside it.
SHIPPED_FOLDERS = (
    pathlib.Path(__file__).parents[1] / "weights",
    pathlib.Path(__file__).parents[2] / "weights",
)


class WeightSource:
    """Weights to start from, and what is known of them.

    Attributes:
        name: What messages and settings call it: the tag, the path or the URL.
        architecture: The architecture that the weights belong to.
        arrays: `{weight path: array}` in the layout of Keras.
        states_settings: Whether it records what no shape tells, such as heads.
        tells_activation: Whether its activation is known; a foreign checkpoint does
            not tell it, and `"gelu"` is assumed.
        row: The row of the catalog, if it came by a tag.
        num_classes: Classes of its head; 0 without one.
        positional_embedding: Kind of its positions; `None` if it has none.
        mean: Mean of each channel, as the images were normalized, if known.
        std: Deviation of each channel, likewise.
        notes: What to say of where they come from.
    """

    def __init__(
        self,
        name: str,
        architecture: Architecture,
        arrays: dict[str, np.ndarray],
        *,
        states_settings: bool = False,
        tells_activation: bool = True,
        name_of=str,
        row: Weights | None = None,
        preprocessing: Mapping | None = None,
        notes: tuple[str, ...] = (),
    ):
        self.name = name
        self.architecture = architecture
        self.arrays = arrays
        self.states_settings = states_settings
        self.tells_activation = tells_activation
        self.row = row
        self.notes = notes
        self.num_classes = architecture.num_classes
        self.positional_embedding = architecture.arguments["positional_embedding"]
        self._name_of = name_of
        self._preprocessing = dict(preprocessing or {})
        if row is not None:
            data = row.dataset
            self._preprocessing = {"mean": data.mean, "std": data.std}
            self._preprocessing["crop"] = data.crop
        self.mean = _as_tuple(self._preprocessing.get("mean"))
        self.std = _as_tuple(self._preprocessing.get("std"))

    @property
    def variant(self) -> str:
        """The named variant that has its architecture."""
        if self.row is not None:
            return self.row.variant
        variant = self.architecture.nearest_variant()
        if variant is None:
            raise ValueError(
                f"{self.name} has the architecture of no named variant "
                f"({self.architecture}): build it by its constructor with weights=..., "
                "and train it with model.fit"
            )
        return variant

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """What the head tells apart, if known."""
        if self.row is not None and self.num_classes:
            with contextlib.suppress(ValueError):
                return tuple(class_names(self.row.tag))
        return _as_tuple(self._preprocessing.get("class_names"))

    def decided_arguments(self) -> dict:
        """Constructor arguments that the weights decide where nobody else does."""
        decided = {"positional_embedding": self.positional_embedding}
        if self.num_classes:
            decided["num_classes"] = self.num_classes
        for name in (
            "epsilon",
            "distillation_head",
            "top_pooling",
            "representation_size",
            "activation",
            "class_token",
            "class_token_position",
            "position_interpolation",
            "final_norm",
        ):
            if name in self.architecture.arguments:
                decided[name] = self.architecture.arguments[name]
        is_shipped = self.row is not None and self.row.is_shipped
        shape = self.architecture.arguments["input_shape"]
        if (self.states_settings or is_shipped) and None not in shape:
            decided["input_shape"] = shape
        return decided

    def preprocessing(self, channels: int) -> dict:
        """Arguments of a `Preprocessing` layer for images of these channels."""
        if self.mean is None or len(self.mean) != channels:
            names = self._preprocessing.get("class_names")
            return {} if names is None else {"class_names": tuple(names)}
        names = ("crop", "interpolation", "trained_on")
        settings = {
            k: self._preprocessing[k] for k in names if k in self._preprocessing
        }
        settings |= {"mean": self.mean, "std": self.std}
        if self.class_names is not None:
            settings["class_names"] = self.class_names
        if self.row is not None and self.row.is_shipped:
            made = self.row.provenance
            settings["trained_on"] = {
                "name": made.data,
                "fingerprint": made.fingerprint,
                "cut": {"validation": 0.1, "test": 0.15, "seed": made.split_seed},
            }
        return settings

    def with_activation(self, activation: str) -> "WeightSource":
        """The same weights as a start for training with another activation.

        Args:
            activation: The activation of the model that is to be trained.
        """
        arguments = {**self.architecture.arguments, "activation": activation}
        other = copy.copy(self)
        other.architecture = dataclasses.replace(self.architecture, arguments=arguments)
        return other

    def load_into(self, model: keras.Model) -> None:
        """Fills a model; see `models.transfer.fill`."""
        fill(
            model,
            dict(self.arrays),
            origin=self.name,
            architecture=self.architecture,
            exact=self.states_settings,
            tells_activation=self.tells_activation,
            name_of=self._name_of,
        )


def open_weights(
    weights,
    *,
    variant: str | None = None,
    model: keras.Model | None = None,
    body_only: bool = False,
) -> WeightSource | None:
    """Opens weights, whatever form they come in.

    Args:
        weights: A tag of known weights, or these as `VARIANT.TAG`; a variant that has
            but one tag; a `.keras`, `.weights.h5` or foreign checkpoint file; the
            folder of a run, or one that `save_pretrained` wrote; a URL; `hf://user/repo` on the hub; a mapping of arrays; or
            a `WeightSource`, which is returned as it is.
        variant: The named variant they are for.
        model: The model they are for. A tag needs this or a variant.
        body_only: Whether to return `None` for a tag, instead of downloading its file.

    Returns:
        A `WeightSource`.
    """
    if isinstance(weights, WeightSource):
        return weights
    if is_hub(weights):
        weights = open_hub_model(weights)
    if isinstance(weights, HubModel):
        return _open_hub_model(weights)
    if not isinstance(weights, (str, os.PathLike, Mapping)):
        raise ValueError(
            "`weights` must be a tag, a file, the folder of a run or a mapping of "
            f"arrays. Received: weights={weights!r}"
        )
    if isinstance(weights, Mapping):
        return _open_checkpoint(weights, "the checkpoint")
    row = named_row(weights)
    if row is not None:
        return None if body_only else _open_row(row, row.name)
    if names_tag(weights):
        return None if body_only else _open_tag(weights, variant, model)
    if is_url(weights):
        if weights.endswith(SUFFIXES):
            raise ValueError(f"`weights`: download {weights} first, and give the file")
        return _open_checkpoint(weights, weights)
    path = find_run_model(weights) or pathlib.Path(weights)
    if not path.exists():
        near = suggest(str(weights), [row.name for row in WEIGHTS])
        is_file = path.suffix.removeprefix(".") in FILE_SUFFIXES
        if not near and not is_file and is_name(weights):
            near = f"On the Hugging Face Hub it would be {PREFIX}{weights}"
        raise ValueError(
            "`weights` must be a tag or an existing file or folder; no such file or "
            f"tag: {weights}" + (f". {near}" if near else "")
        )
    if str(path).endswith(SUFFIXES):
        return _open_keras_file(path, str(path))
    return _open_checkpoint(path, str(path))


def is_tag(weights) -> bool:
    """Whether `weights` is meant as a tag and not as a file."""
    return (
        isinstance(weights, str)
        and not is_url(weights)
        and not pathlib.Path(weights).suffix
        and os.sep not in weights
    )


def named_row(weights) -> Weights | None:
    """The row that `weights` names as `VARIANT.TAG` or by a variant, if it does.

    A file or a folder with that name comes first.
    """
    if not isinstance(weights, str) or is_url(weights) or os.path.exists(weights):
        return None
    return find_named(weights)


def names_tag(weights) -> bool:
    """Whether `weights` is a tag; the folder of a run with that name comes first."""
    if not is_tag(weights) or named_row(weights) is not None:
        return False
    folder = pathlib.Path(weights)
    if folder.is_dir():
        known = any(row.tag == weights for row in WEIGHTS)
        return known and not (folder / RUN_MODEL).is_file()
    return True


def find_run_model(weights) -> pathlib.Path | None:
    """The model in the folder of a run or of a checkpoint, if `weights` is a folder."""
    folder = pathlib.Path(weights)
    if not folder.is_dir():
        return None
    if (folder / RUN_MODEL).is_file():
        return folder / RUN_MODEL
    checkpoint = checkpoint_in(folder)
    if checkpoint is None:
        raise ValueError(f"{weights} holds no {RUN_MODEL}; is that run complete?")
    return checkpoint


# === Forms ===


def _open_keras_file(path, name, row=None, of_a_stranger=False):
    found = read_keras_file(path)
    preprocessing = found.preprocessing
    if of_a_stranger and preprocessing is not None:
        preprocessing = check_preprocessing(name, preprocessing)
    return WeightSource(
        name,
        found.architecture,
        found.arrays,
        states_settings=found.states_settings,
        row=row,
        preprocessing=preprocessing,
    )


def _open_checkpoint(source, name, row=None):
    checkpoint = open_checkpoint(source)
    architecture = infer(checkpoint, known=row and _told_by(row))
    return WeightSource(
        name,
        architecture,
        arrays_by_path(checkpoint, architecture),
        states_settings=checkpoint.states_settings,
        tells_activation=checkpoint.tells_activation or row is not None,
        name_of=checkpoint.table.name_of,
        row=row,
        preprocessing=checkpoint.told.preprocessing,
    )


def _told_by(row):
    """What is known of a published file, and no tensor tells."""
    variant = Architecture.from_variant(row.variant)
    names = ("num_heads", "epsilon", "activation")
    told = {name: variant.arguments.get(name) for name in names}
    return {**told, "position_interpolation": row.position_interpolation}


def _open_hub_model(model):
    if not model.is_keras:
        source = _open_checkpoint(model, model.address)
    else:
        with named_after(model.address, model.path):
            source = _open_keras_file(model.path, model.address, of_a_stranger=True)
            _check_all_is_known(source)
    if model.origin:
        source.notes = (f"weights: {model.origin}",)
    return source


def _check_all_is_known(source):
    """Refuses a file of a stranger that is not what it says, before it is built."""
    if not source.architecture.size_fits_grid:
        raise CheckpointError(
            f"{source.name} is no model of this package: its positions are not for "
            f"images of {source.architecture.arguments['input_shape'][:2]}"
        )
    expected = weight_shapes(source.architecture)
    found = {path: array.shape for path, array in source.arrays.items()}
    problems = list_problems(
        [path for path in expected if path not in found],
        [path for path in found if path not in expected],
        [
            f"{path} {found[path]} for {shape}"
            for path, shape in expected.items()
            if path in found and found[path] != shape
        ],
    )
    if problems:
        raise CheckpointError(f"{source.name} is no model of this package: {problems}")


def _open_tag(tag, variant, model):
    if variant is not None:
        row = find_weights(variant, tag)
    elif model is not None:
        row = matching_row(architecture_of(model), tag, model.name)
    else:
        near = suggest(str(tag), {row.variant for row in WEIGHTS})
        raise ValueError(
            f"the tag {tag!r} needs a variant that it belongs to"
            + (f". {near}" if near else "")
        )
    return _open_row(row, tag)


def _open_row(row, name):
    if row.is_shipped:
        return _open_keras_file(find_shipped(row), name, row)
    path = download(*_addresses(row), sha256=row.sha256)
    with forget_on_error(path):
        return _open_checkpoint(path, name, row)


# === Known weights ===


def matching_row(architecture: Architecture, tag: str, name: str) -> Weights:
    """The row of a tag that fits an architecture, nearest in positions and size."""
    kind = architecture.arguments["positional_embedding"]
    shape = architecture.arguments["input_shape"]

    def fits(row):
        other = Architecture.from_variant(row.variant)
        # Another activation is refused later, by its name.
        ignored = ("epsilon", "num_heads", "activation")
        return architecture.same_body(other, ignore=ignored)

    def distance(row):
        arguments = Architecture.from_variant(row.variant).arguments
        other_kind = arguments["positional_embedding"] != kind
        # A plain DeiT has the architecture of a ViT, and other weights.
        other_name = row.variant.split("_")[0] != name.split("_")[0]
        size = abs((shape[1] or 0) - arguments["input_shape"][1])
        return other_kind, other_name, size

    rows = [row for row in WEIGHTS if row.tag == tag and fits(row)]
    if not rows:
        known = "; ".join(f"{row.variant}: {row.tag}" for row in WEIGHTS)
        raise ValueError(
            f"no weights {tag!r} for the architecture of {name!r}. Known: {known}"
        )
    return min(rows, key=distance)


def address_to_download(weights, variant: str | None = None) -> str | None:
    """The address that `open_weights` would have to download first, if any.

    Args:
        weights: What `open_weights` takes.
        variant: The named variant they are for; a tag needs one.
    """
    row = find_row(weights, variant)
    if is_url(weights):
        address = weights
    elif row is None or row.is_shipped:
        return None
    else:
        address = _addresses(row)[0]
    return None if cached_file(address).is_file() else address


def find_row(weights, variant: str | None = None) -> Weights | None:
    """The row of known weights that `weights` names, if it names one.

    Args:
        weights: What `open_weights` takes.
        variant: The named variant they are for; a tag needs one.
    """
    row = named_row(weights)
    if row is None and variant is not None and names_tag(weights):
        row = find_weights(variant, weights)
    return row


def _addresses(row):
    """Where the published file of a row is.

    `CCT_KERAS_WEIGHTS_URL` puts another address in the place of the official ones,
    with the same paths below it.
    """
    mirror = os.environ.get("CCT_KERAS_WEIGHTS_URL")
    urls = (row.url, *row.mirrors)
    if mirror:
        path = row.url
        for base in HOSTS:
            path = path.removeprefix(base)
        urls = (f"{mirror.rstrip('/')}/{path}",)
    return urls


def find_shipped(row: Weights) -> pathlib.Path:
    """The file of weights that come with the package, checked by its hash."""
    for folder in SHIPPED_FOLDERS:
        path = folder / row.shipped_file
        if path.is_file():
            digest = file_hash(path)
            if digest != row.sha256:
                raise ValueError(
                    f"{path} is not the file that was shipped (SHA-256 {digest}, "
                    f"expected {row.sha256}): install the package again"
                )
            return path
    raise ValueError(
        f"{row.shipped_file} should have come with the package, but is not in "
        f"{' or '.join(map(str, SHIPPED_FOLDERS))}: install the package again"
    )


def _as_tuple(values):
    return None if values is None else tuple(values)
