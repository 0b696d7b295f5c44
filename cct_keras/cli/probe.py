"""`cct-keras probe`: what frozen features of trained weights are worth."""

import argparse
import pathlib

import cct_keras
from cct_keras.atomic_file import atomic_file
from cct_keras.cli.options import DATA_HELP
from cct_keras.cli.options import add_data_dir
from cct_keras.cli.options import add_image_size
from cct_keras.cli.options import add_split_seed
from cct_keras.cli.options import add_variant
from cct_keras.cli.options import check_variant
from cct_keras.cli.printing import accuracy_text
from cct_keras.cli.quiet import import_keras_quietly

EPILOG = """examples:
  cct-keras probe photos/ --weights dinov2_small
  cct-keras probe photos/ --weights deit_small_patch16_224.imagenet
  cct-keras probe photos/ --weights dinov2.safetensors --features token_avg
  cct-keras probe photos/ --weights runs/other --out probe.keras

The images pass through the weights once. Their features are kept in the `features`
folder of the package's cache, so that the next probe of the same images takes seconds.
The oldest make room when they take more than CCT_KERAS_FEATURES_GIB GiB (default: 2; 0
keeps none).

With fewer than 200 images and no test folder, all of them are left out in turn to
measure the accuracy. One to five images a class are enough to begin with.
"""


def add_parser(subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser(
        "probe",
        help="fit a logistic regression on the features of trained weights",
        description="Fit a logistic regression and nearest neighbors on the features "
        "of trained weights, which takes\nseconds, and print their accuracy on the "
        "test images.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", help=DATA_HELP)
    parser.add_argument(
        "--weights",
        required=True,
        help="known weights such as dinov2_small (see `cct-keras list --pretrained`), "
        "a .keras, .weights.h5 or PyTorch file, also of a body without a head, or a "
        "run folder (required)",
    )
    add_variant(parser, default="that of the weights")
    parser.add_argument(
        "--features",
        choices=("token", "avg", "token_avg"),
        help="what is read of an image: the class token, the mean of the other tokens, "
        "or both (default: what the head of the weights reads)",
    )
    add_image_size(parser, default="that of `train` for these data, at most 384")
    add_data_dir(parser)
    add_split_seed(parser)
    parser.add_argument(
        "--no-cache",
        dest="cache",
        action="store_false",
        help="compute the features anew, and do not keep them (default: keep them)",
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        metavar="FILE",
        help="write the model of the logistic regression to this .keras file (default: "
        "write nothing)",
    )
    parser.set_defaults(run=run)


def run(arguments) -> None:
    """Fits, prints the accuracies, and writes the model."""
    check_variant(arguments.variant)
    _check_out(arguments.out)
    import_keras_quietly(with_tensorflow=True)
    probe = cct_keras.linear_probe(
        arguments.data,
        arguments.variant,
        weights=arguments.weights,
        features=arguments.features,
        image_size=arguments.image_size,
        data_dir=arguments.data_dir,
        split_seed=arguments.split_seed,
        cache=arguments.cache,
        verbose=True,
        log=lambda line: print(arguments.speak(line), flush=True),
    )
    for line in result_lines(probe.metrics):
        print(line)
    if arguments.out is not None:
        with atomic_file(arguments.out) as temporary:
            probe.model.save(temporary)
        print(f"model: {arguments.out}")


def result_lines(metrics: dict) -> list[str]:
    """The accuracies as they are printed.

    Args:
        metrics: Those of `linear_probe`.

    Example:

    >>> same = {"top1": 0.5, "top1_ci95": (0.2, 0.8), "count": 10}
    >>> metrics = {"test": same, "knn": {**same, "k": 3}, "estimate": "leave-one-out"}
    >>> for line in result_lines({**metrics, "seconds": 2.0}):
    ...     print(line)
    accuracy by leave-one-out over 10 images, as none are left for a test
    logistic regression 50.00% (95 % interval 20.00% to 80.00%)
    k-NN, k = 3 50.00% (95 % interval 20.00% to 80.00%)
    2.0 s
    """
    seconds = f"{metrics['seconds']:.1f} s"
    if metrics["estimate"] is None:
        return [
            "accuracy unknown: every class has a single image, and none can be left "
            "out to measure it",
            seconds,
        ]
    regression, knn = metrics["test"], metrics["knn"]
    title = f"accuracy on {regression['count']:,} test images"
    if metrics["estimate"] != "test":
        title = (
            f"accuracy by {metrics['estimate']} over {regression['count']:,} images, "
            "as none are left for a test"
        )
    return [
        title,
        f"logistic regression {accuracy_text(regression)}",
        f"k-NN, k = {knn['k']} {accuracy_text(knn)}",
        seconds,
    ]


def _check_out(out):
    if out is None:
        return
    if out.suffix != ".keras":
        raise ValueError(f"--out must end in .keras. Received: {out}")
    if not out.parent.is_dir():
        raise ValueError(f"the folder {out.parent} does not exist")
