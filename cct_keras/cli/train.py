"""`cct-keras train`: a data set to a trained model and its report."""

import argparse
import dataclasses
import pathlib
import re
import shlex
import typing

import cct_keras
from cct_keras.cli.options import DATA_HELP
from cct_keras.cli.options import add_data_dir
from cct_keras.cli.options import add_image_size
from cct_keras.cli.options import add_seed
from cct_keras.cli.options import add_split_seed
from cct_keras.cli.options import add_variant
from cct_keras.cli.options import check_variant
from cct_keras.cli.quiet import import_keras_quietly
from cct_keras.data.augmentation.settings import Augmentation
from cct_keras.recipes.minutes import check_minutes
from cct_keras.recipes.recipe import FIELDS
from cct_keras.recipes.recipe import field_help
from cct_keras.recipes.rows import RECIPES
from cct_keras.recipes.rows import default_recipe
from cct_keras.recipes.rows import find_recipe

# Recipe fields by topic; a field that is in none of them is listed at the end.
TOPICS = {
    "learning rate": (
        "lr",
        "matrix_lr",
        "min_lr",
        "schedule",
        "per_step",
        "warmup_epochs",
        "warmup_lr",
        "warmup",
        "decay_epochs",
        "decay_rate",
        "cooldown_epochs",
    ),
    "optimizer": (
        "optimizer",
        "batch_size",
        "accumulate",
        "weight_decay",
        "decay_exempt",
        "clip_norm",
        "ema",
        "patience",
    ),
    "model": (
        "positional_embedding",
        "activation",
        "dropout",
        "attention_dropout",
        "stochastic_depth",
        "precision",
        "remat",
    ),
    "images and labels": (
        *(field.name for field in dataclasses.fields(Augmentation)),
        "eval_crop",
    ),
    "fine-tuning": (
        "fresh_head",
        "layer_decay",
        "freeze",
        "unfreeze_epochs",
        "lora_rank",
        "lora_alpha",
        "lora_targets",
    ),
    "distillation": (
        "distill_tau",
        "distill_weight",
        "teacher_views",
        "teacher_epochs",
        "teacher_share",
    ),
}


def add_parser(subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser(
        "train",
        help="train a model on a data set",
        # There are too many options to list them twice.
        usage="cct-keras train [OPTIONS] data",
        description="Train a model, and write it, logs and a report to a folder. If "
        "the run is stopped, the same command continues it after the last complete "
        "epoch. A recipe decides all settings; each of its fields is an option too, "
        "listed below by topic, with the value that it has in the recipe `small`.",
    )
    parser.add_argument("data", help=DATA_HELP)
    add_seed(parser, "the weights, the order and the augmentation")
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        metavar="FOLDER",
        help="folder of the run (default: runs/DATA-VARIANT-RECIPE)",
    )
    parser.add_argument(
        "--preview",
        action="store_true",
        help="do not train; only write a picture of what the model would see",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="do not train; only say how long it would take, or how many epochs the "
        "--minutes allow",
    )
    group = add_training_options(parser)
    _add_machines(group)
    parser.set_defaults(run=run)


def add_training_options(parser: argparse.ArgumentParser):
    """Adds what a study takes, too: all options but those of a single run.

    Args:
        parser: The parser of a command.

    Returns:
        The group of the options about devices.
    """
    add_variant(parser, default="that of the recipe or of the weights")
    parser.add_argument(
        "--recipe",
        metavar="NAME",
        help="a name that `cct-keras list --recipes` prints, or a .yml file (default: "
        "small, or finetune with --weights)",
    )
    parser.add_argument(
        "--epochs",
        type=int,
        metavar="N",
        help="epochs to train; warmup, cooldown and the like scale with them "
        f"(default: those of the recipe; small: {RECIPES['small'].epochs})",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help="minutes to train, test and report, instead of epochs; everything that "
        "the recipe counts in epochs fits itself to the time (default: no limit)",
    )
    parser.add_argument(
        "--weights",
        help="start from a tag (see `cct-keras list --pretrained`), a .keras, "
        ".weights.h5 or PyTorch file, hf://user/repo, or a run folder (default: random "
        "weights)",
    )
    add_image_size(parser, default="that of the images or of the variant")
    add_data_dir(parser)
    add_split_seed(parser)
    parser.add_argument(
        "--restart",
        action="store_true",
        help="delete a run in the folder and start anew (default: continue it)",
    )
    parser.add_argument(
        "--quiet", action="store_true", help="show no progress (default: show it)"
    )
    group = _add_devices(parser)
    _add_teacher(parser)
    _add_recipe_fields(parser)
    return group


def _add_devices(parser):
    group = parser.add_argument_group("devices and machines")
    group.add_argument(
        "--jit",
        action=argparse.BooleanOptionalAction,
        help="compile with XLA, or not (default: where it is faster)",
    )
    group.add_argument(
        "--devices",
        metavar="N",
        help="number of devices of this machine that share every batch, or `all`; "
        "TensorFlow and JAX only (default: 1)",
    )
    return group


def _add_machines(group):
    group.add_argument(
        "--coordinator",
        metavar="ADDRESS:PORT",
        help="address of the first of several machines; run the same command on each; "
        "JAX only (default: this machine alone)",
    )
    group.add_argument(
        "--num-hosts",
        type=int,
        metavar="N",
        help="number of machines; needed with --coordinator",
    )
    group.add_argument(
        "--host-id",
        type=int,
        metavar="I",
        help="number of this machine, from 0; needed with --coordinator",
    )


