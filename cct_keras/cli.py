"""The `cct-keras` command: parsing and printing only."""

import argparse
import os
import pathlib
import sys

MODEL_HELP = (
    "a file or run folder that `train` wrote, or VARIANT.TAG of known weights, such as "
    "cct_2_3x2_32.cifar10_jpeg"
)
FIGURES = (".png", ".svg", ".pdf")


def main(argv: list[str] | None = None) -> int:
    """Runs the command line.

    Returns:
        The exit code: 0, or 2 after a one-line error on stderr.
    """
    parser = _parser()
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.error(_unknown(unknown, arguments))
    try:
        if arguments.run in (_train, _probe, _evaluate):
            from cct_keras.quiet import import_tensorflow_quietly

            import_tensorflow_quietly()
        arguments.run(arguments)
    except BrokenPipeError:
        # The reader, `head` for one, has enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        # One line, in which a hostile name cannot steer the terminal.
        text = " ".join(str(error).split()) or type(error).__name__
        line = "".join(char if char.isprintable() else "?" for char in text)
        print(f"cct-keras: error: {line}", file=sys.stderr)
        return _exit(2, arguments)
    except KeyboardInterrupt:
        return _exit(130, arguments)
    return 0


def _exit(code, arguments):
    """Of several machines, one that fails does not wait for the others."""
    if getattr(arguments, "coordinator", None):
        sys.stdout.flush()
        os._exit(code)
    return code


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message):
        print(f"{self.prog}: error: {message}", file=sys.stderr)
        sys.exit(2)


