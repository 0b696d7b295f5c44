"""The command line of `predict.py`, the single file beside an exported model."""

import argparse
import os
import sys

from cct_keras.errors import DataError
from cct_keras.errors import one_line
from cct_keras.model_files import exported_format
from cct_keras.model_files import find_exported
from cct_keras.quiet import silent_stderr
from cct_keras.runtime.classifier import Classifier
from cct_keras.runtime.printing import print_predictions
from cct_keras.runtime.printing import refuse_unreadable


def main(argv: list[str] | None = None, *, folder: str = ".") -> int:
    """Classifies the images that the command line names.

    Args:
        argv: The words of the command line; by default those of this process.
        folder: Where to look for a model if the command line names none.

    Returns:
        The exit code: 0, or 2 after an error of one line on stderr.
    """
    parser = argparse.ArgumentParser(
        description="Say what an exported model sees in images: the likeliest classes "
        "of each, with their probabilities."
    )
    parser.add_argument(
        "model",
        nargs="?",
        help="an .onnx, .tflite or .xml (OpenVINO) file, or the folder of a SavedModel "
        "(default: the only one beside this file)",
    )
    parser.add_argument("images", nargs="+", help="image files, or folders of them")
    parser.add_argument(
        "--top",
        type=int,
        default=5,
        metavar="N",
        help="classes to print per image (default: 5)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON (default: a table)"
    )
    arguments = parser.parse_args(argv)
    try:
        model, images = arguments.model, arguments.images
        if model is None or exported_format(model) is None:
            images = images if model is None else [model, *images]
            model = _only_model(folder)
        with silent_stderr(keep_on_error=False):
            rows = Classifier(model).predict(images, arguments.top)
        print_predictions(rows, as_json=arguments.json)
        refuse_unreadable(rows)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output, such as `head`, has read enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        message = str(error).replace("`top`", "--top").replace("top=", "--top ")
        print(
            f"{parser.prog}: error: {one_line(message or type(error).__name__)}",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _only_model(folder):
    found = find_exported(folder)
    if len(found) == 1:
        return found[0]
    names = ", ".join(path.name for path in found) or "none"
    raise DataError(f"name the model first; beside this file there is: {names}")
