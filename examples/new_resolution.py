"""Trains on small images, then moves the model to larger ones.

    python examples/new_resolution.py photos/ [--small 48] [--large 96]

Most of the epochs cost a fraction at the small size; a few at the large size are
enough for the resized positions. The published 384-pixel models were made so from the
224-pixel ones.
"""

import argparse
import pathlib

import cct_keras

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("data", nargs="?", default="digits")
parser.add_argument("--variant", default="cct_2_3x2_32")
parser.add_argument("--small", type=int, default=16)
parser.add_argument("--large", type=int, default=32)
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--out", type=pathlib.Path, default="runs/new_resolution")
parser.add_argument("--smoke", action="store_true", help="one epoch of each")
arguments = parser.parse_args()
if arguments.smoke:
    arguments.epochs = 1

small = cct_keras.train(
    arguments.data,
    arguments.variant,
    epochs=arguments.epochs,
    image_size=arguments.small,
    out=arguments.out / "small",
)
print(f"at {arguments.small} pixels: {small.metrics['test']['top1']:.2%}")

# The folder of the run stands for its model; its positions are resized.
large = cct_keras.train(
    arguments.data,
    weights=arguments.out / "small",
    epochs=max(1, arguments.epochs // 6),
    image_size=arguments.large,
    out=arguments.out,
)
print(f"test accuracy: {large.metrics['test']['top1']:.2%}")