def _parser():
    from cct_keras import __version__

    parser = _Parser(prog="cct-keras", description="Compact transformers for Keras 3.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", required=True)

    command = commands.add_parser("list", help="list the variants and what they cost")
    command.add_argument(
        "pattern", nargs="?", default="*", help="such as 'cct_14_*' (default: all)"
    )
    command.add_argument(
        "--pretrained", action="store_true", help="list known weights instead"
    )
    command.add_argument(
        "--recipes", action="store_true", help="list the training recipes instead"
    )
    command.set_defaults(run=_list)

    command = commands.add_parser("summary", help="what one variant costs")
    command.add_argument("variant", help="a name that `cct-keras list` prints")
    command.add_argument("--num-classes", type=int, metavar="N")
    command.add_argument("--image-size", type=int, nargs=2, metavar=("HEIGHT", "WIDTH"))
    command.set_defaults(run=_summary)

    _add_train(commands)

    command = commands.add_parser(
        "probe", help="a logistic regression on the features of trained weights"
    )
    command.add_argument("data", help="as for `train`")
    command.add_argument("--weights", required=True, help="as for `train`")
    command.add_argument("--variant", help="see `cct-keras list`")
    _add_image_size(command)
    command.add_argument("--data-dir", help="prepared data of tensorflow-datasets")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument(
        "--out", type=pathlib.Path, metavar="FILE", help="write the model, a .keras"
    )
    command.set_defaults(run=_probe)

    command = commands.add_parser("evaluate", help="how good a trained model is")
    command.add_argument("model", help=MODEL_HELP)
    command.add_argument("data", help="as for `train`")
    command.add_argument(
        "--split", choices=("test", "validation", "train"), default="test"
    )
    command.add_argument("--data-dir", help="prepared data of tensorflow-datasets")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_evaluate)

    command = commands.add_parser("predict", help="what a trained model sees")
    command.add_argument("model", help=MODEL_HELP)
    command.add_argument("images", nargs="+", help="image files or folders of them")
    command.add_argument("--top", type=int, default=5, metavar="N")
    command.add_argument(
        "--figure",
        type=pathlib.Path,
        metavar="FILE",
        help="also draw the first 24 with their classes (.png, .svg or .pdf)",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_predict)

    command = commands.add_parser(
        "benchmark", help="how fast variants are on this machine"
    )
    command.add_argument("variants", nargs="+", metavar="VARIANT")
    command.add_argument(
        "--batch-size", type=int, metavar="N", help="default: up to 64"
    )
    _add_image_size(command)
    command.add_argument(
        "--jit",
        action=argparse.BooleanOptionalAction,
        help="compile with XLA (default: as `train` and `predict` do)",
    )
    command.add_argument(
        "--remat", action="store_true", help="compute blocks again, to save memory"
    )
    command.add_argument(
        "--precision", default="mixed", help="as in a recipe, such as mixed_bfloat16"
    )
    command.add_argument("--rounds", type=int, default=5, metavar="N")
    command.add_argument(
        "--seconds", type=float, default=1.0, metavar="S", help="of a round"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_benchmark)

    command = commands.add_parser(
        "convert", help="a PyTorch checkpoint into a Keras file, or the reverse"
    )
    command.add_argument(
        "source", help=".pth, .pt, .bin, .pth.zip, .safetensors, a URL, or .keras"
    )
    command.add_argument(
        "out",
        type=pathlib.Path,
        help=".keras or .weights.h5 (of a .keras the latter); see --to",
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


def _add_train(commands):
    from cct_keras.training.recipe import FIELDS

    command = commands.add_parser(
        "train",
        help="train a model on a data set",
        description="Train a model. Killed, the same command goes on after the last "
        "complete epoch.",
    )
    command.add_argument(
        "data",
        help="digits; a name of tensorflow-datasets; a folder of images by class or "
        "of idx files; an .npz file",
    )
    command.add_argument("--variant", help="see `cct-keras list`")
    command.add_argument(
        "--recipe",
        help="see `cct-keras list --recipes`, or a .yml file (default: small, with "
        "--weights finetune)",
    )
    command.add_argument(
        "--epochs", type=int, metavar="N", help="warmup and the like scale with it"
    )
    command.add_argument(
        "--weights",
        help="start from a tag (see `cct-keras list --pretrained`), a .keras, "
        ".weights.h5 or official .pth file, or the folder of a run",
    )
    command.add_argument(
        "--teacher",
        metavar="MODEL",
        help="learn also from this .keras file, folder of a run, or VARIANT.TAG",
    )
    command.add_argument(
        "--distill",
        metavar="hard|soft",
        help="from the teacher's likeliest class, or from its probabilities "
        "(default: hard)",
    )
    command.add_argument(
        "--out",
        type=pathlib.Path,
        metavar="FOLDER",
        help="default: runs/DATA-VARIANT-RECIPE",
    )
    _add_image_size(command)
    command.add_argument("--data-dir", help="prepared data of tensorflow-datasets")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument(
        "--jit",
        action=argparse.BooleanOptionalAction,
        help="compile with XLA (default: where it is faster)",
    )
    command.add_argument(
        "--devices",
        metavar="N",
        help="how many devices of this machine share a batch, or all (TensorFlow, JAX)",
    )
    command.add_argument(
        "--coordinator",
        metavar="ADDRESS:PORT",
        help="for several machines (JAX): the first one; run the command on each",
    )
    command.add_argument("--num-hosts", type=int, metavar="N", help="their number")
    command.add_argument(
        "--host-id", type=int, metavar="I", help="the number of this one, from 0"
    )
    command.add_argument(
        "--restart", action="store_true", help="throw away the run that is there"
    )
    command.add_argument("--quiet", action="store_true", help="show no progress")
    command.add_argument(
        "--preview",
        action="store_true",
        help="only write a picture of what the model would see in training",
    )
    group = command.add_argument_group("recipe fields, in place of the recipe's own")
    known = {action.dest for action in command._actions}
    for name in FIELDS:
        if name != "about" and name not in known:
            nargs = 2 if name == "crop_scale" else None
            flag = f"--{name.replace('_', '-')}"
            group.add_argument(
                flag, metavar="X", nargs=nargs, default=argparse.SUPPRESS
            )
    flags = [flag for action in command._actions for flag in action.option_strings]
    command.set_defaults(run=_train, flags=flags)


def _add_image_size(command):
    command.add_argument(
        "--image-size", type=int, nargs="+", metavar="N", help="side, or height width"
    )


def _image_size(arguments):
    size = arguments.image_size
    return size[0] if size is not None and len(size) == 1 else size and tuple(size)


def _unknown(unknown, arguments):
    """An error about flags that do not exist, with those that come near."""
    import difflib

    flags = getattr(arguments, "flags", ())
    near = [
        match
        for word in unknown
        for match in difflib.get_close_matches(word.split("=")[0], flags, n=3)
    ]
    hint = f". Did you mean: {', '.join(near)}?" if near else ""
    return f"unrecognized arguments: {' '.join(unknown)}{hint}"


def _list(arguments):
    from cct_keras.models.cost import variant_cost
    from cct_keras.models.factory import list_models
    from cct_keras.models.variants import VARIANTS

    if arguments.recipes:
        _list_recipes(arguments.pattern)
        return
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

    print(f"{'variant':<33}{'weights':<23}{'classes':>7}{'top-1':>9}  from")
    for row in WEIGHTS:
        if row.variant in names:
            classes = row.dataset.num_classes
            source = "this package" if row.is_shipped else "published"
            print(
                f"{row.variant:<33}{row.tag:<23}{classes:>7}"
                f"{row.top1:>7.2f} %  {source}"
            )


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


def _train(arguments):
    import shlex

    from cct_keras.training.recipe import FIELDS
    from cct_keras.training.recipes import default_recipe
    from cct_keras.training.recipes import find_recipe

    fields = {k: v for k, v in vars(arguments).items() if k in FIELDS}
    del fields["epochs"], fields["image_size"]
    fields = {k: v for k, v in fields.items() if v is not None}
    recipe = find_recipe(arguments.recipe, epochs=arguments.epochs, **fields)
    data = pathlib.Path(arguments.data)
    name = pathlib.Path(arguments.recipe or default_recipe(recipe.weights)).stem
    out = arguments.out or pathlib.Path("runs", f"{data.stem}-{recipe.variant}-{name}")
    common = {
        "image_size": _image_size(arguments),
        "data_dir": arguments.data_dir,
        "seed": arguments.seed,
    }
    if arguments.preview:
        from cct_keras.training.preview import write_preview

        print(write_preview(out / "preview.png", arguments.data, recipe, **common))
        return
    from cct_keras.training import train

    train(
        arguments.data,
        recipe=recipe,
        out=out,
        jit=arguments.jit,
        devices=arguments.devices,
        coordinator=arguments.coordinator,
        num_hosts=arguments.num_hosts,
        host_id=arguments.host_id,
        restart=arguments.restart,
        verbose=not arguments.quiet,
        command=shlex.join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]),
        **common,
    )


