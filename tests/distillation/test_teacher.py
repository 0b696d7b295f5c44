"""Any model or function as a teacher."""

import keras
import numpy as np
import pytest
from runs import eager
from teachers import convnet
from teachers import knows_stripes
from teachers import log_softmax
from teachers import named
from teachers import to_numpy

from cct_keras.distillation.teacher import Teacher
from cct_keras.distillation.teacher import teacher_name
from cct_keras.errors import DataError
from cct_keras.recipes.rows import find_recipe


@pytest.fixture(scope="module", autouse=True)
def eagerly():
    with eager():
        yield


@pytest.mark.backend
def test_probabilities_become_logits(some_images):
    """Up to a constant for each image, which no softmax sees."""
    logits = Teacher(convnet(), some_images, ("0", "1"))
    probabilities = Teacher(convnet(activation="softmax"), some_images, ("0", "1"))
    assert (logits.gives_probabilities, probabilities.gives_probabilities) == (
        False,
        True,
    )
    np.testing.assert_allclose(
        probabilities(some_images), log_softmax(logits(some_images)), atol=1e-5
    )


@pytest.mark.backend
def test_classes_in_another_order(some_images):
    model = named(("b", "c", "a"), shape=(None, None, 1))
    logits = Teacher(model, some_images, ("a", "b", "c"))(some_images)
    own = to_numpy(model(some_images, training=False))
    np.testing.assert_allclose(logits, own[:, [2, 0, 1]], atol=1e-5)


@pytest.mark.backend
def test_a_teacher_is_asked_in_the_order_of_the_data(source, some_images):
    recipe = find_recipe("small", variant="tiny_1", batch_size=16)
    plain = source.training_pipeline(recipe, epochs=2)
    taught = Teacher(knows_stripes, some_images, "01").teach(plain)
    for (images, labels), (again, targets) in zip(
        plain.as_numpy_iterator(), taught.as_numpy_iterator(), strict=True
    ):
        np.testing.assert_array_equal(again, images)
        np.testing.assert_array_equal(targets[:, :2], labels)
        np.testing.assert_allclose(targets[:, 2:], knows_stripes(images), rtol=1e-6)


@pytest.mark.parametrize(
    ("teacher", "words"),
    [
        (lambda: convnet(3), r"shape \(12, 2\) for 12 images.*shape \(12, 3\)"),
        (
            lambda: convnet(shape=(8, 8, 1)),
            r"takes images of shape \(8, 8, 1\).*\(16, 16, 1\)",
        ),
        (lambda: convnet(shape=(16, 16, 3)), r"shape \(16, 16, 3\).*\(16, 16, 1\)"),
        (lambda: named(("0", "cat")), "knows 2 classes, but not the 2 .*: 1, cat$"),
        (lambda: named(("0", "1", "2")), "knows 3 classes, but not the 2.*: 2$"),
        (lambda: lambda images: None, "Received: NoneType"),
        (lambda: keras.Sequential(), "one batch of images.*input_shape=None"),
        (lambda: lambda images: images, r"Received: shape \(\d+, 16, 16, 1\)"),
        (
            lambda: lambda images: images[:, 0, :2, 0] * np.nan,
            "must return finite numbers",
        ),
    ],
)
def test_teachers_that_do_not_fit(teacher, words, some_images):
    with pytest.raises(DataError, match=words):
        Teacher(teacher(), some_images, ("0", "1"))


def test_a_model_is_known_by_its_weights():
    assert teacher_name(convnet()) == teacher_name(convnet())
    other = convnet()
    other.layers[-1].bias.assign([1.0, 2.0])
    assert teacher_name(other) != teacher_name(convnet())
    assert teacher_name(knows_stripes) == "knows_stripes"
