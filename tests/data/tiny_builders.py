"""Data sets of a few images that TensorFlow Datasets can prepare."""

import pathlib

import numpy as np


def make_builder(
    tfds,
    class_name,
    *,
    shape=(4, 5, 3),
    splits=("train", "test"),
    version="1.0.0",
    config=None,
    **f,
):
    """A builder class with a name, and with further features of the images."""
    features = {
        "image": tfds.features.Image(shape=shape),
        "label": tfds.features.ClassLabel(names=["cat", "dog"]),
        **f,
    }

    class Tiny(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version(version)
        pkg_dir_path = pathlib.Path(__file__).parent
        name = class_name
        BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=config)] if config else []

        def _info(self):
            return self.dataset_info_from_configs(
                features=tfds.features.FeaturesDict(features),
                supervised_keys=("image", "label"),
            )

        def _split_generators(self, dl_manager):
            return {split: self._generate_examples(split) for split in splits}

        def _generate_examples(self, split):
            for i, (image, label) in enumerate(examples(shape, split)):
                example = {"image": image, "label": label}
                yield i, example | {key: 0 for key in f}

    return Tiny


def examples(shape, split):
    for i in range(6):
        height, width = (shape[0] or 4 + i), (shape[1] or 5 + i)
        pixels = np.full((height, width, shape[2]), 40 * i, np.uint8)
        yield pixels, -1 if split == "test" and i == 5 else i % 2


def register(monkeypatch, tfds, builder_class):
    registry = tfds.core.registered._DATASET_REGISTRY
    monkeypatch.setitem(registry, builder_class.name, builder_class)


def prepare(builder_class, data_dir):
    builder_class(data_dir=data_dir).download_and_prepare()
