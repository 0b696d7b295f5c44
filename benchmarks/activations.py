"""What does an activation without erf cost in accuracy?

    python benchmarks/activations.py CIFAR10_FOLDER [--only NAME] [--seeds N]

The folder holds `train/<class>/*`. CCT-2/3x2 learns from 500 images of every class by
the recipe `small`, in bfloat16, once with each activation and seed. Accuracy is that of
5,000 other training images; the test images are not touched. A result is a file as soon
as it is there: interrupted, the same command goes on.
"""

import argparse
import itertools
import json
import pathlib

import numpy as np
from subsets import read_images

import cct_keras
from cct_keras.checks import ACTIVATIONS

IMAGES, HELD_OUT = 500, 500


def main():
    """Runs what is missing, then prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default="runs/activations")
    parser.add_argument("--only", choices=ACTIVATIONS, help="one activation")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--table", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    if not (arguments.data / "train").is_dir():
        parser.error(f"there is no folder {arguments.data / 'train'}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    names = [arguments.only] if arguments.only else ACTIVATIONS
    images = None
    # All activations of one seed first: a table of fewer seeds is a table, too.
    for seed, name in itertools.product(range(arguments.seeds), names):
        path = result_file(arguments.out, name, arguments.epochs, seed)
        if path.exists() or arguments.table:
            continue
        images = images or load(arguments.data / "train")
        accuracy = run(images, name, arguments.epochs, seed)
        path.write_text(json.dumps(accuracy))
        print(f"{name}/{seed}: {accuracy:.2%}", flush=True)
    print_table(arguments)


def run(images, activation, epochs, seed):
    """Accuracy of one training."""
    result = cct_keras.train(
        images,
        "cct_2_3x2_32",
        "small_adamw",
        epochs=epochs,
        activation=activation,
        precision="mixed_bfloat16",
        seed=seed,
        verbose=False,
    )
    return result.metrics["test"]["top1"]


def load(folder):
    """The first images of every class to train on, the last ones to compare by."""
    return (
        read_images(folder, slice(IMAGES)),
        read_images(folder, slice(-HELD_OUT, None)),
    )


def result_file(out, name, epochs, seed):
    """Where the result of one run is kept."""
    return out / f"{name}-{epochs}-{seed}.json"


def print_table(arguments):
    """A row for each activation: every seed, and their mean."""
    print("\n| activation | accuracy by seed, % | mean |\n|---|---|---|")
    for name in ACTIVATIONS:
        files = [
            result_file(arguments.out, name, arguments.epochs, seed)
            for seed in range(arguments.seeds)
        ]
        values = [100 * json.loads(f.read_text()) for f in files if f.exists()]
        cells = " / ".join(f"{value:.1f}" for value in values) or "-"
        mean = f"{np.mean(values):.1f}" if values else "-"
        print(f"| `{name}` | {cells} | {mean} |")


if __name__ == "__main__":
    main()
