"""`cct-keras summary`: what one variant costs."""

from cct_keras.cli.options import add_image_size
from cct_keras.cli.printing import macs_text
from cct_keras.models.cost import variant_cost
from cct_keras.models.variants import constructor_arguments
from cct_keras.models.variants import find_variant

MEBIBYTE = 2**20


def add_parser(subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser(
        "summary",
        help="show the size of a variant and what it costs",
        description="Show the size of a variant and what it costs. Nothing is built.",
    )
    parser.add_argument("variant", help="a name that `cct-keras list` prints")
    parser.add_argument(
        "--num-classes",
        type=int,
        metavar="N",
        help="number of classes (default: the variant's own)",
    )
    add_image_size(parser, default="the variant's own")
    parser.set_defaults(run=run)


def run(arguments) -> None:
    """Prints one line a fact."""
    row = find_variant(arguments.variant)
    size = row.image_size if arguments.image_size is None else arguments.image_size
    height, width = (size, size) if isinstance(size, int) else size
    cost = variant_cost(arguments.variant, arguments.num_classes, (height, width))
    shape = constructor_arguments(row)
    for label, value in (
        ("variant", f"{arguments.variant} ({row.family})"),
        ("image", f"{height} x {width} x 3"),
        ("classes", arguments.num_classes or row.num_classes),
        (
            "layers / heads / width",
            f"{shape['num_layers']} / {shape['num_heads']} / {shape['embedding_dim']}",
        ),
        ("positions", row.positional_embedding),
        ("tokens", cost.tokens),
        ("parameters", f"{cost.parameters:,}"),
        ("MACs", f"{macs_text(cost.macs)} (convolutions and linear layers)"),
        ("attention", f"{macs_text(cost.attention_macs)} MACs more"),
        ("weights in memory", f"{4 * cost.parameters / MEBIBYTE:.1f} MiB (float32)"),
        (
            "memory per image",
            f"{cost.activation_bytes / MEBIBYTE:.1f} MiB "
            "(activations of a training step, float32)",
        ),
    ):
        print(f"{label:<24}{value}")
