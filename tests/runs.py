"""What tests need to train within a second or two."""

import contextlib

import keras
import numpy as np

from cct_keras.models.variants import SIZES
from cct_keras.models.variants import VARIANTS


@contextlib.contextmanager
def tiny_variants():
    """Adds `tiny_1` and `tiny_2`: CVT of one and of two narrow blocks."""
    names = {f"tiny_{layers}": layers for layers in (1, 2)}
    for name, layers in names.items():
        SIZES[name] = SIZES[2]._replace(num_layers=layers, embedding_dim=16)
        VARIANTS[name] = VARIANTS["cvt_2_4_32"]._replace(size=name)
    try:
        yield
    finally:
        for name in names:
            del SIZES[name], VARIANTS[name]


@contextlib.contextmanager
def eager():
    """Lets TensorFlow run without graphs: a few small steps are faster than a trace."""
    if keras.config.backend() != "tensorflow":
        yield
        return
    assert "run_eagerly" not in vars(keras.Model)
    keras.Model.run_eagerly = property(lambda model: True, lambda model, value: None)
    try:
        yield
    finally:
        del keras.Model.run_eagerly


def no_report(path, **_):
    """In place of `write_report`, whose figures take seconds."""
    path.write_text("report")


class StopAfter(keras.callbacks.Callback):
    """As a kill at the end of an epoch, without a process of its own."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_epoch_end(self, epoch, logs=None):
        if epoch + 1 == self.epoch:
            raise KeyboardInterrupt


def without_times(history):
    return [
        {k: v for k, v in row.items() if k not in ("seconds", "images_per_second")}
        for row in history
    ]


def weights_of(model):
    return {w.path: keras.ops.convert_to_numpy(w) for w in model.weights}


def assert_same_weights(model, other):
    for a, b in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def noise_images(count, classes=3, side=24):
    """Other images than stripes: larger, in color, of more classes."""
    generator = np.random.default_rng(5)
    pixels = generator.integers(0, 256, (count, side, side, 3)).astype("uint8")
    return pixels, np.arange(count) % classes
