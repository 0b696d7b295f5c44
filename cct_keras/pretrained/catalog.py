"""Known weights, published or shipped, as rows of plain data; free of Keras."""

import fnmatch
from typing import NamedTuple

from cct_keras.data.known import DATASETS
from cct_keras.data.known import KnownDataset
from cct_keras.data.known import known_class_names
from cct_keras.models.variants import VARIANTS
from cct_keras.spelling import did_you_mean
from cct_keras.spelling import suggest

CURRENT = "https://shi-labs.com/projects/cct/checkpoints/"
FACEBOOK = "https://dl.fbaipublicfiles.com/"
DEIT = FACEBOOK + "deit/"
GOOGLE = "https://storage.googleapis.com/vit_models/"
AUGREG = GOOGLE + "augreg/"
HUGGING_FACE = "https://huggingface.co/"
LEGACY = "https://github.com/SHI-Labs/Compact-Transformers/files/"
HOSTS = (CURRENT, LEGACY, DEIT, GOOGLE, FACEBOOK, HUGGING_FACE)

# The ends of names of files, which are no tags.
FILE_SUFFIXES = (
    "keras",
    "h5",
    "pth",
    "pt",
    "ckpt",
    "bin",
    "tar",
    "zip",
    "npz",
    "safetensors",
)
# What a tag begins with: the name of its data set.
TRAINED_ON = {
    "cifar10": "cifar10",
    "cifar100": "cifar100",
    "flowers102": "oxford_flowers102",
    "imagenet": "imagenet2012",
    "mnist": "mnist",
    "digits": "digits",
}
HALF = ((0.5,) * 3, (0.5,) * 3)
IMAGENET = (DATASETS["imagenet2012"].mean, DATASETS["imagenet2012"].std)
CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
# The same for data that cannot be had by a name.
ELSEWHERE = {
    "imagenet21k": KnownDataset(21843, *HALF),
    "dino": KnownDataset(0, *IMAGENET, crop=0.875),
    "mae": KnownDataset(0, *IMAGENET, crop=0.875),
    "lvd142m": KnownDataset(0, *IMAGENET, crop=0.875),
    "openai": KnownDataset(0, *CLIP),
    "webli": KnownDataset(0, *HALF),
}


class About(NamedTuple):
    """What several files of weights have in common.

    Attributes:
        name: What their authors call them.
        good_for: What a person would take them for.
        license: Of the published files, as their authors state it.
        measure: What the accuracy of a row without a classifier measures.
    """

    name: str
    good_for: str
    license: str
    measure: str = "top-1"


APACHE = "Apache-2.0"
ON_TEST = "top-1, the best epoch on the test images"
COMPACT = {
    "cifar10": About(
        "Compact Transformers on CIFAR-10", "small color images", APACHE, ON_TEST
    ),
    "cifar100": About(
        "Compact Transformers on CIFAR-100",
        "small color images; fine-tuning",
        APACHE,
        ON_TEST,
    ),
    "flowers102": About(
        "Compact Transformers on Flowers-102",
        "flowers; fine-tuning",
        APACHE,
        "top-1 after 6,552 training images, not the standard 1,020",
    ),
    "imagenet": About(
        "Compact Transformers on ImageNet", "ImageNet classes; fine-tuning", APACHE
    ),
}
DEIT_ABOUT = About("DeiT", "ImageNet classes; fine-tuning", APACHE)
DEIT3_ABOUT = About("DeiT III", "ImageNet classes; fine-tuning", APACHE)
GOOGLE_ABOUT = About("ViT of its paper", "ImageNet classes; fine-tuning", APACHE)
AUGREG_ABOUT = About(
    "AugReg, How to train your ViT", "ImageNet classes; fine-tuning", APACHE
)
DINO_ABOUT = About(
    "DINO", "k-NN and probes without fine-tuning", APACHE, "linear probe on ImageNet"
)
DINOV2_ABOUT = About(
    "DINOv2",
    "the best features for few images: k-NN and probes without fine-tuning",
    APACHE,
    "linear probe on ImageNet",
)
MAE_ABOUT = About(
    "MAE",
    "a start for fine-tuning; its features alone are weak",
    "CC BY-NC 4.0, not for commercial use",
    "fine-tuned on ImageNet",
)
CLIP_ABOUT = About(
    "CLIP of OpenAI, its image tower",
    "embeddings to search and compare images with, probes",
    "MIT",
    "linear probe on ImageNet",
)
SIGLIP_ABOUT = About(
    "SigLIP, its image tower",
    "embeddings to search and compare images with, probes",
    APACHE,
    "ImageNet without training, with its text tower",
)
SHIPPED = About("trained here, in this package", "a first try, offline", APACHE)


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
        split_seed: Seed of the splits, where the data set lacks them.
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
    split_seed: int = 0


