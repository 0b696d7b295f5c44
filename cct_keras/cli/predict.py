"""`cct-keras predict`: what a trained model sees in images."""

import json
import pathlib
import sys

import cct_keras
from cct_keras.cli.options import MODEL_HELP
from cct_keras.cli.options import add_json
from cct_keras.cli.options import check_model
from cct_keras.cli.quiet import import_keras_quietly

FIGURE_SUFFIXES = (".png", ".svg", ".pdf")


def add_parser(subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser(
        "predict",
        help="say what a trained model sees in images",
        description="Say what a trained model sees in images: the likeliest classes "
        "of each, with their probabilities.",
    )
    parser.add_argument("model", help=MODEL_HELP)
    parser.add_argument("images", nargs="+", help="image files, or folders of them")
    parser.add_argument(
        "--top",
        type=int,
        default=5,
        metavar="N",
        help="classes to print per image (default: 5)",
    )
    parser.add_argument(
        "--figure",
        type=pathlib.Path,
        metavar="FILE",
        help="also draw the first 24 images with their classes, as .png, .svg or .pdf "
        "(default: draw nothing)",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments) -> None:
    """Prints the classes of the images that can be read, then the first error."""
    check_model(arguments.model)
    figure = arguments.figure
    if figure is not None and figure.suffix not in FIGURE_SUFFIXES:
        raise ValueError(
            f"--figure must end in {', '.join(FIGURE_SUFFIXES)}. Received: {figure}"
        )
    import_keras_quietly()
    rows = cct_keras.predict(arguments.model, arguments.images, top=arguments.top)
    readable = [row for row in rows if "classes" in row]
    if arguments.json:
        print(json.dumps(rows, indent=2))
    else:
        _print_classes(readable)
    if figure is not None and readable:
        from cct_keras.report.preview import write_predictions

        print(f"figure: {write_predictions(figure, rows)}", file=sys.stderr)
    errors = [row["error"] for row in rows if "error" in row]
    if errors:
        others = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise ValueError(f"{errors[0]}{others}")


def _print_classes(rows):
    for row in rows:
        print(row["image"])
        for prediction in row["classes"]:
            print(f"  {prediction['probability']:>7.2%}  {prediction['name']}")
