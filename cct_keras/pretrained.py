"""Weights by name, published or shipped: rows of plain data, and how they are found."""

import io
import json
import os
import pathlib
import zipfile
from collections.abc import Mapping
from typing import NamedTuple

import keras
import numpy as np

from cct_keras.atomic_file import atomic_file
from cct_keras.converter.conversion import convert
from cct_keras.converter.conversion import load_checkpoint
from cct_keras.converter.formats import infer
from cct_keras.converter.formats import read_weights
from cct_keras.converter.formats import table_of
from cct_keras.converter.shi_labs import total_stride
from cct_keras.data.known import DATASETS
from cct_keras.data.known import KnownDataset
from cct_keras.data.known import known_class_names
from cct_keras.download import download
from cct_keras.download import file_hash
from cct_keras.download import forget_on_error
from cct_keras.download import is_url
from cct_keras.download import recorded_hash
from cct_keras.layers import ConvTokenizer
from cct_keras.layers import EncoderBlock
from cct_keras.layers import Preprocessing
from cct_keras.layers.position_embedding import kind_of_table
from cct_keras.models.factory import create_model
from cct_keras.models.transfer import NATIVE_SUFFIXES
from cct_keras.models.transfer import load_keras_file
from cct_keras.models.transfer import stored_layers
from cct_keras.models.transfer import stored_positions
from cct_keras.models.variants import SIZES
from cct_keras.models.variants import VARIANTS
from cct_keras.models.variants import constructor_arguments

CURRENT = "https://shi-labs.com/projects/cct/checkpoints/"
DEIT = "https://dl.fbaipublicfiles.com/deit/"
LEGACY = "https://github.com/SHI-Labs/Compact-Transformers/files/"


# What a tag begins with: the name of its data set.
TRAINED_ON = {
    "cifar10": "cifar10",
    "cifar100": "cifar100",
    "flowers102": "oxford_flowers102",
    "imagenet": "imagenet2012",
    "mnist": "mnist",
    "digits": "digits",
}
# In a wheel the files are inside the package, in a checkout beside it.
SHIPPED_FOLDERS = (
    pathlib.Path(__file__).parent / "weights",
    pathlib.Path(__file__).parents[1] / "weights",
)


class Provenance(NamedTuple):
    """How shipped weights were made.

    Attributes:
        data: The data set.
        split: How many images trained, chose the epoch and tested.
        recipe: Recipe and what was changed in it.
        fingerprint: Hash of all images and labels.
        seed: Seed of the run.
        epochs: How many there were.
        minutes: Wall time of the training.
        hardware: What it ran on.
        top1_ci95: 95 % interval of the accuracy, in percent.
        train: The command that trains it again.
        check: The command that measures its accuracy again.
    """

    data: str
    split: str
    recipe: str
    fingerprint: str
    seed: int
    epochs: int
    minutes: float
    hardware: str
    top1_ci95: tuple[float, float]
    train: str
    check: str


class Weights(NamedTuple):
    """One file of weights.

    Attributes:
        variant: The architecture it belongs to.
        tag: Its name there; what stands before the first `_` is the data set.
        url: Where the authors keep it; `None` for one that comes with the package.
        top1: Accuracy in percent, as published or as measured for a shipped file.
        mirrors: Other addresses of the same bytes.
        sha256: Its hash, of a published file perhaps only the first digits; if it is
            not known, that of the first download counts.
        crop: Share of an image that evaluation keeps, if not that of the data set.
        normalisation: Mean and deviation of each channel, if not those that are
            known of the data set.
        provenance: How it was made, if here.
    """

    variant: str
    tag: str
    url: str | None
    top1: float
    mirrors: tuple = ()
    sha256: str | None = None
    crop: float | None = None
    normalisation: tuple[tuple, tuple] | None = None
    provenance: Provenance | None = None

    @property
    def is_shipped(self) -> bool:
        """Whether it comes with the package."""
        return self.url is None

    @property
    def shipped_file(self) -> str:
        """Its name in the folder of shipped files."""
        return f"{self.variant}.{self.tag}.weights.h5"

    @property
    def dataset(self) -> KnownDataset:
        """The data set it was trained on, as the weights expect its images."""
        data = DATASETS[_dataset_name(self.tag)]
        if self.normalisation is not None:
            mean, std = self.normalisation
            data = data._replace(mean=mean, std=std)
        return data if self.crop is None else data._replace(crop=self.crop)