class Weights(NamedTuple):
    """One file of weights.

    Attributes:
        variant: The architecture it belongs to.
        tag: Its name there; what stands before the first `_` is the data set.
        url: Where the authors keep it; `None` for one that comes with the package.
        top1: Accuracy in percent, as published or as measured for a shipped file, of
            what `about` says; `None` where none was published.
        about: What it is good for, and its license.
        mirrors: Other addresses of the same bytes.
        sha256: Its hash, of a published file perhaps only the first digits; if it is
            not known, that of the first download counts.
        crop: Share of an image that evaluation keeps, if not that of the data set.
        normalization: Mean and deviation of each channel, if not those that are
            known of the data set.
        position_interpolation: How its authors resize its positions, if its file does
            not tell.
        provenance: How it was made, if here.
    """

    variant: str
    tag: str
    url: str | None
    top1: float | None
    about: About
    mirrors: tuple = ()
    sha256: str | None = None
    crop: float | None = None
    normalization: tuple[tuple, tuple] | None = None
    position_interpolation: str | None = None
    provenance: Provenance | None = None

    @property
    def name(self) -> str:
        """`VARIANT.TAG`, by which it can be asked for without naming the variant."""
        return f"{self.variant}.{self.tag}"

    @property
    def num_classes(self) -> int:
        """Classes of its head; 0 for a body."""
        no_head = VARIANTS[self.variant].num_classes == 0
        return 0 if no_head else self.dataset.num_classes

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
        data = _data_of(self.tag)
        if self.normalization is not None:
            mean, std = self.normalization
            data = data._replace(mean=mean, std=std)
        return data if self.crop is None else data._replace(crop=self.crop)


