"""What the notes of a data set say."""

from made_images import arrays
from made_images import write_images

import cct_keras


def test_duplicates_across_splits_are_reported():
    x, y = arrays(40)
    data = cct_keras.load_data(((x, y), (x[:7], y[:7])), validation=0.25)
    assert any("of 7 images of test are also in train" in note for note in data.notes)
    clean = cct_keras.load_data(((x, y), arrays(8, seed=9)))
    assert not any("also in" in note for note in clean.notes)


def test_jpeg_cifar_is_recognized(tmp_path):
    names = cct_keras.class_names("cifar10")
    for seed, split in enumerate(("train", "test")):
        write_images(tmp_path / "j" / split, names, 3, (32, 32), "jpg", seed)
        write_images(tmp_path / "p" / split, names, 3, (32, 32), "png", seed)
    data = cct_keras.load_data(tmp_path / "j", validation=0.3)
    assert any("CIFAR-10 (JPEG)" in note for note in data.notes)
    data = cct_keras.load_data(tmp_path / "p", validation=0.3)
    assert not any("JPEG" in note for note in data.notes)
