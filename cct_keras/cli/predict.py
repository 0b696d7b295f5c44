"""`cct-keras predict`: what a trained model sees in images."""

import pathlib
import sys

import cct_keras
from cct_keras.cli.options import MODEL_HELP
from cct_keras.cli.options import add_json
from cct_keras.cli.options import add_tta
from cct_keras.cli.options import check_folder
from cct_keras.cli.options import check_model
from cct_keras.cli.quiet import import_keras_quietly
from cct_keras.cli.quiet import open_quietly
from cct_keras.errors import ModelError
from cct_keras.model_files import exported_format
from cct_keras.quiet import silent_stderr

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
    parser.add_argument(
        "--explain",
        type=pathlib.Path,
        metavar="FOLDER",
        help="also write where the model looks in each image: pictures and a page "
        "(`cct-keras explain` has more choices; default: none)",
    )
    add_tta(parser, "average the answers over every image and its mirror image")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments) -> None:
    """Prints the classes of the images that can be read, then the first error."""
    figure = arguments.figure
    if figure is not None and figure.suffix not in FIGURE_SUFFIXES:
        raise ValueError(
            f"--figure must end in {', '.join(FIGURE_SUFFIXES)}. Received: {figure}"
        )
    if arguments.explain is not None and exported_format(arguments.model) is not None:
        raise ModelError(
            f"{arguments.model} is an exported file, which shows no attention: explain "
            "the model that it was made from"
        )
    check_folder(arguments.explain)
    rows = _classify(arguments)
    from cct_keras.runtime.printing import print_predictions
    from cct_keras.runtime.printing import refuse_unreadable

    print_predictions(rows, as_json=arguments.json)
    if figure is not None and any("classes" in row for row in rows):
        from cct_keras.report.preview import write_predictions

        print(f"figure: {write_predictions(figure, rows)}", file=sys.stderr)
    if arguments.explain is not None:
        _explain(arguments, rows)
    refuse_unreadable(rows)


def _explain(arguments, rows):
    readable = [row["image"] for row in rows if "classes" in row]
    if readable:
        explanation = cct_keras.explain(arguments.model, readable, verbose=False)
        page = explanation.save(arguments.explain)
        print(f"maps by {explanation.method}: {page}", file=sys.stderr)


def _classify(arguments):
    options = {"top": arguments.top, "tta": arguments.tta}
    if exported_format(arguments.model) is None:
        check_model(arguments.model)
        import_keras_quietly()
        return cct_keras.predict(arguments.model, arguments.images, **options)
    engine = open_quietly(arguments.model)
    # Runtimes also talk while they compute.
    with silent_stderr(keep_on_error=False):
        return cct_keras.predict(engine, arguments.images, **options)
