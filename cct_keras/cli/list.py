"""`cct-keras list`: the variants, the known weights, or the recipes."""

import fnmatch

import cct_keras
from cct_keras.cli.printing import macs_text
from cct_keras.models.cost import variant_cost
from cct_keras.models.variants import VARIANTS
from cct_keras.pretrained.catalog import WEIGHTS


def add_parser(subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser(
        "list",
        help="list the variants, the known weights or the recipes",
        description="List the variants and what they cost per image: parameters and "
        "multiply-accumulates (MACs) of convolutions and linear layers.",
    )
    parser.add_argument(
        "pattern",
        nargs="?",
        default="*",
        help="print only names that match, such as 'cct_14_*' (default: all)",
    )
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--pretrained",
        action="store_true",
        help="list the known weights, their classes and their accuracy instead",
    )
    choice.add_argument(
        "--recipes", action="store_true", help="list the training recipes instead"
    )
    parser.set_defaults(run=run)


def run(arguments) -> None:
    """Prints a table."""
    if arguments.recipes:
        _print_recipes(arguments.pattern)
        return
    names = cct_keras.list_models(arguments.pattern, pretrained=arguments.pretrained)
    if not names:
        raise ValueError(f"no variant matches {arguments.pattern!r}")
    if arguments.pretrained:
        _print_weights(names)
    else:
        _print_variants(names)


def _print_variants(names):
    print(
        f"{'variant':<33}{'image':>6}{'positions':>11}{'classes':>9}"
        f"{'parameters':>13}{'MACs':>10}"
    )
    for name in names:
        row, cost = VARIANTS[name], variant_cost(name)
        print(
            f"{name:<33}{row.image_size:>6}{row.positional_embedding:>11}"
            f"{row.num_classes:>9}{cost.parameters:>13,}{macs_text(cost.macs):>10}"
        )


def _print_weights(names):
    rows = [row for row in WEIGHTS if row.variant in names]
    print("--weights takes VARIANT.WEIGHTS, such as dinov2_small.lvd142m")
    groups = dict.fromkeys((row.about, _pixels_text(row)) for row in rows)
    for about, pixels in groups:
        print(f"\n{about.name}: {about.good_for}")
        print(f"  license {about.license}; {pixels}")
        measure = about.measure
        print(f"  {'variant':<33}{'weights':<23}{'classes':>7}  {measure}")
        for row in rows:
            if (row.about, _pixels_text(row)) == (about, pixels):
                classes = row.num_classes or "none"
                top1 = "not published" if row.top1 is None else f"{row.top1:g} %"
                print(f"  {row.variant:<33}{row.tag:<23}{classes:>7}  {top1}")


def _pixels_text(row):
    """How the images of some weights are normalized."""
    if row.is_shipped:
        return "normalized as its training images"
    mean, std = row.dataset.mean, row.dataset.std
    mean, std = (", ".join(f"{x:.4g}" for x in values) for values in (mean, std))
    return f"pixels normalized by mean {mean}, deviation {std}"


def _print_recipes(pattern):
    from cct_keras.recipes.rows import RECIPES

    names = [name for name in RECIPES if fnmatch.fnmatchcase(name, pattern)]
    if not names:
        raise ValueError(f"no recipe matches {pattern!r}")
    width = max(len(name) for name in names)
    for name in names:
        print(f"{name:<{width}}  {RECIPES[name].about}")
