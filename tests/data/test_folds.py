"""Cross-validation: every image is tested in exactly one fold."""

import numpy as np
import pytest
from made_images import arrays
from made_images import pixels
from made_images import write_images

import cct_keras
from cct_keras.data.dataset import load_evaluation_data
from cct_keras.data.folds import load_folds
from cct_keras.errors import DataError
from cct_keras.runtime.metadata import Metadata

MODEL = {"image_size": (8, 8), "channels": 3, "crop": 1.0}
SPLITS = ("train", "validation", "test")


def trained_on(data):
    return {"name": data.name, "fingerprint": data.fingerprint, "cut": data.cut}


def contents(split):
    return [image.tobytes() for image in split.images]


def test_the_folds_divide_all_images_class_by_class():
    x, y = pixels(90), np.repeat([0, 1, 2], [50, 30, 10])
    label_of = {image.tobytes(): label for image, label in zip(x, y, strict=True)}
    everything = sorted(image.tobytes() for image in x)
    folds = load_folds((x, y), 5, seed=3)
    datasets = [folds.fold(number) for number in range(1, 6)]
    tested = [content for data in datasets for content in contents(data.test)]
    assert sorted(tested) == everything
    for data in datasets:
        parts = [contents(getattr(data, split)) for split in SPLITS]
        assert sorted(content for part in parts for content in part) == everything
        assert np.bincount(data.test.labels).tolist() == [10, 6, 2]
        assert len(data.validation) == 7
        for split in SPLITS:
            for content, label in zip(
                contents(getattr(data, split)), getattr(data, split).labels, strict=True
            ):
                assert label == label_of[content]
    assert len({data.fingerprint for data in datasets}) == 5
    assert len({data.test_fingerprint for data in datasets}) == 5
    assert "fold 2 of 5: 18 of 90 images are tested" in datasets[1].notes[-1]
    again = load_folds((x, y), 5, seed=3).fold(4)
    other = load_folds((x, y), 5, seed=4).fold(4)
    assert datasets[3].fingerprint == again.fingerprint != other.fingerprint


def test_the_mean_is_that_of_the_training_images_of_the_fold():
    x, y = arrays(60)
    data = load_folds((x, y), 3).fold(2)
    expected = data.train.images.array.reshape(-1, 3).mean(0) / 255
    np.testing.assert_allclose(data.mean, expected, atol=1e-4)


def test_a_test_split_of_the_source_is_left_out():
    train, test = arrays(40), arrays(12, seed=1)
    folds = load_folds((train, test), 4)
    datasets = [folds.fold(number) for number in range(1, 5)]
    tested = [content for data in datasets for content in contents(data.test)]
    assert sorted(tested) == sorted(image.tobytes() for image in train[0])
    note = "has a test split of its own: its 12 images are left out"
    assert any(note in line for line in datasets[0].notes)
    data = datasets[2]
    for split in SPLITS:
        found = load_evaluation_data(
            (train, test), split, **MODEL, trained_on=trained_on(data)
        )
        assert contents(found.test) == contents(getattr(data, split))
    found = load_evaluation_data(
        (train, test), "test", **MODEL, trained_on=trained_on(data)
    )
    assert "the test split is that of fold 3 of 4" in found.notes[-1]
    # A model that was trained on other images sees the split of the source.
    strange = load_evaluation_data(
        (arrays(40, seed=2), test), "test", **MODEL, trained_on=trained_on(data)
    )
    assert contents(strange.test) == [image.tobytes() for image in test[0]]


def test_files_are_read_once_and_broken_ones_left_out(tmp_path, capsys, monkeypatch):
    from cct_keras.data import images

    write_images(tmp_path / "set", ["a", "b"], 20, (100, 80))
    (tmp_path / "set/a/bad.png").write_bytes(b"no image")
    half = (tmp_path / "set/b").iterdir().__next__()
    half.write_bytes(half.read_bytes()[:-200])
    read = []

    def count(path, *arguments, **options):
        read.append(path)
        return original(path, *arguments, **options)

    original = images.read_image
    monkeypatch.setattr(images, "read_image", count)
    folds = load_folds(tmp_path / "set", 4, default_size=8)
    # Once as they are trained on, and once as they are tested.
    assert max(read.count(path) for path in set(read)) == 2
    datasets = [folds.fold(number) for number in range(1, 5)]
    assert len(read) == len(folds.readable.splits["train"]) * 2 - 1
    files = [file for data in datasets for file in data.test.files]
    assert len(files) == len(set(files)) == 39
    assert half not in files
    data = datasets[0]
    assert data.train.images[0].shape == (12, 10, 3)
    assert data.test.images[0].shape == (8, 8, 3)
    assert not set(data.train.files) & set(data.test.files)
    found = load_evaluation_data(
        tmp_path / "set", "test", **MODEL, trained_on=trained_on(data)
    )
    assert found.test.files == data.test.files
    np.testing.assert_array_equal(found.test.images.array, data.test.images.array)
    capsys.readouterr()


@pytest.mark.parametrize("folds", [-1, 0, 1, 6])
def test_folds_need_images_of_every_class(folds):
    source = (pixels(45), np.repeat([0, 1], [40, 5]))
    message = f"smallest class, 5 of '1' in .*Received: folds={folds}$"
    with pytest.raises(DataError, match=message):
        load_folds(source, folds)


def test_a_file_tells_of_its_fold_in_a_form_that_is_checked():
    cut = {"validation": 0.1, "test": 1 / 3, "seed": 0, "folds": 3, "fold": 1}
    known = {"name": "x", "fingerprint": "0", "cut": cut}
    assert load_folds("digits", 3).fold(1).cut == cut
    values = {
        "package": "cct_keras",
        "class_names": ["a", "b"],
        "image_size": [8, 8],
        "channels": 3,
        "mean": [0.5] * 3,
        "std": [0.5] * 3,
    }
    found = Metadata.from_dict({**values, "trained_on": known})
    assert found.trained_on["cut"]["folds"] == 3
    for wrong in ({"fold": 0}, {"fold": 4}, {"folds": None}, {"fold": 1.5}):
        broken = {**known, "cut": {**cut, **wrong}}
        with pytest.raises(DataError, match="trained_on"):
            Metadata.from_dict({**values, "trained_on": broken})


def test_different_seeds_have_one_test_split_and_tell_it():
    x, y = arrays(60)
    data = cct_keras.load_data((x, y), seed=1)
    assert data.test_fingerprint != data.fingerprint
    assert data.test_fingerprint == cct_keras.load_data((x, y), seed=1).test_fingerprint
    assert data.test_fingerprint != cct_keras.load_data((x, y), seed=2).test_fingerprint
    # Other images to train on do not change the images of the test.
    test = arrays(12, seed=5)
    few, many = (cct_keras.load_data((arrays(n), test)) for n in (30, 40))
    assert few.test_fingerprint == many.test_fingerprint
    assert few.fingerprint != many.fingerprint
