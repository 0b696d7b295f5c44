"""`cct-keras benchmark`: how fast variants and exported files are on this machine."""

import argparse
import itertools
import json

from cct_keras.cli.options import add_image_size
from cct_keras.cli.options import add_json
from cct_keras.cli.options import check_variant
from cct_keras.cli.printing import macs_text
from cct_keras.cli.quiet import import_keras_quietly
from cct_keras.cli.quiet import open_quietly
from cct_keras.model_files import exported_format

DEFAULT_PRECISION = "mixed"


def add_parser(subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser(
        "benchmark",
        help="measure how fast variants or exported models are on this machine",
        description="Measure how fast variants are on this machine, each in a process "
        "of its own: inference, training, a single image, and memory. Of exported "
        "models: opening, a single image, a batch, and memory.",
    )
    parser.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="names that `cct-keras list` prints, or files that `export` wrote",
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        metavar="N",
        help="images per step (default: up to 64, fewer for large models; the batch of "
        "an exported model that has one)",
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
    """Measures one model after the other and prints a line for each."""
    files = [name for name in arguments.models if exported_format(name) is not None]
    for name in arguments.models:
        if name not in files:
            check_variant(name)
    if files:
        _refuse_options(arguments)
    speeds = []
    for kind, names in itertools.groupby(arguments.models, files.__contains__):
        measure = _measure_files if kind else _measure_variants
        speeds += measure(list(names), arguments)
    if arguments.json:
        print(json.dumps(speeds, indent=2))


def _refuse_options(arguments):
    given = {
        "--image-size": arguments.image_size is not None,
        "--jit": arguments.jit is not None,
        "--remat": arguments.remat,
        "--precision": arguments.precision is not None,
    }
    refused = [flag for flag, is_given in given.items() if is_given]
    if refused:
        raise ValueError(
            f"{', '.join(refused)}: an exported model is measured as it was exported"
        )


def _measure_files(names, arguments):
    from cct_keras.benchmarking.exported import benchmark_exported

    # What is wrong with a file is said before anything is measured.
    for name in names:
        open_quietly(name)
    speeds = []
    for name in names:
        speed = benchmark_exported(
            name,
            batch_size=arguments.batch_size,
            rounds=arguments.rounds,
            seconds=arguments.seconds,
        )
        if not arguments.json:
            if not speeds:
                _print_file_heading()
            _print_file_speed(speed)
        speeds.append(speed.as_dict())
    return speeds


def _measure_variants(names, arguments):
    import_keras_quietly()
    from cct_keras.benchmarking.benchmark import benchmark

    speeds = []
    for name in names:
        speed = benchmark(
            name,
            batch_size=arguments.batch_size,
            image_size=arguments.image_size,
            jit=arguments.jit,
            remat=arguments.remat,
            precision=arguments.precision or DEFAULT_PRECISION,
            rounds=arguments.rounds,
            seconds=arguments.seconds,
        )
        if not arguments.json:
            if not speeds:
                _print_heading(speed)
            _print_speed(speed)
        speeds.append(speed.as_dict())
    return speeds


def _print_file_heading():
    print(
        "images per second of a batch and milliseconds of one image in the best round; "
        "memory of the opened model and a batch"
    )
    print(
        f"{'file':<33}{'size':>11}{'batch':>7}{'images/s':>12}{'one image':>13}"
        f"{'opening':>12}{'memory':>11}"
    )


def _print_file_speed(speed):
    memory = "-" if speed.memory is None else f"{speed.memory / 2**20:,.0f} MiB"
    print(
        f"{speed.file:<33}{speed.bytes / 1e6:>8.2f} MB{speed.batch_size:>7}"
        f"{speed.batch_size / speed.inference.best:>12.1f}"
        f"{1000 * speed.latency.best:>10.2f} ms{1000 * speed.opening.best:>9.1f} ms"
        f"{memory:>11}",
        flush=True,
    )


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