# fmt: off
WEIGHTS = [
    Weights(variant, tag, CURRENT + file, top1)
    for variant, tag, file, top1 in (
        ("cct_7_3x1_32", "cifar10", "pretrained/cct_7_3x1_32_cifar10_300epochs.pth", 96.53),
        ("cct_7_3x1_32_sine", "cifar10_1500ep", "pretrained/cct_7_3x1_32_sine_cifar10_1500epochs.pth", 97.48),
        ("cct_7_3x1_32_sine", "cifar10", "pretrained/cct_7_3x1_32_sine_cifar10_5000epochs.pth", 98.00),
        ("cct_7_3x1_32", "cifar100", "pretrained/cct_7_3x1_32_cifar100_300epochs.pth", 80.92),
        ("cct_7_3x1_32_sine", "cifar100_1500ep", "pretrained/cct_7_3x1_32_sine_cifar100_1500epochs.pth", 82.72),
        ("cct_7_3x1_32_sine", "cifar100", "pretrained/cct_7_3x1_32_sine_cifar100_5000epochs.pth", 82.87),
        ("cct_7_7x2_224_sine", "flowers102", "pretrained/cct_7_7x2_224_flowers102.pth", 97.19),
        ("cct_14_7x2_224", "imagenet", "pretrained/cct_14_7x2_224_imagenet.pth", 80.67),
        ("cct_14_7x2_384", "imagenet", "finetuned/cct_14_7x2_384_imagenet.pth", 82.71),
        ("cct_14_7x2_384", "flowers102", "finetuned/cct_14_7x2_384_flowers102.pth", 99.76),
    )
] + [
    Weights(variant, f"{data}_{suffix}", f"{LEGACY}{number}/{name.format(data)}.pth.zip", top1)
    for variant, suffix, name, *rows in (
        ("vit_6_4_32", "legacy", "vitlite6-4_{}", (6666085, 90.94), (6666086, 69.20)),
        ("vit_7_4_32", "legacy", "vitlite7-4_{}", (6666087, 91.38), (6666088, 69.75)),
        ("cvt_6_4_32", "legacy", "cvt6-4_{}", (6666075, 92.58), (6666076, 72.25)),
        ("cvt_7_4_32", "legacy", "cvt7-4_{}", (6666077, 92.43), (6666078, 73.01)),
        ("cct_2_3x2_32", "legacy", "cct2-3x2_{}", (6666059, 89.17), (6666060, 66.90)),
        ("cct_4_3x2_32", "legacy", "cct4-3x2_{}", (6666061, 91.45), (6666066, 70.46)),
        ("cct_6_3x2_32", "legacy", "cct6-3x2_{}_best", (6658604, 93.56), (6658605, 74.47)),
        ("cct_7_3x2_32", "legacy", "cct7-3x2_{}_best", (6657152, 93.83), (6657154, 74.92)),
        ("cct_6_3x1_32", "legacy", "cct6-3x1_{}_best", (6657185, 94.81), (6657221, 76.71)),
        ("cct_6_3x1_32", "legacy_500ep", "cct6-3x1_{}_500", (6730781, 95.29), (6730783, 77.31)),
        ("cct_7_3x1_32", "legacy", "cct7-3x1_{}_best", (6644400, 94.78), (6657226, 77.05)),
    )
    for data, (number, top1) in zip(("cifar10", "cifar100"), rows, strict=True)
] + [
    # A name ends in the first digits of the file's hash.
    # Their evaluation takes 224 of 256 pixels.
    Weights(variant, "imagenet", f"{DEIT}{variant}-{digits}.pth", top1, sha256=digits, crop=0.875)
    for variant, digits, top1 in (
        ("deit_tiny_patch16_224", "a1311bcf", 72.2),
        ("deit_small_patch16_224", "cd65a155", 79.9),
        ("deit_base_patch16_224", "b5f2ef4d", 81.8),
        ("deit_tiny_distilled_patch16_224", "b40b3cf7", 74.5),
        ("deit_small_distilled_patch16_224", "649709d9", 81.2),
        ("deit_base_distilled_patch16_224", "df68dfff", 83.4),
        ("deit_base_patch16_384", "8de9b5d1", 82.9),
        ("deit_base_distilled_patch16_384", "d0272ac0", 85.2),
    )
]
# fmt: on

