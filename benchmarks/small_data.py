"""Who makes the most of few images and few minutes? The scoreboard of small data.

    python benchmarks/small_data.py CIFAR10_FOLDER [--mnist FOLDER] [--only PATTERN]

CIFAR10_FOLDER holds `{train,test}/<class>/*`, the folder of MNIST its idx files. A row
is a data set, a number of images a class and a number of minutes; every contestant gets
the first images of each class and so many minutes of this machine, with everything
but the reading of the images: compiling, the measuring of a step, the training of a
teacher, validation, the test. Contestants that hold images back to choose an epoch take
them from those they got. All test images measure each of them, once, at the end.

Each run is a process of its own, and its result a file as soon as it is there:
interrupted, the same command goes on, and `--only 'cifar10/250/2/small/*'` does a part
of the work. Nothing else should run on the machine. At the end it prints the table and
draws the picture of all results that there are.
"""

import argparse
import dataclasses
import fnmatch
import importlib
import json
import os
import pathlib
import subprocess
import sys
import time

import numpy as np
from subsets import read_images

import cct_keras

# === Who runs where ===

BEFORE, SMALL, TAUGHT, CONVNET = "small, before", "small", "small, taught", "convnet"
EVERYONE = (BEFORE, SMALL, TAUGHT, CONVNET)


@dataclasses.dataclass(frozen=True)
class Row:
    """One race: images a class (`None` for all), minutes, contestants and seeds."""

    data: str
    images: int | None
    minutes: float
    contestants: tuple[str, ...]
    seeds: int

    def names(self):
        """`DATA/IMAGES/MINUTES/CONTESTANT/SEED` of each run."""
        head = f"{self.data}/{self.images or 'all'}/{self.minutes:g}"
        return [
            f"{head}/{contestant}/{seed}"
            for seed in range(self.seeds)
            for contestant in self.contestants
        ]


ROWS = [
    *(Row("cifar10", n, m, EVERYONE, 3) for m in (2, 10) for n in (50, 250, None)),
    *(Row("cifar10", n, 30, EVERYONE, 1) for n in (50, 250, None)),
    Row("mnist", 100, 2, EVERYONE, 1),
    Row("digits", None, 2, EVERYONE, 1),
]
# Those of Okabe and Ito.
COLORS = {
    BEFORE: "#999999",
    SMALL: "#0072B2",
    TAUGHT: "#56B4E9",
    CONVNET: "#D55E00",
}


# === Contestants ===
# Each takes arrays, the end of its time and a seed, and returns the accuracy on the
# test images and what else is worth knowing.


def small(data, minutes, seed, **fields):
    """`cct-keras train FOLDER --minutes M`."""
    run = cct_keras.train(data, minutes=minutes, seed=seed, verbose=False, **fields)
    test = cct_keras.evaluate(run.model, run.data, tta="flip")
    return {
        "top1": run.metrics["test"]["top1"],
        "top1_flip": test["tta"]["top1"],
        "variant": run.metrics["variant"],
        "epochs": run.metrics["epochs"],
        "seconds": run.metrics["seconds"],
    }


def small_before(data, minutes, seed):
    """`small` before the search."""
    return small(data, minutes, seed, recipe="small_adamw", precision="float32")


def small_taught(data, minutes, seed):
    """`cct-keras train FOLDER --minutes M --teacher convnet`."""
    return small(data, minutes, seed, teacher="convnet")


def elsewhere(module):
    """A contestant in a module of its own, which is imported where it runs."""
    return lambda *arguments: importlib.import_module(module).compete(*arguments)


CONTESTANTS = {
    BEFORE: small_before,
    SMALL: small,
    TAUGHT: small_taught,
    CONVNET: elsewhere("rival_convnet"),
}


# === Runs ===