def _add_teacher(parser):
    group = parser.add_argument_group("teacher")
    group.add_argument(
        "--teacher",
        metavar="MODEL",
        help="learn from this model too: a .keras file, a run folder, or VARIANT.TAG "
        "of known weights; or `convnet`, a small convnet that is trained first, on the "
        "same images (default: none)",
    )
    group.add_argument(
        "--distill",
        metavar="hard|soft",
        help="learn from the teacher's likeliest class, or from its probabilities "
        "(default: hard, with --teacher convnet soft)",
    )


def _add_recipe_fields(parser):
    """An option for each field of a recipe that has none yet."""
    known = {action.dest for action in parser._actions}
    fields = [name for name in FIELDS if name not in known and name != "about"]
    topics = {
        topic: [n for n in names if n in fields] for topic, names in TOPICS.items()
    }
    topics["other"] = [n for n in fields if not any(n in t for t in topics.values())]
    texts, small = field_help(), RECIPES["small"]
    for topic, names in topics.items():
        if not names:
            continue
        group = parser.add_argument_group(f"recipe fields: {topic}")
        for name in names:
            group.add_argument(
                f"--{name.replace('_', '-')}",
                default=argparse.SUPPRESS,
                help=_field_text(texts[name], getattr(small, name)),
                **_form(FIELDS[name].type),
            )


def _form(kind):
    """How the value of a recipe field is written; the recipe checks it itself."""
    if typing.get_origin(kind) is tuple:
        return {"nargs": len(typing.get_args(kind)), "metavar": "X"}
    kinds = set(typing.get_args(kind) or (kind,))
    if bool in kinds:
        return {"metavar": "yes|no"}
    if float in kinds:
        return {"metavar": "X"}
    return {"metavar": "N" if int in kinds else "NAME"}


def _field_text(text, value):
    """The help text of a recipe field, from its description in Python words."""
    if value is None:
        value = "none"
    elif isinstance(value, bool):
        value = "yes" if value else "no"
    elif isinstance(value, tuple):
        value = " ".join(f"{number:g}" for number in value)
    elif isinstance(value, float):
        value = f"{value:g}"
    text = re.sub('`"([^`"]*)"`', r"\1", text.rstrip("."))
    for name in FIELDS:
        text = text.replace(f"`{name}`", f"--{name.replace('_', '-')}")
    if text[1:2].islower():
        text = text[0].lower() + text[1:]
    # argparse formats help texts by `%`.
    return f"{text} (small: {value})".strip().replace("%", "%%")


def run(arguments) -> None:
    """Trains, or writes a preview."""
    check_variant(arguments.variant)
    check_minutes(arguments.minutes, arguments.epochs)
    fields = recipe_fields(arguments)
    if arguments.weights is None or arguments.variant is not None:
        # Refuses a misspelled recipe or a bad value before Keras is imported. Otherwise
        # the weights decide the variant, which decides what is a good value.
        find_recipe(arguments.recipe, **fields)
    import_keras_quietly(with_tensorflow=True)
    from cct_keras.training.load import resolve_recipe
    from cct_keras.training.run_folder import RunFolder

    recorded = {}
    if arguments.out is not None and not arguments.restart:
        # A run that goes on does not need its weights any more.
        recorded = RunFolder(arguments.out).resumable_settings()
    recipe, weights = resolve_recipe(arguments.recipe, recorded=recorded, **fields)
    out = arguments.out or _default_folder(arguments, recipe)
    common = {
        "image_size": arguments.image_size,
        "data_dir": arguments.data_dir,
    }
    if arguments.preview:
        from cct_keras.report.preview import write_preview
        from cct_keras.training.load import load_training_data

        data = load_training_data(
            arguments.data, recipe, seed=arguments.split_seed, **common
        )
        path = out / "preview.png"
        print(write_preview(path, data, recipe, seed=arguments.seed))
        return
    cct_keras.train(
        arguments.data,
        recipe=recipe,
        minutes=arguments.minutes,
        weights=weights,
        out=out,
        seed=arguments.seed,
        split_seed=arguments.split_seed,
        jit=arguments.jit,
        devices=arguments.devices,
        coordinator=arguments.coordinator,
        num_hosts=arguments.num_hosts,
        host_id=arguments.host_id,
        restart=arguments.restart,
        dry_run=arguments.dry_run,
        verbose=arguments.dry_run or not arguments.quiet,
        log=lambda line: print(arguments.speak(line), flush=True),
        command=shlex.join(arguments.command_line),
        **common,
    )


def recipe_fields(arguments: argparse.Namespace) -> dict:
    """The fields of the recipe that were given as options."""
    fields = {
        name: value
        for name, value in vars(arguments).items()
        if name in FIELDS and value is not None
    }
    # `train` takes it as an argument of its own, with a height and a width.
    fields.pop("image_size", None)
    return fields


def _default_folder(arguments, recipe):
    data = pathlib.Path(arguments.data).stem
    name = pathlib.Path(arguments.recipe or default_recipe(recipe.weights)).stem
    return pathlib.Path("runs", f"{data}-{recipe.variant}-{name}")
