"""Known weights, published or shipped, as rows of plain data; free of Keras."""

import fnmatch
from typing import NamedTuple

from cct_keras.data.known import DATASETS
from cct_keras.data.known import KnownDataset
from cct_keras.data.known import known_class_names
from cct_keras.models.variants import VARIANTS
from cct_keras.spelling import did_you_mean

CURRENT = "https://shi-labs.com/projects/cct/checkpoints/"
DEIT = "https://dl.fbaipublicfiles.com/deit/"
GOOGLE = "https://storage.googleapis.com/vit_models/"
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
        normalization: Mean and deviation of each channel, if not those that are
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
    normalization: tuple[tuple, tuple] | None = None
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
        if self.normalization is not None:
            mean, std = self.normalization
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
] + [
    # Pretrained on ImageNet-21k. Accuracies are those of the release notes at 224 pixels,
    # and of the authors' own fine-tuning with the released code at 384.
    Weights(variant, "imagenet", f"{GOOGLE}imagenet21k+imagenet2012/{name}.npz", top1, crop=1.0, normalization=((0.5,) * 3, (0.5,) * 3))
    for variant, name, top1 in (
        ("vit_base_patch16_224", "ViT-B_16-224", 81.2),
        ("vit_large_patch16_224", "ViT-L_16-224", 82.7),
        ("vit_base_patch16_384", "ViT-B_16", 84.62),
        ("vit_base_patch32_384", "ViT-B_32", 81.79),
        ("vit_large_patch16_384", "ViT-L_16", 85.07),
        ("vit_large_patch32_384", "ViT-L_32", 81.78),
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
        normalization=((0.4912, 0.482, 0.4464), (0.2453, 0.2429, 0.2606)),
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
        normalization=((0.1307,), (0.3082,)),
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
        normalization=((0.306,), (0.3763,)),
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


def list_models(pattern: str = "*", *, pretrained: bool = False) -> list[str]:
    """Names of the variants that match a shell-style pattern.

    Args:
        pattern: Such as `"cct_14_*"`.
        pretrained: Whether to list only variants with known weights, whose
            tags `list_weights` tells.

    Example:

    >>> list_models("cct_14_*")
    ['cct_14_7x2_224', 'cct_14_7x2_384', 'cct_14_7x2_384_fl']
    """
    names = [name for name in VARIANTS if fnmatch.fnmatchcase(name, pattern)]
    if pretrained:
        names = [name for name in names if list_weights(name)]
    return names


def list_weights(variant: str) -> list[str]:
    """Tags of the weights of a variant, published and shipped.

    Example:

    >>> list_weights("cct_14_7x2_384")
    ['imagenet', 'flowers102']
    """
    variant = ALIASES.get(variant, variant)
    return [row.tag for row in WEIGHTS if row.variant == variant]


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


def class_names(weights: str) -> list[str]:
    """Names of the classes, in the order of the data set's labels.

    Args:
        weights: Tag of the weights. For ImageNet the names are WordNet ids.
    """
    return list(known_class_names(_dataset_name(check_tag(weights))))


def dataset_of(weights: str) -> KnownDataset:
    """The data set of a tag, normalized as its weights expect it."""
    row = next(row for row in WEIGHTS if row.tag == check_tag(weights))
    data = DATASETS[_dataset_name(weights)]
    return data._replace(mean=row.dataset.mean, std=row.dataset.std)


def check_tag(weights: str) -> str:
    """A tag that some weights have, or an error that suggests others."""
    tags = list(dict.fromkeys(row.tag for row in WEIGHTS))
    if weights not in tags:
        raise ValueError(
            f"there are no weights with the tag {weights!r}. "
            + did_you_mean(str(weights), tags)
        )
    return weights


def _dataset_name(tag):
    return TRAINED_ON[tag.split("_")[0]]
