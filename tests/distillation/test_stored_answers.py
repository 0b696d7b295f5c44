"""Logits that are computed once: for which images, for whom, and what a kill leaves."""

import numpy as np
import pytest
from teachers import knows_stripes

from cct_keras.distillation.stored_answers import StoredAnswers
from cct_keras.distillation.teacher import Teacher
from cct_keras.recipes.rows import find_recipe

PLAIN = {"variant": "tiny_1", "batch_size": 32, "crop": "none"}
# New images in every epoch.
RANDOM = {**PLAIN, "mixup": 0.5, "erase_prob": 0.3}


class Counting:
    """A function that knows how often it was asked."""

    def __init__(self, stop=None):
        self.calls = 0
        self.stop = stop

    def __call__(self, images):
        self.calls += 1
        if self.calls == self.stop:
            raise KeyboardInterrupt
        return knows_stripes(images)


def stored_files(tmp_path):
    return sorted(p for p in (tmp_path / "home").rglob("teachers/*/*") if p.suffix)


def store(data, images, source, seed=0, **fields):
    """The answers that a run would find or make."""
    fields = {**PLAIN, "epochs": 5, "teacher_views": 2, **fields}
    recipe = find_recipe("small", teacher="x", **fields)
    teacher = Teacher(source, images, data.class_names)
    return StoredAnswers(teacher, data, recipe, seed=seed, say=lambda text: None)


def test_a_big_teacher_costs_one_pass(source, some_images):
    """Two tries beside it: does it fit, and are these its answers?"""
    steps = len(source.train) // 32
    teacher = Counting()
    store(source, some_images, teacher)
    assert teacher.calls == 1 + 2 * steps
    # What the student is and how it learns does not matter,
    teacher.calls = 0
    other = {"variant": "tiny_2", "lr": 1e-4, "distill": "soft", "epochs": 9}
    store(source, some_images, teacher, **other)
    assert teacher.calls == 2
    # but what the teacher sees does.
    for fields in ({"seed": 1}, {"erase_prob": 0.1}, {"teacher_views": 1}):
        teacher.calls = 0
        store(source, some_images, teacher, **fields)
        assert teacher.calls == 1 + fields.get("teacher_views", 2) * steps


def test_view_sets_repeat(source):
    fields = {"teacher": "x", "teacher_views": 2, "epochs": 5}
    recipe = find_recipe("small", **RANDOM, **fields)
    batches = list(source.training_pipeline(recipe).as_numpy_iterator())
    steps = len(batches) // 5
    for number, (images, labels) in enumerate(batches):
        epoch, step = divmod(number, steps)
        again = batches[epoch % 2 * steps + step]
        np.testing.assert_array_equal(images, again[0])
        np.testing.assert_array_equal(labels, again[1])
    assert not np.array_equal(batches[0][0], batches[steps][0])
    later = source.training_pipeline(recipe, first_epoch=3)
    first = next(later.as_numpy_iterator())[0]
    np.testing.assert_array_equal(first, batches[steps][0])


def test_stored_answers_go_with_their_images(source, some_images):
    """From the middle of a repeated run on, and compared with the function itself."""
    answers = store(source, some_images, knows_stripes, **RANDOM)
    fields = {"teacher": "x", "teacher_views": 2, "epochs": 5}
    recipe = find_recipe("small", **RANDOM, **fields)
    taught = answers.teach(source.training_pipeline(recipe, first_epoch=3), 3)
    batches = list(taught.as_numpy_iterator())
    assert len(batches) == 2 * (len(source.train) // 32)
    for images, targets in batches:
        np.testing.assert_allclose(targets[:, 2:], knows_stripes(images), rtol=1e-5)


def test_half_a_pass_leaves_nothing(source, some_images, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        store(source, some_images, Counting(stop=3))
    assert stored_files(tmp_path) == []
    # What a kill would have left.
    [folder] = (tmp_path / "home").rglob("teachers/*")
    (folder / ".cct_keras-half.npy").write_bytes(b"half")
    store(source, some_images, Counting())
    assert [path.name for path in stored_files(tmp_path)] == ["logits.npy"]


@pytest.mark.parametrize(
    "damage", [lambda x: x[:-9], lambda x: b"", lambda x: b"x" * 99]
)
def test_a_broken_file_is_written_anew(damage, source, some_images):
    path = store(source, some_images, knows_stripes).path
    content = path.read_bytes()
    path.write_bytes(damage(content))
    store(source, some_images, knows_stripes)
    assert path.read_bytes() == content


def test_functions_of_one_name_are_told_apart(source, some_images):
    def teacher(images):
        return sign * knows_stripes(images)

    sign = 1
    first = store(source, some_images, teacher)
    sign = -1
    second = store(source, some_images, teacher)
    assert second.path == first.path
    assert np.load(second.path).max() <= 0


def test_a_full_disk_is_one_line(source, some_images, monkeypatch):
    def full(file, header):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array_header_1_0", full)
    with pytest.raises(RuntimeError, match="No space left.*teacher_views=0"):
        store(source, some_images, knows_stripes)
