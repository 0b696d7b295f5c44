"""Trains a compact transformer on CIFAR-10.

    python examples/cifar10.py [--data cifar10] [--variant cct_2_3x2_32]

CIFAR-10 is downloaded by tensorflow-datasets; `--data` also takes a folder
`{train,test}/<class>/*.png` or an .npz file. Interrupted, it goes on where it was.
The published CCT-7/3x1 needs `--variant cct_7_3x1_32 --recipe cifar10_300` and an
accelerator.
"""

import argparse

import numpy as np

import cct_keras

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", default="cifar10")
parser.add_argument("--variant", default="cct_2_3x2_32")
parser.add_argument("--recipe", default="small")
parser.add_argument("--epochs", type=int)
parser.add_argument("--out", default="runs/cifar10")
parser.add_argument("--smoke", action="store_true", help="one epoch of random pixels")
arguments = parser.parse_args()

if arguments.smoke:
    pixels = np.random.default_rng(0).integers(0, 256, (120, 32, 32, 3), "uint8")
    arguments.data, arguments.epochs = (pixels, np.arange(120) % 10), 1

run = cct_keras.train(
    arguments.data,
    arguments.variant,
    arguments.recipe,
    epochs=arguments.epochs,
    out=arguments.out,
)
low, high = run.metrics["test"]["top1_ci95"]
print(f"test accuracy: {run.metrics['test']['top1']:.2%} ({low:.2%} to {high:.2%})")
for row in run.metrics["test"]["per_class"]:
    print(f"{row['name']:<12}{row['accuracy']:.1%}")
