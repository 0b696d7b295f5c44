"""Trains a small CCT on scikit-learn's handwritten digits: no download, one minute.

python examples/quickstart.py [--epochs 30] [--out digits.keras]
"""

import argparse

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from cct_keras import CCT

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--out", default="digits.keras")
arguments = parser.parse_args()
keras.utils.set_random_seed(0)

# 1,797 images of 8x8 pixels with values from 0 to 16, enlarged to 16x16.
digits = load_digits()
images = keras.ops.image.resize(digits.images[..., None] / 16, (16, 16))
images = keras.ops.convert_to_numpy(images).astype("float32")
x_train, x_test, y_train, y_test = train_test_split(
    images, digits.target, test_size=0.2, stratify=digits.target, random_state=0
)

model = CCT(
    num_classes=10,
    input_shape=(16, 16, 1),
    num_layers=2,
    num_heads=2,
    mlp_ratio=1,
    embedding_dim=128,
    num_conv_layers=2,
    kernel_size=3,
)
steps = arguments.epochs * int(np.ceil(len(x_train) / 64))
schedule = keras.optimizers.schedules.CosineDecay(
    0.0, steps, warmup_target=1e-3, warmup_steps=steps // 10
)
model.compile(
    optimizer=keras.optimizers.AdamW(schedule, weight_decay=0.05),
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
)
model.fit(x_train, y_train, batch_size=64, epochs=arguments.epochs)

_, accuracy = model.evaluate(x_test, y_test, verbose=0)
print(f"test accuracy: {accuracy:.2%}")
model.save(arguments.out)
print(f"saved: {arguments.out}")
