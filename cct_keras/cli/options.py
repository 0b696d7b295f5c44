"""Options that several commands share, and what they mean."""

import argparse
import difflib
import pathlib

from cct_keras.models.variants import VARIANTS
from cct_keras.models.variants import find_variant
from cct_keras.pretrained.catalog import find_weights

DATA_HELP = (
    "`digits`, the name of a data set of tensorflow-datasets, a folder with one folder "
    "of images per class, a folder of idx files, or an .npz file"
)
MODEL_HELP = (
    "a .keras file or a run folder that `train` wrote, an .onnx, .tflite or .xml file "
    "or SavedModel that `export` wrote, hf://user/repo on the Hugging Face Hub, or "
    "VARIANT.TAG of known weights, such as cct_2_3x2_32.cifar10_jpeg"
)


def add_variant(parser: argparse.ArgumentParser, default: str) -> None:
    """Adds `--variant`."""
    parser.add_argument(
        "--variant",
        metavar="NAME",
        help=f"a name that `cct-keras list` prints (default: {default})",
    )


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    """Adds `--data-dir`."""
    parser.add_argument(
        "--data-dir",
        metavar="FOLDER",
        help="where tensorflow-datasets keeps its prepared data (default: its own "
        "choice)",
    )


def add_seed(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds `--seed`."""
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help=f"seed of {what} (default: 0)"
    )


def add_split_seed(parser: argparse.ArgumentParser) -> None:
    """Adds `--split-seed`."""
    parser.add_argument(
        "--split-seed",
        type=int,
        default=0,
        metavar="N",
        help="seed by which splits are cut off that the data lack; the same one tests "
        "on the same images (default: 0)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds `--json`."""
    parser.add_argument(
        "--json", action="store_true", help="print JSON (default: a table)"
    )


def add_tta(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds `--tta`."""
    parser.add_argument(
        "--tta", choices=("flip",), help=f"{what} (default: each image as it is)"
    )


def add_image_size(parser: argparse.ArgumentParser, default: str) -> None:
    """Adds `--image-size`: an integer, or a height and a width."""
    parser.add_argument(
        "--image-size",
        type=int,
        nargs="+",
        action=_ImageSize,
        metavar="N",
        help="side of the model's images in pixels, or their height and width "
        f"(default: {default})",
    )


class _ImageSize(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None):
        if len(values) > 2:
            raise argparse.ArgumentError(
                self,
                "give a side or a height and a width. "
                f"Received: {' '.join(map(str, values))}",
            )
        size = values[0] if len(values) == 1 else tuple(values)
        setattr(namespace, self.dest, size)


def check_variant(name: str | None) -> None:
    """Refuses a misspelled variant before anything slow is imported."""
    if name is not None:
        find_variant(name)


def check_model(name: str) -> None:
    """Refuses a misspelled VARIANT.TAG before anything slow is imported.

    Files and folders are left to the function that loads them.
    """
    variant, _, tag = name.partition(".")
    if tag in ("", "keras", "h5", "weights.h5") or pathlib.Path(name).exists():
        return
    if difflib.get_close_matches(variant, VARIANTS):
        find_variant(variant)
        find_weights(variant, tag)


def check_folder(folder: pathlib.Path | None) -> None:
    """Refuses a file where a folder is to be written, before anything is computed."""
    if folder is not None and folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, and a folder is to be written")
