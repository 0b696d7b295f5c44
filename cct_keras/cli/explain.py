"""`cct-keras explain`: where a model looks, and what it learned."""

import pathlib

import cct_keras
from cct_keras.cli.options import DATA_HELP
from cct_keras.cli.options import add_data_dir
from cct_keras.cli.options import check_folder
from cct_keras.cli.options import check_model
from cct_keras.cli.printing import print_notes
from cct_keras.cli.quiet import import_keras_quietly
from cct_keras.errors import ModelError
from cct_keras.model_files import exported_format

EPILOG = """methods:
  gradient_rollout  attention x gradient, block by block (default: it won our own tests)
  gradient          attention x gradient after Chefer et al.
  gradcam           Grad-CAM on the last stage of the tokenizer
  rollout           attention rollout; the same for every class
  attention         of one block and head (--block, --head); the same for every class
  seqpool           the weights of SeqPool or attention pooling; likewise
  occlusion         what the model misses if a place is covered; slow
"""


def add_parser(subparsers) -> None:
    """Adds the command to the parser."""
    import argparse

    parser = subparsers.add_parser(
        "explain",
        usage="%(prog)s [OPTIONS] model [images ...]",
        help="show where a model looks and what it learned",
        description="Show where a model looks in images, as pictures and a page; or, "
        "with --weights-only or --data, what it learned.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "model",
        help="a .keras file or a run folder that `train` wrote, VARIANT.TAG of known "
        "weights, such as cct_2_3x2_32.cifar10_jpeg, or a checkpoint that `convert` "
        "takes",
    )
    # With "*" argparse takes no image at all if an option stands before the images.
    images = parser.add_argument(
        "images", nargs="+", default=[], help="image files, or folders of them"
    )
    images.required = False
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("explained"),
        metavar="FOLDER",
        help="where to write the pictures and the page (default: explained)",
    )
    parser.add_argument(
        "--method",
        metavar="NAME",
        help="how to find out, see below (default: gradient_rollout)",
    )
    parser.add_argument(
        "--target",
        metavar="CLASS",
        help="name or number of the class to explain (default: the one the model "
        "predicts)",
    )
    parser.add_argument(
        "--block", type=int, metavar="N", help="of --method attention (default: last)"
    )
    parser.add_argument(
        "--head",
        type=int,
        metavar="N",
        help="of --method attention (default: the mean of all heads)",
    )
    parser.add_argument(
        "--strength",
        type=float,
        default=0.6,
        metavar="X",
        help="how much the colors cover the pictures, from 0 to 1 (default: 0.6)",
    )
    parser.add_argument(
        "--weights-only",
        action="store_true",
        help="draw what the weights tell: filters and positions",
    )
    parser.add_argument(
        "--data",
        metavar="DATA",
        help="also draw how far each head looks and what SeqPool favors, over images "
        f"of this data set: {DATA_HELP} (default: none)",
    )
    parser.add_argument(
        "--judge",
        action="store_true",
        help="measure on --data how far the maps of each method can be trusted",
    )
    parser.add_argument(
        "--count",
        type=int,
        metavar="N",
        help="images of --data to look at (default: 128, for --judge 100)",
    )
    add_data_dir(parser)
    parser.set_defaults(run=run)


def run(arguments) -> None:
    """Writes what was asked for, and says where."""
    if exported_format(arguments.model) is not None:
        raise ModelError(
            f"{arguments.model} is an exported file, which shows no attention: explain "
            "the model that it was made from"
        )
    if arguments.judge and not arguments.data:
        raise ModelError("--judge needs images whose classes are known: give --data")
    if not (arguments.images or arguments.weights_only or arguments.data):
        raise ModelError("give images to explain, or --weights-only, or --data")
    check_folder(arguments.out)
    check_model(arguments.model)
    import_keras_quietly(with_tensorflow=bool(arguments.data))
    if arguments.images:
        _explain(arguments)
    if arguments.judge:
        _judge(arguments)
    elif arguments.weights_only or arguments.data:
        _inspect(arguments)


def _explain(arguments):
    explanation = cct_keras.explain(
        arguments.model,
        arguments.images,
        arguments.method,
        arguments.target,
        block=arguments.block,
        head=arguments.head,
    )
    write_maps(explanation, arguments.out, arguments.strength, arguments.speak)


def write_maps(explanation, folder: pathlib.Path, strength: float, speak) -> None:
    """Writes an explanation, says where, and refuses files that could not be read.

    Args:
        explanation: An `Explanation`.
        folder: Where to write.
        strength: How much the colors cover the pictures.
        speak: Turns Python words into those of the command line.
    """
    page = explanation.save(folder, strength=strength)
    print_notes(explanation.notes, speak)
    maps = "1 map" if len(explanation) == 1 else f"{len(explanation)} maps"
    print(f"{maps} by {explanation.method}: {page}")
    if explanation.errors:
        reason = next(iter(explanation.errors.values()))
        more = len(explanation.errors) - 1
        raise ModelError(reason + (f" (and {more} more files)" if more else ""))


def _inspect(arguments):
    options = {} if arguments.count is None else {"count": arguments.count}
    inspection = cct_keras.inspect_model(
        arguments.model, arguments.data, data_dir=arguments.data_dir, **options
    )
    print(f"what the model learned: {inspection.save(arguments.out)}")


def _judge(arguments):
    options = {} if arguments.count is None else {"count": arguments.count}
    judgement = cct_keras.judge_explanations(
        arguments.model,
        arguments.data,
        None if arguments.method is None else [arguments.method],
        data_dir=arguments.data_dir,
        **options,
    )
    print(judgement)
    for warning in judgement.warnings:
        print(f"warning: {warning}")