def main():
    """Runs what is missing, then prints the table and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cifar10", type=pathlib.Path)
    parser.add_argument("--mnist", type=pathlib.Path)
    parser.add_argument("--only", default="*", help="runs by name; a shell pattern")
    parser.add_argument("--out", type=pathlib.Path, default="runs/small_data")
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        compete(arguments)
        return
    for part in ("train", "test"):
        if not (arguments.cifar10 / part).is_dir():
            parser.error(f"there is no folder {arguments.cifar10 / part}")
    names = [name for row in ROWS for name in row.names()]
    if arguments.mnist is None:
        names = [name for name in names if not name.startswith("mnist")]
    chosen = [name for name in names if fnmatch.fnmatch(name, arguments.only)]
    if not chosen:
        parser.error(f"no run is called {arguments.only}; the first is {names[0]}")
    for name in chosen if not arguments.table else ():
        path = result_file(arguments.out, name)
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        environment = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, __file__, *sys.argv[1:], "--run", name]
        subprocess.run(command, check=True, env=os.environ | environment)
        result = json.loads(path.read_text())
        print(
            f"{name}: {result['top1']:.2%} in {result['wall'] / 60:.2f} minutes",
            flush=True,
        )
    print_table(arguments.out)
    draw(arguments.out, arguments.out / "small_data.png")


def compete(arguments):
    """One run, in this process."""
    kind, images, minutes, contestant, seed = arguments.run.split("/")
    data = load(kind, None if images == "all" else int(images), arguments)
    started = time.perf_counter()
    result = CONTESTANTS[contestant](data, float(minutes), int(seed))
    result["wall"] = time.perf_counter() - started
    result_file(arguments.out, arguments.run).write_text(json.dumps(result))


def result_file(out, name):
    """Where the result of one run is kept."""
    return out / (name.replace(", ", "_").replace("/", "-") + ".json")


def load(kind, count, arguments):
    """Arrays to train on and to test on."""
    if kind == "cifar10":
        train = read_images(arguments.cifar10 / "train", slice(count))
        return train, read_images(arguments.cifar10 / "test", slice(None))
    source = "digits" if kind == "digits" else arguments.mnist
    data = cct_keras.load_data(source)
    train, validation, test = (
        (np.stack([s.images[i] for i in range(len(s))]), s.labels)
        for s in (data.train, data.validation, data.test)
    )
    both = zip(train, validation, strict=True)
    x_train, y_train = (np.concatenate(parts) for parts in both)
    if count is not None:
        first = [np.flatnonzero(y_train == label)[:count] for label in range(10)]
        chosen = np.sort(np.concatenate(first))
        x_train, y_train = x_train[chosen], y_train[chosen]
    return (x_train, y_train), test


# === Results ===


def accuracies(out, row, contestant, key="top1"):
    """In percent, of all seeds that there are."""
    names = [name for name in row.names() if f"/{contestant}/" in name]
    files = [result_file(out, name) for name in names]
    found = [json.loads(file.read_text()) for file in files if file.exists()]
    return 100 * np.array([result[key] for result in found if key in result])


def joined_rows():
    """A row for all contestants of the same data, images and minutes."""
    rows = {}
    for row in ROWS:
        rows.setdefault((row.data, row.images, row.minutes), []).append(row)
    return rows


def cell(out, rows, contestant, key="top1"):
    """Mean and deviation of a contestant, or nothing."""
    values = [accuracies(out, row, contestant, key) for row in rows]
    values = np.concatenate([np.zeros(0), *values])
    if len(values) < 2:
        return "".join(f"{value:.1f}" for value in values)
    return f"{values.mean():.1f} ± {values.std(ddof=1):.1f}"


def print_table(out):
    """A row for each race, a column for each contestant; below it, over the flip."""
    for key, title in (("top1", "test accuracy, %"), ("top1_flip", "over the flip")):
        print(f"\n| {title} | {' | '.join(EVERYONE)} |")
        print("|---" * (1 + len(EVERYONE)) + "|")
        for (data, images, minutes), rows in joined_rows().items():
            cells = [cell(out, rows, contestant, key) for contestant in EVERYONE]
            if any(cells):
                count = "all images" if images is None else f"{images} a class"
                print(f"| {data}, {count}, {minutes:g} min | {' | '.join(cells)} |")


def draw(out, path):
    """A group of bars for each race on CIFAR-10."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    races = [
        (key, rows)
        for key, rows in joined_rows().items()
        if key[0] == "cifar10" and any(cell(out, rows, c) for c in EVERYONE)
    ]
    if not races:
        return
    figure, axes = plt.subplots(figsize=(1.6 + 1.5 * len(races), 4))
    width = 0.9 / len(EVERYONE)
    for number, contestant in enumerate(EVERYONE):
        for place, (_, rows) in enumerate(races):
            values = [accuracies(out, row, contestant) for row in rows]
            values = np.concatenate(values)
            if len(values):
                axes.bar(
                    place + (number - len(EVERYONE) / 2 + 0.5) * width,
                    values.mean(),
                    width,
                    yerr=values.std(ddof=1) if len(values) > 1 else None,
                    color=COLORS[contestant],
                    label=contestant if place == 0 else None,
                )
    labels = [f"{n or 'all'} a class\n{m:g} min" for (_, n, m), _ in races]
    axes.set_xticks(
        range(len(races)), [text.replace("all a class", "all") for text in labels]
    )
    axes.set_ylabel("test accuracy, %")
    axes.set_title("CIFAR-10 (JPEG), 2 cores")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(path, dpi=120, bbox_inches="tight")


if __name__ == "__main__":
    main()