# === Trained here ===

HARDWARE = "2 cores of an AMD EPYC, no accelerator, TensorFlow"
WEIGHTS += [
    Weights(
        "cct_2_3x2_32",
        "cifar10_jpeg",
        url=None,
        top1=85.03,
        sha256="798525f08e006ba36c02f6ae515d3be7995d02e40d608148ebeca4b763d537b0",
        normalisation=((0.4912, 0.482, 0.4464), (0.2453, 0.2429, 0.2606)),
        provenance=Provenance(
            data="CIFAR-10 (JPEG)",
            split="45,000 / 5,000 / 10,000 images to train, validate, test",
            recipe="small, epochs=70, precision=mixed_bfloat16",
            fingerprint="5f2482a42e4842f46495a54a8142ae541efd9fae7431775897291160bf9d661e",
            seed=0,
            epochs=70,
            minutes=66,
            hardware=HARDWARE,
            top1_ci95=(84.32, 85.72),
            train="cct-keras train CIFAR10_FOLDER --recipe small --epochs 70 --precision mixed_bfloat16 --seed 0 --out runs/cifar10_jpeg",
            check="cct-keras evaluate cct_2_3x2_32.cifar10_jpeg CIFAR10_FOLDER",
        ),
    ),
    Weights(
        "cct_2_3x2_32",
        "mnist",
        url=None,
        top1=99.55,
        sha256="14dced5fb65868d67b3e3826dcf8542d3f93251c22b816ae496185e331db5a29",
        normalisation=((0.1307,), (0.3082,)),
        provenance=Provenance(
            data="MNIST",
            split="54,000 / 6,000 / 10,000 images to train, validate, test",
            recipe="small, epochs=20, precision=mixed_bfloat16",
            fingerprint="9eca9b7b1472bd236ee8cdb6efe3f33892acf5656298aafcb50f59a8b0dac226",
            seed=0,
            epochs=20,
            minutes=17,
            hardware=HARDWARE,
            top1_ci95=(99.4, 99.66),
            train="cct-keras train MNIST_FOLDER --recipe small --epochs 20 --precision mixed_bfloat16 --seed 0 --out runs/mnist",
            check="cct-keras evaluate cct_2_3x2_32.mnist MNIST_FOLDER",
        ),
    ),
    Weights(
        "cct_2_3x2_32",
        "digits",
        url=None,
        top1=99.72,
        sha256="4684701dfaf52bd06c14a58d42cd4590837c09874cb7d1582ba88e8713cebdd6",
        normalisation=((0.306,), (0.3763,)),
        provenance=Provenance(
            data="scikit-learn's digits",
            split="1,293 / 144 / 360 images to train, validate, test",
            recipe="small",
            fingerprint="c18faa03b18e8323a36d1f0f0dd38dd998f0980c96f05ddeb11be18f1399ca38",
            seed=0,
            epochs=50,
            minutes=0.9,
            hardware=HARDWARE,
            top1_ci95=(98.44, 99.95),
            train="cct-keras train digits --recipe small --seed 0 --out runs/digits",
            check="cct-keras evaluate cct_2_3x2_32.digits digits",
        ),
    ),
]

# `_c100` and `_fl` name classes; the weights belong to the architecture.
ALIASES = {
    "cct_7_3x1_32_c100": "cct_7_3x1_32",
    "cct_7_3x1_32_sine_c100": "cct_7_3x1_32_sine",
    "cct_14_7x2_384_fl": "cct_14_7x2_384",
}


def list_weights(variant: str) -> list[str]:
    """Tags of the weights of a variant, published and shipped.

    Example:

    >>> list_weights("cct_14_7x2_384")
    ['imagenet', 'flowers102']
    """
    variant = ALIASES.get(variant, variant)
    return [row.tag for row in WEIGHTS if row.variant == variant]