def _probe(arguments):
    from cct_keras.atomic_file import atomic_file
    from cct_keras.training import linear_probe

    if arguments.out is not None and arguments.out.suffix != ".keras":
        raise ValueError(f"--out must end in .keras. Received: {arguments.out}")
    if arguments.out is not None and not arguments.out.parent.is_dir():
        raise ValueError(f"the folder {arguments.out.parent} does not exist")
    run = linear_probe(
        arguments.data,
        arguments.variant,
        weights=arguments.weights,
        image_size=_image_size(arguments),
        data_dir=arguments.data_dir,
        seed=arguments.seed,
    )
    print(run.data.describe())
    for note in run.data.notes:
        print(f"note: {note}")
    test = run.metrics["test"]
    low, high = test["top1_ci95"]
    print(
        f"test accuracy {test['top1']:.2%} (95 % interval {low:.2%} to {high:.2%}), "
        f"{run.metrics['seconds']:.1f} s"
    )
    if arguments.out is not None:
        with atomic_file(arguments.out) as temporary:
            run.model.save(temporary)
        print(f"model: {arguments.out}")


def _evaluate(arguments):
    import json

    from cct_keras.training import evaluate

    metrics = evaluate(
        arguments.model,
        arguments.data,
        split=arguments.split,
        data_dir=arguments.data_dir,
    )
    if arguments.json:
        print(json.dumps(metrics, indent=2))
        return
    low, high = metrics["top1_ci95"]
    for note in metrics["notes"]:
        print(f"note: {note}")
    print(f"images  {metrics['count']:,}")
    print(f"top-1   {metrics['top1']:.2%} (95 % interval {low:.2%} to {high:.2%})")
    if metrics["top5"] is not None:
        print(f"top-5   {metrics['top5']:.2%}")
    print(f"loss    {metrics['loss']:.4f}")
    print(f"ECE     {metrics['ece']:.4f}")
    width = max(len(row["name"]) for row in metrics["per_class"])
    print(f"\n{'class':<{width}}  images  accuracy")
    for row in metrics["per_class"]:
        accuracy = "-" if row["accuracy"] is None else f"{row['accuracy']:.2%}"
        print(f"{row['name']:<{width}}  {row['count']:>6}  {accuracy:>8}")


