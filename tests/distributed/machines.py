"""What the tests of several devices and machines share."""

import socket

import numpy as np

# Whatever draws numbers is off; validation of 15 images splits unevenly.
FIELDS = {
    "recipe": "small",
    "variant": "cvt_2_4_32",
    "batch_size": 32,
    "epochs": 3,
    "crop": "none",
    "flip": 0.0,
    "clip_norm": 0.05,
    "layer_decay": 0.8,
}


def losses(history):
    names = ("loss", "accuracy", "val_loss", "val_accuracy")
    return np.array([[row[name] for name in names] for row in history])


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