def preprocess_input(images, weights: str):
    """Scales images as the weights of a tag expect them.

    Wrong constants cost nearly all of the accuracy.

    Args:
        images: Array or tensor with values from 0 to 255, the
            channels in the last axis.
        weights: Tag of the weights, such as `"cifar10"` or `"imagenet"`.

    Returns:
        float32 images, normalised per channel.
    """
    data = dataset_of(weights)
    images = keras.ops.cast(images, "float32") / 255.0
    mean = np.array(data.mean, "float32")
    return (images - mean) / np.array(data.std, "float32")


def class_names(weights: str) -> list[str]:
    """Names of the classes, in the order of the data set's labels.

    Args:
        weights: Tag of the weights. For ImageNet the names are WordNet ids.
    """
    return list(known_class_names(_dataset_name(weights)))


def dataset_of(weights: str) -> KnownDataset:
    """The data set of a tag, normalised as its weights expect it."""
    data = DATASETS[_dataset_name(weights)]
    for row in WEIGHTS:
        if row.tag == weights:
            data = data._replace(mean=row.dataset.mean, std=row.dataset.std)
    if data.mean is None:
        raise ValueError(f"there are no weights with the tag {weights!r}")
    return data


def _dataset_name(weights):
    beginning = str(weights).split("_")[0]
    if beginning not in TRAINED_ON:
        raise ValueError(
            f"`weights` must be a tag of {', '.join(TRAINED_ON)}. Received: {weights!r}"
        )
    return TRAINED_ON[beginning]


def create_classifier(variant: str, tag: str) -> keras.Model:
    """A model that takes raw images and knows its classes, as `train` saves it.

    Args:
        variant: Name of the variant.
        tag: Tag of its weights.
    """
    row = find_weights(variant, tag)
    data = row.dataset
    decided, file = variant_defaults(variant, tag)
    side = VARIANTS[variant].image_size
    size = decided.pop("input_shape", (side, side))[:2]
    trained_on = None
    if row.is_shipped:
        told = row.provenance
        cut = {"validation": 0.1, "test": 0.15, "seed": told.seed}
        trained_on = {"name": told.data, "fingerprint": told.fingerprint, "cut": cut}
    images = keras.Input((None, None, len(data.mean)), name="images")
    normalised = Preprocessing(
        size,
        mean=data.mean,
        std=data.std,
        crop=data.crop,
        class_names=class_names(tag),
        trained_on=trained_on,
        name="preprocessing",
    )(images)
    return create_model(
        variant,
        input_tensor=normalised,
        weights=file,
        data_format="channels_last",
        **decided,
    )


# === Files ===


def is_tag(weights) -> bool:
    """Whether `weights` is meant as a tag and not as a file."""
    return (
        isinstance(weights, str)
        and not is_url(weights)
        and not pathlib.Path(weights).suffix
        and os.sep not in weights
    )


def variant_defaults(variant: str, weights) -> tuple[dict, object]:
    """What a file of weights decides about a named variant.

    Args:
        variant: Name of the variant.
        weights: A tag, a path, a URL or a mapping.

    Returns:
        Constructor arguments (classes, kind of positions, for shipped weights the
        shape of the images) and the weights in a form that `load` takes.
    """
    if _is_native(weights):
        return {}, weights
    if is_tag(weights):
        row = find_weights(variant, weights)
        source, told = fetch(row), {}
        stored = _stored_architecture(source)
        if row.is_shipped:
            told["input_shape"] = (*stored["input_shape"], len(row.dataset.mean))
        kind, classes = stored["positional_embedding"], stored["num_classes"]
    else:
        source, told = read_weights(weights)
        table = table_of(source)
        if table.heads[0] not in source:
            return {}, source  # `load` says what else is wrong with it.
        kind, classes = None, source[table.heads[0]].shape[0]
        if table.positions in source:
            kind = kind_of_table(np.asarray(source[table.positions], "float32"))
    return {"positional_embedding": kind, "num_classes": classes, **told}, source


class Origin(NamedTuple):
    """What is known of some weights and of their training.

    Attributes:
        positions: Kind of their positions; `None` if they have none.
        num_classes: Classes of their head; 0 without one.
        class_names: What the head tells apart, if known.
        mean: Of each channel, as the images were normalised, if known.
        std: Of each channel.
    """

    positions: str | None
    num_classes: int
    class_names: tuple | None = None
    mean: tuple | None = None
    std: tuple | None = None


