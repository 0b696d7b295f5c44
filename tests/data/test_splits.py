"""Splits that a source lacks are cut off its training images."""

import numpy as np
import pytest
from made_images import arrays
from made_images import pixels
from made_images import write_images

import cct_keras
from cct_keras.data.dataset import load_evaluation_data
from cct_keras.data.splits import stratified_choice
from cct_keras.errors import DataError


def test_cut_splits_keep_the_classes_and_the_seed():
    x, y = pixels(400), np.repeat([0, 1, 2], [300, 80, 20])
    data = cct_keras.load_data((x, y), seed=3)
    assert [len(s) for s in (data.train, data.validation, data.test)] == [306, 34, 60]
    np.testing.assert_array_equal(np.bincount(data.test.labels), [45, 12, 3])
    np.testing.assert_array_equal(np.bincount(data.validation.labels), [25, 7, 2])
    again = cct_keras.load_data((x, y), seed=3)
    other = cct_keras.load_data((x, y), seed=4)
    assert data.fingerprint == again.fingerprint != other.fingerprint
    assert any("no validation split: 34 of 340" in note for note in data.notes)
    parts = [data.train, data.validation, data.test]
    images = {image.tobytes() for part in parts for image in part.images}
    assert len(images) == 400


def test_many_small_classes():
    data = cct_keras.load_data((pixels(150), np.repeat(np.arange(50), 3)))
    assert [len(s) for s in (data.train, data.validation, data.test)] == [115, 13, 22]
    assert len(np.unique(data.train.labels)) == 50


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_the_only_image_of_a_class_is_never_chosen(share):
    labels = np.repeat(np.arange(40), [1] * 20 + [5] * 20)
    chosen = stratified_choice(labels, share, seed=1)
    assert labels[chosen].min() >= 20
    rest = np.bincount(labels[~chosen], minlength=40)
    assert rest.min() >= 1


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5])
def test_a_share_is_between_0_and_1(share):
    with pytest.raises(DataError, match=f"`validation` must be .*validation={share}"):
        cct_keras.load_data((arrays(40), arrays(8)), validation=share)


# === The split that a model is measured on ===

MODEL = {"image_size": (8, 8), "channels": 3, "crop": 1.0}


def trained_on(data):
    return {"name": data.name, "fingerprint": data.fingerprint, "cut": data.cut}


def test_evaluation_cuts_as_training_did():
    source = arrays(60)
    data = cct_keras.load_data(source, validation=0.2, test=0.3, seed=7)
    for split in ("train", "validation", "test"):
        found = load_evaluation_data(
            source, split, **MODEL, trained_on=trained_on(data)
        )
        expected = getattr(data, split)
        np.testing.assert_array_equal(found.test.images.array, expected.images.array)
        np.testing.assert_array_equal(found.test.labels, expected.labels)
        assert found.notes == ()


def test_cuts_of_too_few_images_are_not_made():
    few = cct_keras.load_data(arrays(40), smallest_cut=30)
    assert [len(few.train), len(few.validation), len(few.test)] == [40, 0, 0]
    assert few.notes == ("no test split, and 40 images are too few to cut one off",)
    assert few.test.images.array.shape == (0, 8, 8, 3)
    found = load_evaluation_data(
        arrays(40), "test", **MODEL, trained_on=trained_on(few)
    )
    assert len(found.test) == 40
    assert found.notes == (
        "no test split: all 40 images are measured, with those that the model was "
        "trained on",
    )
    enough = cct_keras.load_data(arrays(200), smallest_cut=30)
    assert [len(enough.train), len(enough.validation), len(enough.test)] == [170, 0, 30]
    found = load_evaluation_data(
        arrays(200), "test", **MODEL, trained_on=trained_on(enough)
    )
    np.testing.assert_array_equal(found.test.images.array, enough.test.images.array)


def test_evaluation_on_other_data_takes_all_images():
    data = cct_keras.load_data(arrays(60))
    for known in (None, trained_on(data)):
        found = load_evaluation_data(
            arrays(30, seed=1), "test", **MODEL, trained_on=known
        )
        assert len(found.test) == 30
        assert found.notes == ("no test split: all 30 images are measured",)


def test_evaluation_takes_the_split_that_the_source_has():
    source = (arrays(40), arrays(12, seed=1))
    found = load_evaluation_data(source, "test", **MODEL)
    np.testing.assert_array_equal(found.test.images.array, source[1][0])
    # A cut that these images do not allow shows that the model saw other images.
    known = {"cut": {"validation": 0.001, "test": 0.1, "seed": 0}, "fingerprint": ""}
    found = load_evaluation_data(source, "train", **MODEL, trained_on=known)
    assert len(found.train) == 40


def test_broken_files_do_not_hide_what_training_had_cut_off(tmp_path, capsys):
    write_images(tmp_path / "set", ["a", "b"], 20, (8, 8))
    (tmp_path / "set/a/bad.png").write_bytes(b"no image")
    data = cct_keras.load_data(tmp_path / "set")
    capsys.readouterr()
    found = load_evaluation_data(
        tmp_path / "set", "test", **MODEL, trained_on=trained_on(data)
    )
    np.testing.assert_array_equal(found.test.images.array, data.test.images.array)
    assert capsys.readouterr().err.count("bad.png") == 1
