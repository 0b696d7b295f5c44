"""`cct-keras probe`: a logistic regression on the features of trained weights."""

import pathlib

import cct_keras
from cct_keras.atomic_file import atomic_file
from cct_keras.cli.options import DATA_HELP
from cct_keras.cli.options import add_data_dir
from cct_keras.cli.options import add_image_size
from cct_keras.cli.options import add_seed
from cct_keras.cli.options import add_variant
from cct_keras.cli.options import check_variant
from cct_keras.cli.printing import accuracy_text
from cct_keras.cli.printing import print_notes
from cct_keras.cli.quiet import import_keras_quietly


def add_parser(subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser(
        "probe",
        help="fit a logistic regression on the features of trained weights",
        description="Fit a logistic regression on the features of trained weights, "
        "which takes seconds, and print its accuracy on the test images.",
    )
    parser.add_argument("data", help=DATA_HELP)
    parser.add_argument(
        "--weights",
        required=True,
        help="a tag (see `cct-keras list --pretrained`), a .keras, .weights.h5 or "
        "PyTorch file, or a run folder (required)",
    )
    add_variant(parser, default="that of the weights")
    add_image_size(parser, default="that of `train` for these data")
    add_data_dir(parser)
    add_seed(parser, "the splits")
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        metavar="FILE",
        help="write the model to this .keras file (default: write nothing)",
    )
    parser.set_defaults(run=run)


def run(arguments) -> None:
    """Fits, prints the accuracy, and writes the model."""
    check_variant(arguments.variant)
    _check_out(arguments.out)
    import_keras_quietly(with_tensorflow=True)
    probe = cct_keras.linear_probe(
        arguments.data,
        arguments.variant,
        weights=arguments.weights,
        image_size=arguments.image_size,
        data_dir=arguments.data_dir,
        seed=arguments.seed,
    )
    print(probe.data.describe())
    print_notes(probe.data.notes, arguments.speak)
    print(
        f"test accuracy {accuracy_text(probe.metrics['test'])}, "
        f"{probe.metrics['seconds']:.1f} s"
    )
    if arguments.out is not None:
        with atomic_file(arguments.out) as temporary:
            probe.model.save(temporary)
        print(f"model: {arguments.out}")


def _check_out(out):
    if out is None:
        return
    if out.suffix != ".keras":
        raise ValueError(f"--out must end in .keras. Received: {out}")
    if not out.parent.is_dir():
        raise ValueError(f"the folder {out.parent} does not exist")
