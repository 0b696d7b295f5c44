"""Images as a model gets them: sizes, broken files, memory."""

import numpy as np
import pytest
from made_images import arrays
from made_images import batches
from made_images import pixels
from made_images import write_images
from PIL import Image

import cct_keras
from cct_keras.errors import DataError
from cct_keras.recipes.rows import find_recipe

PLAIN = find_recipe(
    "small", crop="none", flip=0, augment="none", label_smoothing=0, batch_size=8
)


def test_broken_files_are_named_and_skipped(tmp_path, capsys):
    write_images(tmp_path / "set", ["cat", "dog"], 20, (40, 40), "jpg")
    (tmp_path / "set/cat/bad.jpg").write_bytes(b"no image")
    whole = (tmp_path / "set/dog/3.jpg").read_bytes()
    (tmp_path / "set/dog/cut.jpg").write_bytes(whole[: len(whole) // 2])
    data = cct_keras.load_data(tmp_path / "set")
    assert sum(len(s) for s in (data.train, data.validation, data.test)) == 40
    notes = " ".join(data.notes)
    assert "bad.jpg" in notes
    assert "cut.jpg" in notes
    assert "bad.jpg" in capsys.readouterr().err


def test_size_of_the_images():
    small = cct_keras.load_data(arrays(40, height=28, width=20))
    assert small.image_size == (28, 20)
    patches = cct_keras.load_data(arrays(40, height=30, width=21), multiple=4)
    assert patches.image_size == (32, 24)
    large = cct_keras.load_data(arrays(40, height=100, width=130))
    assert large.image_size == (64, 64)
    # Room for crops, but not the whole.
    assert large.train.images.array.shape[1:3] == (80, 104)
    given = cct_keras.load_data(arrays(40), image_size=(12, 16))
    assert given.test.images.array.shape[1:] == (12, 16, 3)
    for size in (0, (1, 2, 3), "big"):
        with pytest.raises(DataError, match="`image_size` must be a side"):
            cct_keras.load_data(arrays(40), image_size=size)


def test_gray_as_color_and_color_as_gray():
    color = pixels(40)
    data = cct_keras.load_data((color, np.arange(40) % 4), channels=1, validation=0.5)
    # The same gray as that of a file that is read as gray.
    known = {np.asarray(Image.fromarray(x).convert("L")).tobytes() for x in color}
    assert {image.tobytes() for image in data.train.images} < known
    gray = pixels(40, channels=1)
    data = cct_keras.load_data((gray, np.arange(40) % 4), channels=3)
    assert data.input_shape == (8, 8, 3)
    for image in data.test.images:
        assert (image == image[..., :1]).all()
    with pytest.raises(DataError, match="images of 3 channels cannot be read as"):
        cct_keras.load_data((color, np.arange(40) % 4), channels=2)


def test_more_than_fits_in_memory(tmp_path, monkeypatch, capsys):
    """The batches are those from memory, and a file that breaks later is replaced."""
    write_images(tmp_path / "set", ["a", "b"], 20, (24, 24))
    in_memory = cct_keras.load_data(tmp_path / "set", image_size=24)
    monkeypatch.setattr("cct_keras.data.images.memory_budget", lambda: 1000)
    on_disk = cct_keras.load_data(tmp_path / "set", image_size=24)
    assert any("do not fit in memory" in note for note in on_disk.notes)
    assert on_disk.fingerprint == in_memory.fingerprint
    for data in (in_memory, on_disk):
        assert data.mean == in_memory.mean
    pipelines = [
        (data.training_pipeline(PLAIN, epochs=1), data.pipeline("test", 4))
        for data in (in_memory, on_disk)
    ]
    for one, other in zip(*pipelines, strict=True):
        for (a, la), (b, lb) in zip(batches(one), batches(other), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-3)
            np.testing.assert_array_equal(la, lb)
    store, labels = on_disk.train.images, on_disk.train.labels
    last = np.flatnonzero(labels == 0)[-1]
    store.paths[last].write_bytes(b"gone")
    assert len(batches(on_disk.training_pipeline(PLAIN, epochs=1))) == 3
    assert store.paths[last].name in capsys.readouterr().err
    # Another of its class stands in.
    first = np.flatnonzero(labels == 0)[0]
    np.testing.assert_array_equal(store[last], store[first])