# fmt: off
WEIGHTS = [
    Weights(variant, tag, CURRENT + file, top1, COMPACT[tag.split("_")[0]])
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
    Weights(variant, f"{data}_{suffix}", f"{LEGACY}{number}/{name.format(data)}.pth.zip", top1, COMPACT[data])
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
    Weights(variant, "imagenet", f"{DEIT}{variant}-{digits}.pth", top1, DEIT_ABOUT, sha256=digits, crop=0.875, position_interpolation="bicubic")
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
    Weights(variant, "imagenet", f"{GOOGLE}imagenet21k+imagenet2012/{name}.npz", top1, GOOGLE_ABOUT, crop=1.0, normalization=HALF)
    for variant, name, top1 in (
        ("vit_base_patch16_224", "ViT-B_16-224", 81.2),
        ("vit_large_patch16_224", "ViT-L_16-224", 82.7),
        ("vit_base_patch16_384", "ViT-B_16", 84.62),
        ("vit_base_patch32_384", "ViT-B_32", 81.79),
        ("vit_large_patch16_384", "ViT-L_16", 85.07),
        ("vit_large_patch32_384", "ViT-L_32", 81.78),
    )
] + [
    Weights(variant, "imagenet21k", f"{GOOGLE}imagenet21k/{name}.npz", None, GOOGLE_ABOUT)
    for variant, name in (
        ("vit_base_patch16_224", "ViT-B_16"),
        ("vit_base_patch32_224", "ViT-B_32"),
        ("vit_large_patch16_224", "ViT-L_16"),
        ("vit_large_patch32_224", "ViT-L_32"),
        ("vit_huge_patch14_224", "ViT-H_14"),
    )
] + [
    # Pretrained on ImageNet-21k for 300 epochs; accuracies as timm measures them.
    Weights(variant, "imagenet_augreg", f"{AUGREG}{start}--imagenet2012-steps_20k-lr_{rate}-res_{size}.npz", top1, AUGREG_ABOUT, crop=crop, normalization=HALF)
    for start, rate, *files in (
        ("Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0", 0.03, ("vit_tiny_patch16_224", 75.45), ("vit_tiny_patch16_384", 78.44)),
        ("S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0", 0.03, ("vit_small_patch32_224", 76.01), ("vit_small_patch32_384", 80.48)),
        ("S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0", 0.03, ("vit_small_patch16_224", 81.40), ("vit_small_patch16_384", 83.81)),
        ("B_32-i21k-300ep-lr_0.001-aug_medium1-wd_0.03-do_0.0-sd_0.0", 0.03, ("vit_base_patch32_224", 80.73)),
        ("B_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0", 0.03, ("vit_base_patch32_384", 83.36)),
        ("B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0", 0.01, ("vit_base_patch16_224", 84.53), ("vit_base_patch16_384", 86.01)),
        ("B_8-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0", 0.01, ("vit_base_patch8_224", 85.84)),
        ("L_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.1-sd_0.1", 0.01, ("vit_large_patch16_224", 85.86), ("vit_large_patch16_384", 87.10)),
    )
    for variant, top1 in files
    for size, crop in [(variant[-3:], 1.0 if variant.endswith("384") else 0.9)]
] + [
    Weights(variant, "imagenet21k_augreg", f"{AUGREG}{file}.npz", None, AUGREG_ABOUT)
    for variant, file in (
        ("vit_tiny_patch16_224", "Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0"),
        ("vit_small_patch32_224", "S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0"),
        ("vit_small_patch16_224", "S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0"),
        ("vit_base_patch32_224", "B_32-i21k-300ep-lr_0.001-aug_medium1-wd_0.03-do_0.0-sd_0.0"),
        ("vit_base_patch16_224", "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0"),
        ("vit_base_patch8_224", "B_8-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0"),
        ("vit_large_patch16_224", "L_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.1-sd_0.1"),
    )
] + [
    Weights(variant, tag, f"{DEIT}deit_3_{file}.pth", top1, DEIT3_ABOUT, crop=crop, position_interpolation="bicubic")
    for variant, tag, file, top1, crop in (
        ("deit3_small_patch16_224", "imagenet", "small_224_1k", 81.4, 0.9),
        ("deit3_base_patch16_224", "imagenet", "base_224_1k", 83.8, 0.9),
        ("deit3_small_patch16_384", "imagenet", "small_384_1k", 83.4, 1.0),
        ("deit3_base_patch16_384", "imagenet", "base_384_1k", 85.0, 1.0),
        # Pretrained on ImageNet-21k.
        ("deit3_small_patch16_224", "imagenet_from_21k", "small_224_21k", 83.1, 1.0),
        ("deit3_base_patch16_224", "imagenet_from_21k", "base_224_21k", 85.7, 1.0),
        ("deit3_small_patch16_384", "imagenet_from_21k", "small_384_21k", 84.8, 1.0),
        ("deit3_base_patch16_384", "imagenet_from_21k", "base_384_21k", 86.7, 1.0),
    )
] + [
    Weights("dinov2_small", "lvd142m", FACEBOOK + "dinov2/dinov2_vits14/dinov2_vits14_pretrain.pth", 81.1, DINOV2_ABOUT, position_interpolation="bicubic_offset"),
    Weights("dinov2_base", "lvd142m", FACEBOOK + "dinov2/dinov2_vitb14/dinov2_vitb14_pretrain.pth", 84.5, DINOV2_ABOUT, position_interpolation="bicubic_offset"),
    Weights("dinov2_small_reg4", "lvd142m", FACEBOOK + "dinov2/dinov2_vits14/dinov2_vits14_reg4_pretrain.pth", 80.9, DINOV2_ABOUT, position_interpolation="bicubic_antialias"),
    Weights("dinov2_base_reg4", "lvd142m", FACEBOOK + "dinov2/dinov2_vitb14/dinov2_vitb14_reg4_pretrain.pth", 84.6, DINOV2_ABOUT, position_interpolation="bicubic_antialias"),
    Weights("vit_small_patch16_224", "dino", FACEBOOK + "dino/dino_deitsmall16_pretrain/dino_deitsmall16_pretrain.pth", 77.0, DINO_ABOUT, position_interpolation="bicubic_offset"),
    Weights("vit_base_patch16_224", "dino", FACEBOOK + "dino/dino_vitbase16_pretrain/dino_vitbase16_pretrain.pth", 78.2, DINO_ABOUT, position_interpolation="bicubic_offset"),
    Weights("vit_base_patch8_224", "dino", FACEBOOK + "dino/dino_vitbase8_pretrain/dino_vitbase8_pretrain.pth", 80.1, DINO_ABOUT, position_interpolation="bicubic_offset"),
    Weights("vit_base_patch16_224", "mae", FACEBOOK + "mae/pretrain/mae_pretrain_vit_base.pth", 83.6, MAE_ABOUT, position_interpolation="bicubic"),
    # The towers alone, as timm keeps them: those of OpenAI are TorchScript.
    Weights("clip_base_patch16_224", "openai", HUGGING_FACE + "timm/vit_base_patch16_clip_224.openai/resolve/main/model.safetensors", 80.2, CLIP_ABOUT, position_interpolation="bicubic"),
    Weights("clip_base_patch32_224", "openai", HUGGING_FACE + "timm/vit_base_patch32_clip_224.openai/resolve/main/model.safetensors", 76.1, CLIP_ABOUT, position_interpolation="bicubic"),
    Weights("siglip_base_patch16_224", "webli", HUGGING_FACE + "timm/vit_base_patch16_siglip_224.webli/resolve/main/model.safetensors", 76.7, SIGLIP_ABOUT, position_interpolation="bicubic"),
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
        about=SHIPPED,
        sha256="798525f08e006ba36c02f6ae515d3be7995d02e40d608148ebeca4b763d537b0",
        normalization=((0.4912, 0.482, 0.4464), (0.2453, 0.2429, 0.2606)),
        provenance=Provenance(
            data="CIFAR-10 (JPEG)",
            split="45,000 / 5,000 / 10,000 images to train, validate, test",
            recipe="small_adamw, epochs=70, precision=mixed_bfloat16",
            fingerprint="5f2482a42e4842f46495a54a8142ae541efd9fae7431775897291160bf9d661e",
            seed=0,
            epochs=70,
            minutes=66,
            hardware=HARDWARE,
            top1_ci95=(84.32, 85.72),
            train="cct-keras train CIFAR10_FOLDER --recipe small_adamw --epochs 70 --precision mixed_bfloat16 --seed 0 --out runs/cifar10_jpeg",
            check="cct-keras evaluate cct_2_3x2_32.cifar10_jpeg CIFAR10_FOLDER",
        ),
    ),
    Weights(
        "cct_2_3x2_32",
        "mnist",
        url=None,
        top1=99.55,
        about=SHIPPED,
        sha256="14dced5fb65868d67b3e3826dcf8542d3f93251c22b816ae496185e331db5a29",
        normalization=((0.1307,), (0.3082,)),
        provenance=Provenance(
            data="MNIST",
            split="54,000 / 6,000 / 10,000 images to train, validate, test",
            recipe="small_adamw, epochs=20, precision=mixed_bfloat16",
            fingerprint="9eca9b7b1472bd236ee8cdb6efe3f33892acf5656298aafcb50f59a8b0dac226",
            seed=0,
            epochs=20,
            minutes=17,
            hardware=HARDWARE,
            top1_ci95=(99.4, 99.66),
            train="cct-keras train MNIST_FOLDER --recipe small_adamw --epochs 20 --precision mixed_bfloat16 --seed 0 --out runs/mnist",
            check="cct-keras evaluate cct_2_3x2_32.mnist MNIST_FOLDER",
        ),
    ),
    Weights(
        "cct_2_3x2_32",
        "digits",
        url=None,
        top1=99.72,
        about=SHIPPED,
        sha256="4684701dfaf52bd06c14a58d42cd4590837c09874cb7d1582ba88e8713cebdd6",
        normalization=((0.306,), (0.3763,)),
        provenance=Provenance(
            data="scikit-learn's digits",
            split="1,293 / 144 / 360 images to train, validate, test",
            recipe="small_adamw",
            fingerprint="c18faa03b18e8323a36d1f0f0dd38dd998f0980c96f05ddeb11be18f1399ca38",
            seed=0,
            epochs=50,
            minutes=0.9,
            hardware=HARDWARE,
            top1_ci95=(98.44, 99.95),
            train="cct-keras train digits --recipe small_adamw --seed 0 --out runs/digits",
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
    # Perhaps a variant was meant, which names its only weights.
    near = "" if others else suggest(str(tag), {row.variant for row in WEIGHTS})
    raise ValueError(
        f"{variant} has no weights {tag!r}; it has: {tags}. "
        + (f"Variants with {tag!r}: {', '.join(others)}. " if others else "")
        + (f"{near} " if near else "")
        + "A file is given by its path, with its suffix."
    )


def find_named(name: str) -> Weights | None:
    """The row that is asked for as `VARIANT.TAG`, or as a variant that has but one.

    Args:
        name: What was given as weights.

    Returns:
        The row; `None` if the name does not begin with a variant.

    Example:

    >>> find_named("dinov2_small").tag, find_named("cct_2_3x2_32.digits").tag
    ('lvd142m', 'digits')
    """
    variant, dot, tag = str(name).partition(".")
    if variant not in VARIANTS or (dot and tag.split(".")[-1] in FILE_SUFFIXES):
        return None
    tags = list_weights(variant)
    if not dot and len(tags) > 1:
        names = ", ".join(f"{variant}.{tag}" for tag in tags)
        raise ValueError(f"{variant} has several weights; name one of: {names}")
    return find_weights(variant, tag if dot or not tags else tags[0])


def class_names(weights: str) -> list[str]:
    """Names of the classes, in the order of the data set's labels.

    Args:
        weights: Tag of the weights, or `VARIANT.TAG`. For ImageNet the names are
            WordNet ids.
    """
    name = _data_name(_tag_of(weights))
    if name is None:
        raise ValueError(f"no names are known of the classes of {weights!r}")
    return list(known_class_names(name))


def dataset_of(weights: str) -> KnownDataset:
    """The data set of weights, normalized as these expect it.

    Args:
        weights: `VARIANT.TAG`, or a tag alone. A tag alone that several files share
            stands for the first of them.
    """
    row = find_named(weights)
    if row is None:
        row = next(row for row in WEIGHTS if row.tag == check_tag(weights))
    data = _data_of(row.tag)
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


def _tag_of(weights):
    row = find_named(weights)
    return check_tag(weights) if row is None else row.tag


def _data_name(tag):
    return TRAINED_ON.get(tag.split("_")[0])


def _data_of(tag):
    name = _data_name(tag)
    return ELSEWHERE[tag.split("_")[0]] if name is None else DATASETS[name]
