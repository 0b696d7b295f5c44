"""The entry point of `cct-keras`: it finds the subcommand, and says what went wrong."""

import argparse
import functools
import importlib
import os
import re
import sys
from collections.abc import Mapping

import cct_keras
from cct_keras.errors import one_line
from cct_keras.spelling import did_you_mean

# Each is a module beside this one, with `add_parser(subparsers)` and `run(arguments)`.
# What takes long to import, such as Keras, is imported inside `run` only.
COMMANDS = (
    "list",
    "summary",
    "train",
    "study",
    "compare",
    "probe",
    "evaluate",
    "predict",
    "explain",
    "export",
    "benchmark",
    "convert",
    "publish",
)


def main(argv: list[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv: The words after `cct-keras`; by default those of this process.

    Returns:
        The exit code: 0, or 2 after an error of one line on stderr. A command line that
        cannot be parsed ends the process with 2 as well.

    Example:

    >>> main(["list", "cct_14_7x2_224"])
    variant                           image  positions  classes   parameters      MACs
    cct_14_7x2_224                      224  learnable     1000   22,367,273    5.11 G
    0
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    parser, commands = _parser(argv)
    arguments, unknown = parser.parse_known_args(argv)
    flags = _flags(commands[arguments.command])
    if unknown:
        parser.error(_unknown_flags(unknown, flags))
    arguments.speak = functools.partial(speak_command_line, flags=flags)
    # The report of a training run shows how it was started.
    arguments.command_line = ["cct-keras", *argv]
    try:
        arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output, such as `head`, has read enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        message = arguments.speak(_reason(error))
        print(f"cct-keras: error: {one_line(message)}", file=sys.stderr)
        return _exit(2, arguments)
    except KeyboardInterrupt:
        return _exit(130, arguments)
    return 0


def _reason(error):
    if type(error) is ModuleNotFoundError and error.name:
        # Where only the runtime is installed, most commands are out of reach.
        return (
            f"{error.name.partition('.')[0]} is not installed: run `pip install "
            "cct-keras`, which installs all that this command needs"
        )
    return str(error) or type(error).__name__


def _exit(code, arguments):
    """Ends the process at once if it is one of several machines.

    Otherwise it would wait for the other machines, which wait for it.
    """
    if getattr(arguments, "coordinator", None):
        sys.stdout.flush()
        os._exit(code)
    return code


# === Parsing ===


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, without the usage."""

    def error(self, message):
        print(f"{self.prog}: error: {one_line(message)}", file=sys.stderr)
        sys.exit(2)


def _parser(argv):
    """The parser, and the parsers of the subcommands that `argv` may ask for."""
    parser = _Parser(
        prog="cct-keras",
        description="Compact transformers for Keras 3.",
        epilog="`cct-keras COMMAND --help` describes the options of a command.",
    )
    parser.add_argument(
        "-V",
        "--version",
        action="version",
        version=cct_keras.__version__,
        help="print the version and exit",
    )
    subparsers = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="command", required=True
    )
    first = argv[0] if argv else ""
    if first and first not in COMMANDS and not first.startswith("-"):
        parser.error(f"unknown command {first!r}. {did_you_mean(first, COMMANDS)}")
    # The other commands need no options if the first word is a command: this saves the
    # time of importing the recipes, whose fields are options of `train`.
    for name in [first] if first in COMMANDS else COMMANDS:
        importlib.import_module(f"cct_keras.cli.{name}").add_parser(subparsers)
    return parser, subparsers.choices


def _flags(parser):
    """The options of a subcommand, by the name of the Python parameter."""
    return {
        action.dest: action
        for action in parser._actions
        if action.option_strings and action.dest != "help"
    }


def _unknown_flags(unknown, flags):
    import difflib

    known = [flag for action in flags.values() for flag in action.option_strings]
    similar = [
        match
        for word in unknown
        for match in difflib.get_close_matches(word.split("=")[0], known)
    ]
    hint = f". Did you mean: {', '.join(similar)}?" if similar else ""
    return f"unrecognized arguments: {' '.join(unknown)}{hint}"


# === Error messages ===

# A Python value in a message: quoted, a path, in brackets, or a word. A full stop or a
# colon behind a word belongs to the sentence.
_VALUE = r"""
    \.\.\.
    | '[^']*' | "[^"]*"
    | \w*Path\( (?: '[^']*' | "[^"]*" ) \)
    | \( [^()]* \) | \[ [^][]* \]
    | (?: [^\s`,;()'"]* [^\s`,;()'".:?!] )?
"""


def speak_command_line(message: str, flags: Mapping[str, argparse.Action]) -> str:
    """Turns the Python parameters in a message into options of the command line.

    The functions of the package name their Python parameters. A person who runs a
    command needs the name of the option instead.

    Args:
        message: What a function of the package says.
        flags: The options of the running subcommand, by the name of the parameter.

    Returns:
        The message with `--name` in place of `` `name` `` and `--name value` in place
        of `name=value`. Names that are no option of the subcommand stay.

    Example:

    >>> parser = argparse.ArgumentParser()
    >>> flags = {
    ...     "batch_size": parser.add_argument("--batch-size"),
    ...     "restart": parser.add_argument("--restart", action="store_true"),
    ... }
    >>> speak_command_line("`batch_size` is not 64; pass restart=True", flags)
    '--batch-size is not 64; pass --restart'
    """
    if not flags:
        return message
    names = "|".join(re.escape(name) for name in flags)
    pattern = rf"""
        `(?P<alone>{names})`
        # Neither a part of a longer word, nor of a path, nor of an address.
        | (?P<tick>`?) (?<![\w./\\?&-]) (?P<name>{names}) =(?!=) (?P<value>{_VALUE})
          (?P=tick)
    """

    def as_option(match):
        if match["alone"]:
            return flags[match["alone"]].option_strings[0]
        return _option_text(flags[match["name"]], match["value"])

    return re.sub(pattern, as_option, message, flags=re.VERBOSE)


def _option_text(action, value):
    """What to type for a Python value of an option."""
    flag = action.option_strings[0]
    if not value:
        return flag
    if value == "None":
        return f"no {flag}"
    if isinstance(action, argparse.BooleanOptionalAction) and value == "False":
        return action.option_strings[1]
    if action.nargs == 0:
        return f"no {flag}" if value == "False" else flag
    if value == "...":
        return f"{flag} {action.metavar or action.dest.upper()}"
    return f"{flag} {_value_text(value)}"


def _value_text(value):
    import ast
    import shlex

    if value in ("True", "False"):
        return "yes" if value == "True" else "no"
    if "Path(" in value:
        value = value[value.index("(") + 1 : -1]
    if value.startswith(("'", '"')):
        return shlex.quote(ast.literal_eval(value))
    words = value.strip("()[]").replace(",", " ").split()
    return " ".join(word.strip("'\"") for word in words)


if __name__ == "__main__":
    sys.exit(main())
