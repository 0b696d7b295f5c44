"""`cct-keras benchmark`: how fast variants are on this machine."""

import argparse
import json

from cct_keras.cli.options import add_image_size
from cct_keras.cli.options import add_json
from cct_keras.cli.options import check_variant
from cct_keras.cli.printing import macs_text
from cct_keras.cli.quiet import import_keras_quietly


def add_parser(subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser(
        "benchmark",
        help="measure how fast variants are on this machine",
        description="Measure how fast variants are on this machine, each in a process "
        "of its own: inference, training, a single image, and memory.",
    )
    parser.add_argument(
        "variants",
        nargs="+",
        metavar="VARIANT",
        help="names that `cct-keras list` prints",
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        metavar="N",
        help="images per step (default: up to 64, fewer for large models)",
    )
    add_image_size(parser, default="the variant's own")
    parser.add_argument(
        "--jit",
        action=argparse.BooleanOptionalAction,
        help="compile with XLA, or not (default: as `train` and `predict` do)",
    )
    parser.add_argument(
        "--remat",
        action="store_true",
        help="compute the blocks again in the backward pass, which takes less memory "
        "and more time (default: keep them)",
    )
    parser.add_argument(
        "--precision",
        default="mixed",
        metavar="NAME",
        help="float32, mixed, mixed_bfloat16 or mixed_float16, as in a recipe "
        "(default: mixed)",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=5,
        metavar="N",
        help="how often to measure; the best round counts (default: 5)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=1.0,
        metavar="S",
        help="about how long a round takes (default: 1)",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments) -> None:
    """Measures one variant after the other and prints a line for each."""
    for variant in arguments.variants:
        check_variant(variant)
    import_keras_quietly()
    from cct_keras.benchmarking.benchmark import benchmark

    speeds = []
    for variant in arguments.variants:
        speed = benchmark(
            variant,
            batch_size=arguments.batch_size,
            image_size=arguments.image_size,
            jit=arguments.jit,
            remat=arguments.remat,
            precision=arguments.precision,
            rounds=arguments.rounds,
            seconds=arguments.seconds,
        )
        speeds.append(speed)
        if not arguments.json:
            if len(speeds) == 1:
                _print_heading(speed)
            _print_speed(speed)
    if arguments.json:
        print(json.dumps([speed.as_dict() for speed in speeds], indent=2))


def _print_heading(speed):
    print(
        f"this machine: {speed.peak_flops / 1e9:.0f} GFLOP/s in a product of large "
        "matrices"
    )
    print(
        "images per second in the best round, and the share of these GFLOP/s; memory "
        "of a training step"
    )
    print(
        f"{'variant':<33}{'parameters':>13}{'MACs':>10}{'batch':>7}{'inference':>16}"
        f"{'training':>16}{'memory':>11}{'one image':>11}{'first step':>12}"
    )


def _print_speed(speed):
    inference = speed.batch_size / speed.inference.best
    training = speed.batch_size / speed.training.best
    memory = speed.training.memory
    memory_text = "-" if memory is None else f"{memory / 2**20:,.0f} MiB"
    macs = speed.cost.macs + speed.cost.attention_macs
    print(
        f"{speed.variant:<33}{speed.cost.parameters:>13,}{macs_text(macs):>10}"
        f"{speed.batch_size:>7}"
        f"{inference:>10.1f} ({speed.inference_share:>3.0%})"
        f"{training:>10.1f} ({speed.training_share:>3.0%})"
        f"{memory_text:>11}{1000 * speed.latency.best:>8.1f} ms"
        f"{speed.training.first:>10.1f} s",
        flush=True,
    )
