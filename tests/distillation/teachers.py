"""Teachers for the tests: one in closed form, and small convnets."""

import keras
import numpy as np

import cct_keras


def knows_stripes(images):
    """A teacher in closed form: which way does the brightness vary?"""
    across = images.mean(1).std(1)[:, 0]
    down = images.mean(2).std(1)[:, 0]
    return np.stack([across, down], axis=-1) / 10


def convnet(classes=2, shape=(16, 16, 1), activation=None, preprocessing=None):
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [
            keras.Input(shape),
            preprocessing or keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(4, 3, strides=2, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(classes, activation=activation),
        ]
    )


def named(names, **arguments):
    layer = cct_keras.layers.Preprocessing(
        (16, 16), mean=(0.4,), std=(0.2,), class_names=names
    )
    return convnet(len(names), preprocessing=layer, **arguments)


def to_numpy(x):
    return keras.ops.convert_to_numpy(x)


def log_softmax(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def small_deit(variant, **arguments):
    """A distilled DeiT in miniature, whatever the variant's name."""
    return cct_keras.DeiT(
        **arguments,
        distilled=True,
        patch_size=4,
        embedding_dim=16,
        num_layers=1,
        num_heads=2,
        mlp_ratio=1,
    )
