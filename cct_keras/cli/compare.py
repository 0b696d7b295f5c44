"""`cct-keras compare`: finished runs side by side."""

import json
import pathlib

import cct_keras
from cct_keras.cli.options import add_json
from cct_keras.cli.options import check_folder


def add_parser(subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser(
        "compare",
        help="compare finished runs, and draw their curves side by side",
        description="Compare finished runs. Those that differ in the seed alone are a "
        "group: what is compared is their mean, with its deviation and interval. "
        "Prints a table and which settings differ, and writes a page with the curves "
        "side by side.",
    )
    parser.add_argument(
        "runs",
        nargs="+",
        help="folders of runs or of studies; the others are compared with the first",
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("compared"),
        metavar="FOLDER",
        help="where to write the table and the page (default: compared)",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments) -> None:
    """Compares, prints the table, and writes the page."""
    check_folder(arguments.out)
    found = cct_keras.compare(arguments.runs)
    page = found.save(arguments.out)
    if arguments.json:
        print(json.dumps(found.to_dict(), indent=2))
        return
    print(arguments.speak(str(found)))
    print(f"page: {page}")
