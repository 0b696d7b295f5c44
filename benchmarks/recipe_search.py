"""Which recipe is best for CCT-2/3x2, two cores and 50 epochs or less?

    python benchmarks/recipe_search.py CIFAR10_FOLDER [--only PATTERN] [--seeds N]

The folder holds `train/<class>/*`. Every row changes the base recipe in a few fields
and is trained in four ways: on a few images, for longer on more (`--only 'more/*'`),
the same in bfloat16 (`--only 'fast/*'`), and shortly on many (`--only 'short/*'`); not
every row was trained in every way.
Accuracy is that of 5,000 other training images; the test images are not touched. A
result is a file as soon as it is there: interrupted, the same command goes on, and
several commands with other patterns share the work.
"""

import argparse
import fnmatch
import itertools
import json
import pathlib

from subsets import read_images

import cct_keras

# What `small` was before the search.
BASE = {
    "variant": "cct_2_3x2_32",
    "optimizer": "adamw",
    "matrix_lr": 0.02,
    "schedule": "cosine",
    "flip": "auto",
    "crop_padding": 0.125,
    "batch_size": 64,
    "lr": 2e-3,
    "weight_decay": 0.05,
    "label_smoothing": 0.1,
    "attention_dropout": 0.0,
    "stochastic_depth": 0.0,
    "augment": "none",
    "erase_prob": 0.0,
    "mixup": 0.0,
    "cutmix": 0.0,
}
MUON = {"optimizer": "muon", "schedule": "linear"}
# `small` as it is, without AutoAugment.
SMALL = {**MUON, "flip": "alternate", "crop_padding": 0.0625}
ROWS = {
    "base": {},
    "lr 1e-3": {"lr": 1e-3},
    "lr 4e-3": {"lr": 4e-3},
    "batch 32": {"batch_size": 32, "lr": 1.4e-3},
    "batch 128": {"batch_size": 128, "lr": 2.8e-3},
    "decay 0.1": {"weight_decay": 0.1},
    "decay 0.02": {"weight_decay": 0.02},
    "labels 0": {"label_smoothing": 0.0},
    "drops 0.1": {"attention_dropout": 0.1, "stochastic_depth": 0.1},
    "rand": {"augment": "rand-m9-mstd0.5-inc1"},
    "auto": {"augment": "auto"},
    "erase": {"erase_prob": 0.25},
    "mixup": {"mixup": 0.2},
    "cutmix": {"cutmix": 1.0, "mix_prob": 0.5},
    "auto, lr 3e-3": {"augment": "auto", "lr": 3e-3},
    "auto, drops 0.1": {
        "augment": "auto",
        "attention_dropout": 0.1,
        "stochastic_depth": 0.1,
    },
    "auto, erase": {"augment": "auto", "erase_prob": 0.25},
    "auto, mixup": {"augment": "auto", "mixup": 0.2},
    "auto, cutmix": {"augment": "auto", "cutmix": 1.0, "mix_prob": 0.5},
    "muon": {"optimizer": "muon"},
    "muon, line": MUON,
    "muon, alternate": {**MUON, "flip": "alternate"},
    "small": SMALL,
    "small, matrices 0.01": {**SMALL, "matrix_lr": 0.01},
    "small, matrices 0.03": {**SMALL, "matrix_lr": 0.03},
    "small, lr 4e-3": {**SMALL, "lr": 4e-3},
    "small, batch 128": {**SMALL, "batch_size": 128, "lr": 2.8e-3},
    "small, decay 0.2": {**SMALL, "weight_decay": 0.2},
    "small, labels 0": {**SMALL, "label_smoothing": 0.0},
    "small, ema": {**SMALL, "ema": 0.98},
    "small, auto": {**SMALL, "augment": "auto"},
    "small, auto, cutmix": {
        **SMALL,
        "augment": "auto",
        "cutmix": 1.0,
        "mix_prob": 0.5,
    },
    "small, 4 blocks": {**SMALL, "variant": "cct_4_3x2_32"},
    "small, 3 convolutions": {**SMALL, "variant": "cct_2_3x3_32"},
    "small, 3 convolutions, auto": {
        **SMALL,
        "variant": "cct_2_3x3_32",
        "augment": "auto",
    },
}
# Images a class, epochs, precision.
WAYS = {
    "few": (200, 40, "float32"),
    "more": (500, 50, "float32"),
    "fast": (500, 50, "mixed_bfloat16"),
    "short": (2000, 3, "mixed_bfloat16"),
}
HELD_OUT = 500


def main():
    """Runs what is missing, then prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default="runs/recipes")
    parser.add_argument("--only", default="*", help="rows by way, such as 'few/lr*'")
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    if not (arguments.data / "train").is_dir():
        parser.error(f"there is no folder {arguments.data / 'train'}")
    found = [f"{w}/{n}" for w in WAYS for n in ROWS]
    if arguments.seeds < 1 or not fnmatch.filter(found, arguments.only):
        parser.error("nothing to run: see --seeds and --only")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for way, (count, epochs, precision) in WAYS.items():
        images = None
        names = [n for n in ROWS if fnmatch.fnmatch(f"{way}/{n}", arguments.only)]
        for seed, name in itertools.product(range(arguments.seeds), names):
            path = result_file(arguments.out, way, name, seed)
            if not path.exists():
                images = images or load(arguments.data, count)
                accuracy = run(images, epochs, precision, seed, ROWS[name])
                path.write_text(json.dumps(accuracy))
                print(f"{way}/{name}/{seed}: {accuracy:.2%}", flush=True)
    print_table(arguments.out, arguments.seeds)


def run(images, epochs, precision, seed, fields):
    """Accuracy of one recipe."""
    fields = {**BASE, **fields}
    result = cct_keras.train(
        images,
        None,
        "small_adamw",
        epochs=epochs,
        precision=precision,
        seed=seed,
        verbose=False,
        **fields,
    )
    return result.metrics["test"]["top1"]


def load(folder, count):
    """The first images of every class to train on, the last ones to compare by."""
    folder = folder / "train"
    return read_images(folder, slice(count)), read_images(
        folder, slice(-HELD_OUT, None)
    )


def result_file(out, way, name, seed):
    """Where the result of one run is kept."""
    return out / f"{way}-{name.replace(' ', '_')}-{seed}.json"


def print_table(out, seeds):
    """A row for each recipe, a column for each way."""
    heads = [f"{c} a class, {e} epochs, {p}" for c, e, p in WAYS.values()]
    print(f"\n| recipe | {' | '.join(heads)} |\n|{'---|' * (1 + len(heads))}")
    for name, fields in ROWS.items():
        cells = []
        for way in WAYS:
            files = [result_file(out, way, name, seed) for seed in range(seeds)]
            values = [json.loads(f.read_text()) for f in files if f.exists()]
            cells.append(" / ".join(f"{100 * v:.1f}" for v in values) or "-")
        changed = ", ".join(f"`{k}={v}`" for k, v in fields.items()) or "base"
        print(f"| {changed} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
