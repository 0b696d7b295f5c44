"""Single images by the fast way: the same outputs, whatever the model."""

import gc
import weakref

import keras
import numpy as np
import pytest

import cct_keras
from cct_keras.inference import forward
from cct_keras.inference.forward import run_on_batch

pytestmark = pytest.mark.backend


def small(shape=(8, 8, 3)):
    return cct_keras.CVT(3, shape, num_layers=1, num_heads=2, embedding_dim=8)


def images(count):
    return np.random.default_rng(count).standard_normal((count, 8, 8, 3), "float32")


def test_one_by_one_is_as_all_together():
    model = small()
    batch = images(5)
    expected = keras.ops.convert_to_numpy(model(batch, training=False))
    np.testing.assert_allclose(run_on_batch(model, batch), expected, atol=1e-6)
    for image, row in zip(batch, expected, strict=True):
        found = run_on_batch(model, image[None])
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, row[None], atol=1e-6)


def test_it_sees_new_weights():
    model = small()
    image = images(1)
    for _ in range(3):
        model.set_weights([2 * weight + 0.1 for weight in model.get_weights()])
        expected = keras.ops.convert_to_numpy(model(image, training=False))
        np.testing.assert_allclose(run_on_batch(model, image), expected, atol=1e-6)


def test_a_model_is_freed():
    model = small()
    for _ in range(3):
        run_on_batch(model, images(1))
    reference = weakref.ref(model)
    del model
    keras.utils.clear_session(free_memory=False)
    gc.collect()
    assert reference() is None


only_tensorflow = pytest.mark.skipif(
    keras.config.backend() != "tensorflow", reason="XLA is its choice there"
)


@only_tensorflow
def test_single_images_are_compiled_unless_the_user_has_compiled():
    model = small()
    run_on_batch(model, images(2))
    assert model not in forward._compiled
    for _ in range(2):
        run_on_batch(model, images(1))
    assert forward._compiled[model].function.experimental_get_tracing_count() == 1
    decided = small()
    decided.compile(jit_compile=False)
    run_on_batch(decided, images(1))
    assert decided not in forward._compiled


@pytest.mark.integration
@only_tensorflow
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_a_changed_model_is_compiled_anew():
    model = small()
    for _ in range(2):
        run_on_batch(model, images(1))
    model.quantize("int8")
    head = model.get_layer("head")
    head.bias.assign(head.bias + 5.0)
    for _ in range(3):
        found = run_on_batch(model, images(1))
        np.testing.assert_allclose(found, model.predict_on_batch(images(1)), atol=1e-5)


@only_tensorflow
def test_what_xla_cannot_compile_is_answered_all_the_same():
    import tensorflow as tf

    class Python(keras.layers.Layer):
        def call(self, x):
            doubled = tf.numpy_function(lambda x: 2 * x, (x,), tf.float32)
            return tf.ensure_shape(doubled, x.shape)

    model = keras.Sequential([keras.Input((8, 8, 3)), Python()])
    for _ in range(3):
        np.testing.assert_array_equal(run_on_batch(model, images(1)), 2 * images(1))
    assert forward._compiled[model].function is None
