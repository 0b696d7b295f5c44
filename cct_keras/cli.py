"""The `cct-keras` command: parsing and printing only."""

import argparse
import os
import pathlib
import sys


def main(argv: list[str] | None = None) -> int:
    """Runs the command line.

    Returns:
        The exit code: 0, or 2 after a one-line error on stderr.
    """
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except BrokenPipeError:
        # The reader, `head` for one, has enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        # One line, in which a hostile name cannot steer the terminal.
        text = " ".join(str(error).split()) or type(error).__name__
        line = "".join(char if char.isprintable() else "?" for char in text)
        print(f"cct-keras: error: {line}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _parser():
    from cct_keras import __version__

    parser = argparse.ArgumentParser(
        prog="cct-keras", description="Compact transformers for Keras 3."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", required=True)

    command = commands.add_parser("list", help="list the variants and what they cost")
    command.add_argument(
        "pattern", nargs="?", default="*", help="such as 'cct_14_*' (default: all)"
    )
    command.add_argument(
        "--pretrained", action="store_true", help="list published weights instead"
    )
    command.set_defaults(run=_list)

    command = commands.add_parser("summary", help="what one variant costs")
    command.add_argument("variant", help="a name that `cct-keras list` prints")
    command.add_argument("--num-classes", type=int, metavar="N")
    command.add_argument("--image-size", type=int, nargs=2, metavar=("HEIGHT", "WIDTH"))
    command.set_defaults(run=_summary)

    command = commands.add_parser(
        "convert", help="a PyTorch checkpoint into a Keras file, or the reverse"
    )
    command.add_argument(
        "source", help=".pth, .pt, .bin, .pth.zip, .safetensors, a URL, or .keras"
    )
    command.add_argument(
        "out", type=pathlib.Path, help=".keras or .weights.h5; see --to"
    )
    command.add_argument(
        "--to",
        choices=("keras", "torch"),
        default="keras",
        help="torch writes .safetensors, .pth, .pt or .bin (default: keras)",
    )
    command.add_argument("--num-classes", type=int, metavar="N")
    command.add_argument(
        "--input-shape",
        type=int,
        nargs=3,
        metavar=("HEIGHT", "WIDTH", "CHANNELS"),
        help="positions are resized, the first convolution is adapted",
    )
    command.add_argument("--num-heads", type=int, metavar="N")
    command.add_argument(
        "--grid",
        type=int,
        nargs=2,
        metavar=("ROWS", "COLUMNS"),
        help="of the file's positions, if not a square",
    )
    command.add_argument("--entry", help="entry of the file, such as state_dict")
    command.add_argument(
        "--force", action="store_true", help="replace an existing file"
    )
    command.add_argument(
        "--verbose", action="store_true", help="print a table of all tensors"
    )
    command.set_defaults(run=_convert)
    return parser


def _list(arguments):
    from cct_keras.models.cost import variant_cost
    from cct_keras.models.factory import list_models
    from cct_keras.models.variants import VARIANTS

    names = list_models(arguments.pattern, pretrained=arguments.pretrained)
    if not names:
        raise ValueError(f"no variant matches {arguments.pattern!r}")
    if arguments.pretrained:
        _list_weights(names)
        return
    print(
        f"{'variant':<24}{'image':>6}{'positions':>11}{'classes':>9}"
        f"{'parameters':>12}{'MACs':>9}"
    )
    for name in names:
        row, cost = VARIANTS[name], variant_cost(name)
        print(
            f"{name:<24}{row.image_size:>6}{row.positional_embedding:>11}"
            f"{row.num_classes:>9}{cost.parameters:>12,}{_giga(cost.macs):>9}"
        )


def _list_weights(names):
    from cct_keras.pretrained import WEIGHTS

    print(f"{'variant':<20}{'weights':<23}{'classes':>7}  {'published top-1':>15}")
    for row in WEIGHTS:
        if row.variant in names:
            classes = row.dataset.num_classes
            print(f"{row.variant:<20}{row.tag:<23}{classes:>7}  {row.top1:>13.2f} %")


def _summary(arguments):
    from cct_keras.models.cost import variant_cost
    from cct_keras.models.factory import find_variant
    from cct_keras.models.variants import constructor_arguments

    row = find_variant(arguments.variant)
    size = constructor_arguments(row)
    height, width = arguments.image_size or (row.image_size, row.image_size)
    cost = variant_cost(arguments.variant, arguments.num_classes, arguments.image_size)
    mebibyte = 2**20
    for label, value in (
        ("variant", f"{arguments.variant} ({row.family})"),
        ("image", f"{height} x {width} x 3"),
        ("classes", f"{arguments.num_classes or row.num_classes}"),
        ("layers / heads / dim", "{num_layers} / {num_heads} / {embedding_dim}"),
        ("positions", row.positional_embedding),
        ("tokens", f"{cost.tokens}"),
        ("parameters", f"{cost.parameters:,}"),
        ("MACs", f"{_giga(cost.macs)} (convolutions and linear layers)"),
        ("attention products", f"{_giga(cost.attention_macs)} MACs beside them"),
        ("weights in memory", f"{4 * cost.parameters / mebibyte:.1f} MiB (float32)"),
        (
            "memory per image",
            f"{cost.activation_bytes / mebibyte:.1f} MiB "
            "(activations of a training step, float32)",
        ),
    ):
        print(f"{label:<22}{value.format(**size)}")


def _convert(arguments):
    from cct_keras.converter import command

    command.run(
        arguments.source,
        arguments.out,
        to=arguments.to,
        force=arguments.force,
        verbose=arguments.verbose,
        grid=arguments.grid,
        entry=arguments.entry,
        num_classes=arguments.num_classes,
        input_shape=arguments.input_shape,
        num_heads=arguments.num_heads,
    )


def _giga(count):
    return f"{count / 1e9:.2f} G" if count >= 1e8 else f"{count / 1e9:.3f} G"


if __name__ == "__main__":
    sys.exit(main())
