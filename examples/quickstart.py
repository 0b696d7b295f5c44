"""Trains a small CCT on scikit-learn's handwritten digits: no download, one minute.

python examples/quickstart.py [--epochs 50] [--out runs/quickstart]
"""

import argparse

import cct_keras

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=50)
parser.add_argument("--out", default="runs/quickstart")
parser.add_argument("--smoke", action="store_true", help="one epoch")
arguments = parser.parse_args()

# 1,797 images of 8 x 8 pixels. Any folder of images, .npz file, pair of arrays or
# name of tensorflow-datasets would do as well.
data = cct_keras.load_data("digits")

# A plain Keras model, trained by compile + fit as the recipe says.
run = cct_keras.train(
    data,
    variant="cct_2_3x2_32",
    recipe="small",
    epochs=1 if arguments.smoke else arguments.epochs,
    out=arguments.out,
)
print(f"test accuracy: {run.metrics['test']['top1']:.2%}")

# The same model, trained for 50 epochs, comes with the package.
shipped = cct_keras.evaluate("cct_2_3x2_32.digits", data)
print(f"that of the shipped weights: {shipped['top1']:.2%}")

# The model takes raw pixels; what it needs to know about them is inside.
images, labels = data.test.images[:5], data.test.labels[:5]
for answer, label in zip(cct_keras.predict(run.model, images, top=1), labels):
    best = answer["classes"][0]
    print(f"{label}: {best['name']} ({best['probability']:.0%})")