def origin_of(variant: str, weights) -> Origin:
    """Where weights come from.

    Args:
        variant: The architecture, which a tag needs.
        weights: A tag, or the file of weights.
    """
    if _is_native(weights):
        stored = _stored_architecture(weights)
        kind, classes = stored["positional_embedding"], stored["num_classes"]
    else:
        decided, _ = variant_defaults(variant, weights)
        kind, classes = (
            decided.get("positional_embedding"),
            decided.get("num_classes", 0),
        )
    if is_tag(weights):
        data = find_weights(variant, weights).dataset
        known = (tuple(class_names(weights)), data.mean, data.std)
    else:
        known = _stored_preprocessing(weights)
    return Origin(kind, classes, *known)


def _stored_preprocessing(path):
    """Class names, mean and deviation in a `.keras` file of `train`."""
    if not str(path).endswith(".keras"):
        return ()
    with zipfile.ZipFile(path) as archive:
        layers = json.loads(archive.read("config.json"))["config"]["layers"]
    for layer in layers:
        if layer.get("registered_name") == "cct_keras>Preprocessing":
            values = (layer["config"][key] for key in ("class_names", "mean", "std"))
            return tuple(None if value is None else tuple(value) for value in values)
    return ()


def variant_of_file(path) -> str:
    """The named variant whose architecture a file of weights has.

    Args:
        path: A `.keras`, a `.weights.h5` or an official checkpoint.
    """
    if _is_native(path):
        found = _stored_architecture(path)
    else:
        state, told = read_weights(path)
        family, arguments, _ = infer(state, **told)
        found = {"family": family, **arguments}
        found.pop("epsilon", None)
    side = found.pop("input_shape", (32,))[0]
    kind = found.pop("positional_embedding")

    def distance(name):
        row = VARIANTS[name]
        return kind not in (None, row.positional_embedding), abs(row.image_size - side)

    del found["num_classes"]
    fitting = [
        name
        for name, row in VARIANTS.items()
        if found.items()
        <= {"family": row.architecture, **constructor_arguments(row)}.items()
    ]
    if not fitting:
        raise ValueError(
            f"{path} has the architecture of no named variant ({found}): build it by "
            "its constructor with weights=..., and train it with model.fit"
        )
    return min(fitting, key=distance)


def load(model: keras.Model, weights) -> None:
    """Loads what a constructor takes as `weights`; see `CCT`."""
    if is_tag(weights):
        weights = fetch(_matching_weights(model, weights))
    if _is_native(weights):
        load_keras_file(model, weights)
        return
    if not isinstance(weights, (str, os.PathLike, Mapping)):
        raise ValueError(
            "`weights` must be a tag, a file or a mapping of arrays. "
            f"Received: weights={weights!r}"
        )
    load_checkpoint(model, weights)


def find_weights(variant: str, tag: str) -> Weights:
    """The row of a tag of a variant."""
    name = ALIASES.get(variant, variant)
    for row in WEIGHTS:
        if (row.variant, row.tag) == (name, tag):
            return row
    tags = ", ".join(list_weights(variant)) or "none"
    others = sorted({row.variant for row in WEIGHTS if row.tag == tag})
    raise ValueError(
        f"{variant} has no weights {tag!r}; it has: {tags}. "
        + (f"Variants with {tag!r}: {', '.join(others)}. " if others else "")
        + "A file is given by its path, with its suffix."
    )


def fetch(row: Weights) -> pathlib.Path:
    """The file of a row: a shipped one, or a download that was converted.

    `CCT_KERAS_WEIGHTS_URL` puts another address in the place of the official
    ones, with the same paths below it.
    """
    if row.is_shipped:
        return _find_shipped(row)
    mirror = os.environ.get("CCT_KERAS_WEIGHTS_URL")
    urls = (row.url, *row.mirrors)
    if mirror:
        path = row.url.removeprefix(CURRENT).removeprefix(LEGACY).removeprefix(DEIT)
        urls = (f"{mirror.rstrip('/')}/{path}",)
    source = download(*urls, sha256=row.sha256)
    converted = source.with_name(f"{recorded_hash(source)[:16]}.weights.h5")
    if not converted.is_file():
        with forget_on_error(source):
            # The cache is for every later model, whatever today's dtype policy.
            model = convert(source, dtype="float32")
        with atomic_file(converted) as temporary:
            model.save_weights(temporary)
    return converted