def _predict(arguments):
    import json

    from cct_keras.training import predict
    from cct_keras.training.preview import write_predictions

    figure = arguments.figure
    if figure is not None and figure.suffix not in FIGURES:
        raise ValueError(
            f"--figure must end in {', '.join(FIGURES)}. Received: {figure}"
        )
    rows = predict(arguments.model, arguments.images, top=arguments.top)
    if arguments.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            if "classes" in row:
                print(row["image"])
                for answer in row["classes"]:
                    print(f"  {answer['probability']:>7.2%}  {answer['name']}")
    if figure is not None and any("classes" in row for row in rows):
        print(f"figure: {write_predictions(figure, rows)}", file=sys.stderr)
    errors = [row["error"] for row in rows if "error" in row]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise ValueError(f"{errors[0]}{more}")


def _benchmark(arguments):
    import json

    from cct_keras.benchmark import benchmark
    from cct_keras.models.factory import find_variant

    for variant in arguments.variants:
        find_variant(variant)
    speeds = []
    for variant in arguments.variants:
        speed = benchmark(
            variant,
            batch_size=arguments.batch_size,
            image_size=_image_size(arguments),
            jit=arguments.jit,
            remat=arguments.remat,
            precision=arguments.precision,
            rounds=arguments.rounds,
            seconds=arguments.seconds,
        )
        speeds.append(speed)
        if not arguments.json:
            _print_speed(speed, heading=len(speeds) == 1)
    if arguments.json:
        print(json.dumps([speed.as_dict() for speed in speeds], indent=2))


def _print_speed(speed, heading):
    if heading:
        peak = speed.peak_flops / 1e9
        print(f"this machine: {peak:.0f} GFLOP/s in a product of large matrices")
        print("images a second, best round; share of that; memory of a training step")
        print(
            f"{'variant':<24}{'parameters':>12}{'MACs':>9}{'batch':>6}{'inference':>16}"
            f"{'training':>16}{'memory':>11}{'one image':>11}{'first step':>11}"
        )
    inference = speed.batch_size / speed.inference.best
    training = speed.batch_size / speed.training.best
    memory = speed.training.memory
    memory = "-" if memory is None else f"{memory / 2**20:,.0f} MiB"
    macs = speed.cost.macs + speed.cost.attention_macs
    print(
        f"{speed.variant:<24}{speed.cost.parameters:>12,}{_giga(macs):>9}"
        f"{speed.batch_size:>6}"
        f"{inference:>9.1f} ({speed.inference_share:>3.0%})"
        f"{training:>10.1f} ({speed.training_share:>3.0%})"
        f"{memory:>11}{1000 * speed.latency.best:>8.1f} ms"
        f"{speed.training.first:>9.1f} s",
        flush=True,
    )


def _list_recipes(pattern):
    import fnmatch

    from cct_keras.training.recipes import RECIPES

    names = [name for name in RECIPES if fnmatch.fnmatchcase(name, pattern)]
    if not names:
        raise ValueError(f"no recipe matches {pattern!r}")
    width = max(len(name) for name in names)
    for name in names:
        print(f"{name:<{width}}  {RECIPES[name].about}")


def _giga(count):
    return f"{count / 1e9:.2f} G" if count >= 1e8 else f"{count / 1e9:.3f} G"


if __name__ == "__main__":
    sys.exit(main())
