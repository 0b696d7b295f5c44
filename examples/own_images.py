"""Trains on your own folder of images, and asks the model about some of them.

    python examples/own_images.py photos/ [--image-size 64]

The folder holds one folder a class, `photos/cat/*.jpg`, or is split already,
`photos/train/cat/*.jpg` and `photos/test/cat/*.jpg`.
"""

import argparse
import pathlib
import tempfile

import numpy as np
from PIL import Image
from PIL import ImageDraw

import cct_keras

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", nargs="?", type=pathlib.Path)
parser.add_argument("--image-size", type=int)
parser.add_argument("--epochs", type=int)
parser.add_argument("--out", type=pathlib.Path, default="runs/own_images")
parser.add_argument("--smoke", action="store_true", help="draw a few images first")
arguments = parser.parse_args()


def draw_shapes(folder: pathlib.Path):
    """Circles and squares of many sizes and colors."""
    generator = np.random.default_rng(0)
    for name in ("circle", "square"):
        (folder / name).mkdir(parents=True)
        for number in range(40):
            width, height = generator.integers(60, 100, 2).tolist()
            color = tuple(generator.integers(80, 256, 3).tolist())
            image = Image.new("RGB", (width, height))
            pen = ImageDraw.Draw(image)
            draw = pen.ellipse if name == "circle" else pen.rectangle
            draw((10, 10, 50, 50), fill=color)
            image.save(folder / name / f"{number}.jpg")


if arguments.smoke:
    arguments.folder = pathlib.Path(tempfile.mkdtemp()) / "shapes"
    draw_shapes(arguments.folder)
    arguments.epochs, arguments.image_size = 1, 32
elif arguments.folder is None:
    parser.error("give a folder of images")

run = cct_keras.train(
    arguments.folder,
    epochs=arguments.epochs,
    image_size=arguments.image_size,
    out=arguments.out,
)
print(f"test accuracy: {run.metrics['test']['top1']:.2%}")

# The file alone is enough: it resizes, normalizes and knows the names.
pictures = sorted(arguments.folder.rglob("*.jpg"))[:3]
for row in cct_keras.predict(arguments.out / "model.keras", pictures, top=2):
    answers = ", ".join(f"{a['name']} {a['probability']:.0%}" for a in row["classes"])
    print(f"{row['image']}: {answers}")
