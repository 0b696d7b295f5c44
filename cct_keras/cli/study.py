"""`cct-keras study`: the same training with several seeds, folds or settings."""

import argparse
import itertools
import pathlib
import shlex
from collections.abc import Iterable

import cct_keras
from cct_keras.cli.options import DATA_HELP
from cct_keras.cli.options import add_seed
from cct_keras.cli.options import check_variant
from cct_keras.cli.quiet import import_keras_quietly
from cct_keras.cli.train import add_training_options
from cct_keras.cli.train import recipe_fields
from cct_keras.errors import RecipeError
from cct_keras.recipes.recipe import FIELDS
from cct_keras.recipes.recipe import parse_fields
from cct_keras.recipes.rows import default_recipe
from cct_keras.recipes.rows import find_recipe
from cct_keras.spelling import did_you_mean
from cct_keras.studies.plan import check_repeats

# Of the command or of the study as a whole; all others are options of `train`.
OWN = (
    *("data", "seeds", "folds", "tries", "seed", "split_seed", "out", "data_dir"),
    *("restart", "quiet", "command", "command_line", "run", "speak"),
)
EPILOG = """examples:
  cct-keras study photos/ --seeds 3
  cct-keras study photos/ --folds 5 --recipe small --epochs 30
  cct-keras study photos/ --try lr=1e-3,2e-3 --try augment=none,auto

Every run has a folder of its own, such as lr=0.001,augment=none/seed=0, and the same
command goes on where it was. All seeds are tested on the same images. Over the folds
each image is tested exactly once; a test split that the data have of their own is left
out.
"""


def add_parser(subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser(
        "study",
        help="train with several seeds, folds or settings, and compare",
        usage="cct-keras study [OPTIONS] data",
        description="Train several times, and tell what the runs have in common and "
        "what differs: mean, deviation,\nintervals and paired differences, as a table "
        "and as a page with the curves side by side.\nTakes the options of `train`, "
        "and these:",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", help=DATA_HELP)
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="train with this many seeds (default: 3)"
    )
    parser.add_argument(
        "--folds",
        type=int,
        metavar="N",
        help="in the place of seeds, test on each of this many parts of the images, "
        "and train on the others (default: none)",
    )
    parser.add_argument(
        "--try",
        dest="tries",
        action="append",
        default=[],
        metavar="FIELD=A,B",
        help="values of an option of `train`, each of which is tried; several of these "
        "make a grid; `;` separates values that have a comma (default: none)",
    )
    add_seed(parser, "the first run; the others count on. That of all folds")
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        metavar="FOLDER",
        help="folder of the study (default: runs/DATA-VARIANT-RECIPE-study)",
    )
    add_training_options(parser)
    parser.set_defaults(run=run)


def run(arguments) -> None:
    """Trains, and prints the table."""
    check_variant(arguments.variant)
    check_repeats(arguments.seeds, arguments.folds)
    known = {name for name in (*vars(arguments), *FIELDS) if name not in OWN}
    tries = parse_tries(arguments.tries, sorted(known - {"about"}))
    fields = recipe_fields(arguments)
    if not {"weights", "teacher"} & {*fields, *tries}:
        # Refuses what is misspelled or impossible before Keras is imported.
        for values in itertools.product(*tries.values()):
            tried = dict(zip(tries, values, strict=True))
            recipe = tried.get("recipe", arguments.recipe)
            find_recipe(recipe, **{**fields, **_only_fields(tried)})
    import_keras_quietly(with_tensorflow=True)
    passed_on = {
        name: value
        for name, value in vars(arguments).items()
        if name not in OWN and name not in FIELDS and value is not None
    }
    found = cct_keras.study(
        arguments.data,
        seeds=arguments.seeds,
        folds=arguments.folds,
        tries=tries,
        seed=arguments.seed,
        split_seed=arguments.split_seed,
        out=arguments.out or _default_folder(arguments),
        image_size=arguments.image_size,
        data_dir=arguments.data_dir,
        restart=arguments.restart,
        verbose=not arguments.quiet,
        log=lambda line: print(arguments.speak(line), flush=True),
        command=shlex.join(arguments.command_line),
        **passed_on,
        **fields,
    )
    if arguments.quiet:
        print(arguments.speak(str(found)))


def parse_tries(texts: list[str], known: Iterable[str]) -> dict[str, list]:
    """What `--try` says.

    Args:
        texts: Such as `lr=1e-3,2e-3`. Values that have a comma are separated by `;`.
        known: The names that may be tried, as Python writes them.

    Returns:
        Lists of values by name.

    Example:

    >>> parse_tries(["lr=1e-3,2e-3", "lora-targets=qkv,proj;qkv"], list(FIELDS))
    {'lr': [0.001, 0.002], 'lora_targets': ['qkv,proj', 'qkv']}
    """
    tries = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().lstrip("-").replace("-", "_")
        values = values.split(";") if ";" in values else values.split(",")
        values = [value.strip() for value in values]
        if not equals or not name or not all(values):
            raise RecipeError(
                "--try must be FIELD=A,B without empty values. "
                f"Received: field {name!r}, values {values if equals else 'none'}"
            )
        if name not in known:
            raise RecipeError(
                f"unknown recipe field {name!r} in --try. {did_you_mean(name, known)}"
            )
        if name in tries:
            raise RecipeError(f"give all values of {name} in one --try")
        tries[name] = [_value(name, value) for value in values]
    return tries


def _value(name, text):
    if name in FIELDS:
        return parse_fields({name: text})[name]
    if name == "recipe":
        return text
    if text in ("yes", "no"):
        return text == "yes"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _only_fields(values):
    return {name: value for name, value in values.items() if name in FIELDS}


def _default_folder(arguments):
    """By the data, the model if it is known without opening weights, and the recipe."""
    parts = [pathlib.Path(arguments.data).stem]
    if arguments.variant is not None:
        parts.append(arguments.variant)
    elif arguments.weights is None:
        parts.append(find_recipe(arguments.recipe).variant)
    name = arguments.recipe or default_recipe(arguments.weights)
    return pathlib.Path("runs", "-".join([*parts, pathlib.Path(name).stem, "study"]))
