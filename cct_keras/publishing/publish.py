"""`publish`: a trained model as a repository of the Hugging Face Hub."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import tempfile

import keras
import numpy as np

from cct_keras.atomic_file import TEMPORARY
from cct_keras.converter.conversion import to_torch
from cct_keras.converter.hub_config import CONFIG
from cct_keras.converter.hub_config import OWN
from cct_keras.converter.hub_model import read_folder
from cct_keras.errors import CCTKerasError
from cct_keras.errors import CheckpointError
from cct_keras.errors import DataError
from cct_keras.errors import DownloadError
from cct_keras.errors import PublishError
from cct_keras.hub import parse_address
from cct_keras.hub import upload_folder
from cct_keras.inference.classifier import load_classifier
from cct_keras.inference.trained import output_activation
from cct_keras.layers.preprocessing import Preprocessing
from cct_keras.models.factory import create_model
from cct_keras.models.inspection import architecture_of
from cct_keras.models.inspection import find_tokenizer
from cct_keras.notes import collected_notes
from cct_keras.pretrained.source import RUN_MODEL
from cct_keras.pretrained.source import open_weights
from cct_keras.publishing.card import Facts
from cct_keras.publishing.card import write_card
from cct_keras.run_files import METRICS
from cct_keras.run_files import SETTINGS

SAFETENSORS = "model.safetensors"
CARD = "README.md"
# What the hub calls licenses, such as apache-2.0 or cc-by-nc-4.0.
LICENSE = r"[a-z0-9][a-z0-9.-]{0,63}"


@dataclasses.dataclass(frozen=True)
class Publication:
    """What `publish` returns.

    Attributes:
        repo: `user/repo`.
        files: The files, and the bytes of each.
        folder: Where they are on this machine; `None` if they were only uploaded.
        url: The page of the repository; `None` after a dry run.
        notes: What a person should know.
    """

    repo: str
    files: dict[str, int]
    folder: pathlib.Path | None = None
    url: str | None = None
    notes: tuple[str, ...] = ()


def publish(
    model,
    repo: str,
    *,
    license: str | None = None,
    out=None,
    dry_run: bool = False,
    private: bool = False,
    overwrite: bool = False,
) -> Publication:
    """Publishes a trained model on the Hugging Face Hub.

    The repository gets the model for Keras and as safetensors, a config, and a model
    card with the measured accuracy, its 95 % interval, and how it was trained. Before
    anything is uploaded the files are loaded as `create_model(weights="hf://...")` will
    load them, and must compute the same, bit for bit.

    Args:
        model: The folder of a run, whose metrics the card tells; a `.keras` file; a
            Keras model; or `VARIANT.TAG` of known weights.
        repo: `user/repo`, with the token that huggingface_hub knows.
        license: Identifier of the license, such as `"apache-2.0"`. There is no default:
            without one the card says that none was given.
        out: Folder for the files, which are also kept there. By default only a dry run
            writes one, `hub/user/repo`.
        dry_run: Whether to write the folder and upload nothing.
        private: Whether a new repository is private.
        overwrite: Whether to replace a folder that an earlier call wrote.

    Returns:
        A `Publication`.

    Example:

    >>> publication = publish("runs/photos", "user/repo", dry_run=True,
    ...                       license="apache-2.0")  # it writes # doctest: +SKIP
    """
    _check_repo(repo)
    if license is not None and not re.fullmatch(LICENSE, str(license)):
        raise PublishError(
            "`license` must be an identifier such as apache-2.0, mit, cc-by-4.0 or "
            f"other. Received: license={license!r}"
        )
    if out is None and dry_run:
        out = pathlib.Path("hub", *repo.split("/"))
    folder = None if out is None else pathlib.Path(out)
    if folder is not None:
        _check_folder(folder, overwrite)
    metrics, settings = _read_run(model)
    with _staging(folder) as staging:
        notes = _write(staging, model, repo, license, metrics, settings)
        files = {path.name: path.stat().st_size for path in sorted(staging.iterdir())}
        if folder is not None:
            _replace(staging, folder)
        url = None if dry_run else _upload(folder or staging, repo, private)
    if license is None:
        notes = (*notes, "no license was given (`license`), and the card says so")
    return Publication(repo, files, folder, url, tuple(notes))


# === Before ===


def _check_repo(repo):
    try:
        address = parse_address(f"hf://{repo}")
    except CCTKerasError:
        address = None
    if address is None or address.repo != repo:
        raise PublishError(
            f"`repo` must be user/repo, a user and a name. Received: repo={repo!r}"
        )


def _check_folder(folder, overwrite):
    if not folder.exists():
        return
    if not folder.is_dir():
        raise PublishError(f"{folder} is a file, and a folder is to be written")
    if not any(folder.iterdir()):
        return
    if not overwrite:
        raise PublishError(f"{folder} exists; overwrite=True replaces it")
    with contextlib.suppress(OSError, ValueError):
        if OWN in json.loads((folder / CONFIG).read_text()):
            return
    raise PublishError(f"{folder} was not written by this command; move it away")


def _read_run(model):
    """Metrics and settings of a run; `None` for anything but its folder."""
    if not isinstance(model, (str, os.PathLike)) or not pathlib.Path(model).is_dir():
        return None, None
    found = []
    for name in (METRICS, SETTINGS):
        path = pathlib.Path(model) / name
        try:
            found.append(json.loads(path.read_text()))
        except FileNotFoundError:
            raise PublishError(
                f"{model} holds no {name}: it is no complete run; train it to its end, "
                f"or give the file {RUN_MODEL} alone"
            ) from None
        except (OSError, ValueError) as error:
            raise PublishError(f"{path} cannot be read: {error}") from error
    return found


@contextlib.contextmanager
def _staging(folder):
    """A folder in which everything is made, and checked, before it takes its place."""
    parent = None
    try:
        if folder is not None:
            parent = folder.absolute().parent
            parent.mkdir(parents=True, exist_ok=True)
        staging = pathlib.Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=parent))
    except OSError as error:
        raise PublishError(f"{folder} cannot be written: {error.strerror}") from error
    try:
        yield staging
    except OSError as error:
        reason = error.strerror or error
        raise PublishError(f"the files cannot be written: {reason}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _replace(staging, folder):
    mask = os.umask(0)
    os.umask(mask)
    staging.chmod(0o777 & ~mask)
    if folder.exists():
        os.replace(folder, staging.with_name(f"{staging.name}-before"))
        os.replace(staging, folder)
        shutil.rmtree(staging.with_name(f"{staging.name}-before"), ignore_errors=True)
    else:
        os.replace(staging, folder)


def _upload(folder, repo, private):
    try:
        message = "Publish a model of cct_keras"
        return upload_folder(folder, repo, private=private, message=message)
    except DownloadError as error:
        raise PublishError(str(error)) from error


# === The files ===


def _write(staging, model, repo, license, metrics, settings):
    from cct_keras import __version__

    trained = _load(model)
    try:
        architecture = architecture_of(trained)
    except ValueError as error:
        raise PublishError(f"the model cannot be published: {error}") from error
    if not architecture.num_classes:
        raise PublishError("the model has no head that tells classes apart")
    file = _keras_file(model)
    if file is not None:
        shutil.copyfile(file, staging / RUN_MODEL)
    else:
        trained.save(staging / RUN_MODEL)
    files = {RUN_MODEL: "the model, with its preprocessing, for Keras"}
    notes = []
    try:
        with collected_notes():
            to_torch(trained, staging / SAFETENSORS)
        files[SAFETENSORS] = "its weights by the names of PyTorch"
    except CheckpointError as error:
        notes.append(f"no {SAFETENSORS}: {error}")
    files[CONFIG] = "its architecture, its preprocessing and the names of its classes"
    layer = _preprocessing_of(trained)
    preprocessing = None
    if layer is not None:
        names = ("mean", "std", "crop", "interpolation", "class_names", "trained_on")
        preprocessing = {name: getattr(layer, name) for name in names}
    config = _config(architecture, preprocessing, __version__)
    (staging / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    arguments = _check(staging, trained, SAFETENSORS in files)
    load = "".join(f", {name}={value!r}" for name, value in arguments.items())
    facts = Facts(
        repo=repo,
        architecture=architecture,
        parameters=trained.count_params(),
        preprocessing=preprocessing,
        load=load,
        files=files,
        version=__version__,
        license=license,
        metrics=metrics,
        settings=settings,
    )
    try:
        (staging / CARD).write_text(write_card(facts), encoding="utf-8")
    except (KeyError, TypeError) as error:
        raise PublishError(
            f"{METRICS} and {SETTINGS} of {model} are not those of a run: {error!r}"
        ) from error
    return notes


def _load(model):
    try:
        return load_classifier(model)
    except DataError as error:
        raise PublishError(str(error)) from error


def _keras_file(model):
    """The file that the model comes from, if it is one of Keras."""
    if isinstance(model, (str, os.PathLike)):
        path = pathlib.Path(model)
        path = path / RUN_MODEL if path.is_dir() else path
        if path.suffix == ".keras" and path.is_file():
            return path
    return None


def _preprocessing_of(model):
    return next((x for x in model.layers if isinstance(x, Preprocessing)), None)


def _config(architecture, preprocessing, version):
    own = {
        "version": version,
        "variant": architecture.variant,
        "architecture": json.loads(architecture.to_json()),
    }
    if preprocessing is not None:
        own["preprocessing"] = preprocessing
    return {"library_name": "keras", OWN: own}


# === The check ===


def _check(staging, trained, with_safetensors):
    """Loads the files as anybody will, and compares the outputs.

    Returns:
        Arguments of `create_model` that give the same model.
    """
    arguments = {}
    if _preprocessing_of(trained) is not None:
        arguments["include_preprocessing"] = True
    if output_activation(trained) == "linear":
        arguments["classifier_activation"] = None
    tokenizer = find_tokenizer(trained)
    if tokenizer.dtype_policy.name != keras.config.dtype_policy().name:
        arguments["dtype"] = tokenizer.dtype_policy.name
    if tokenizer.data_format != keras.config.image_data_format():
        arguments["data_format"] = tokenizer.data_format
    height, width, channels = architecture_of(trained).arguments["input_shape"]
    shape = trained.input_shape[1:]
    if None in shape:
        shape = (height, width, channels)
    images = np.random.default_rng(0).integers(0, 256, (2, *shape)).astype("float32")
    if not arguments.get("include_preprocessing"):
        images = images / 127.5 - 1
    expected = trained.predict_on_batch(images)
    for name in (RUN_MODEL, SAFETENSORS)[: 2 if with_safetensors else 1]:
        try:
            source = open_weights(read_folder(staging / name))
            loaded = create_model(weights=source, **arguments)
            found = loaded.predict_on_batch(images)
        except ValueError as error:
            message = str(error).replace(f"{staging}{os.sep}", "")
            raise PublishError(f"{name} does not load back: {message}") from error
        if not np.array_equal(found, expected):
            raise PublishError(
                f"{name} loads back as a model that computes something else: publish a "
                "plain model of this package, its adapters merged"
            )
    return arguments