def _find_shipped(row):
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


def _is_native(weights):
    return isinstance(weights, (str, os.PathLike)) and str(weights).endswith(
        NATIVE_SUFFIXES
    )


def _stored_architecture(path):
    """What the shapes of a Keras file tell, as constructor arguments."""
    try:
        content = pathlib.Path(path)
        if content.suffix == ".keras":
            with zipfile.ZipFile(content) as archive:
                content = io.BytesIO(archive.read("model.weights.h5"))
        stored = stored_layers(content)
        kernels = [x for x in stored["tokenizer"].values() if len(x) == 4]
        patches = len(kernels) < len(stored["tokenizer"])
        kernel, stages, dim = kernels[0][0], len(kernels), kernels[-1][-1]
        # Adapters stand before the kernel, but the bias is the only vector.
        vectors = {
            name.rpartition("/vars/")[0]: shape[0]
            for name, shape in stored["block_0"].items()
            if len(shape) == 1
        }
        hidden = vectors["feed_forward/linear1"]
        classes = stored.get("head", {}).get("vars/1", (0,))[0]
        kind, grid = None, (0, 0)
        if "position_embedding" in stored:
            table, grid = stored_positions(content)
            kind, grid = kind_of_table(np.asarray(table, "float32")), grid.tolist()
    except KeyError as error:
        raise ValueError(
            f"{path} holds no weights of this package: there is no {error}"
        ) from error
    except (OSError, IndexError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is not a readable file of weights: {error}"
        ) from error
    family = _family(patches, stored, textbook="attention/qkv" in vectors)
    if patches:
        shape = {"patch_size": kernel}
    else:
        shape = {"kernel_size": kernel, "num_conv_layers": stages}
    stride = total_stride(family, kernel, stages)
    return {
        "family": family,
        **({"distilled": True} if family == "DeiT" else {}),
        "num_layers": sum(name.startswith("block_") for name in stored),
        "mlp_ratio": hidden / dim,
        "embedding_dim": dim,
        **shape,
        "positional_embedding": kind,
        "input_shape": tuple(stride * side for side in grid),
        "num_classes": classes,
    }


def _family(patches, layers, textbook):
    """The family by its parts; `textbook` is pre-norm and a bias in `qkv`."""
    if textbook:
        return "DeiT" if "distillation_token" in layers else "ViT"
    if "class_token" in layers:
        return "ViTLite"
    return "CVT" if patches else "CCT"


def _matching_weights(model, tag):
    """The row of a tag whose architecture is the model's, nearest in size."""
    tokenizer = next(x for x in model.layers if isinstance(x, ConvTokenizer))
    layers = {layer.name: layer for layer in model.layers}
    textbook = any(getattr(x, "pre_norm", False) for x in layers.values())
    architecture = {
        "family": _family(tokenizer.use_bias, layers, textbook),
        "kernel": tokenizer.kernel_size,
        "stages": tokenizer.num_conv_layers,
        "num_layers": sum(isinstance(x, EncoderBlock) for x in layers.values()),
        "embedding_dim": tokenizer.embedding_dim,
    }
    positions = layers.get("position_embedding")
    kind = None if positions is None else positions.kind
    size = tokenizer.input.shape[2]

    def fits(row):
        variant = VARIANTS[row.variant]
        known = {**variant._asdict(), **SIZES[variant.size]._asdict()}
        known["family"] = variant.architecture
        return all(known[key] == value for key, value in architecture.items())

    def distance(row):
        variant = VARIANTS[row.variant]
        wrong_kind = variant.positional_embedding != kind
        return wrong_kind, abs((size or 0) - variant.image_size)

    rows = [row for row in WEIGHTS if row.tag == tag and fits(row)]
    if not rows:
        known = "; ".join(f"{row.variant}: {row.tag}" for row in WEIGHTS)
        raise ValueError(
            f"no weights {tag!r} for the architecture of {model.name!r}. Known: {known}"
        )
    return min(rows, key=distance)
