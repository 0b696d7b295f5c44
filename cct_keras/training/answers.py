"""What a model says about images, by the fastest way."""

import weakref

import keras
import numpy as np

# Of models that were asked about a single image before.
_compiled = weakref.WeakKeyDictionary()


def answer(model: keras.Model, images: np.ndarray) -> np.ndarray:
    """Outputs of a model for a batch of images, as `predict` and `evaluate` get them.

    On TensorFlow a single image spends much of its time between the operations. From
    the second one on it goes through XLA, which first takes half a second or more to
    compile the model. Batches gain nothing from it. A model that was compiled by
    `compile` stays as it was.

    Args:
        model: A model with one input and one output.
        images: What it takes.

    Returns:
        What it says.
    """
    single = len(images) == 1 and None not in model.input_shape[1:]
    if not single or model.compiled or keras.config.backend() != "tensorflow":
        return keras.ops.convert_to_numpy(model.predict_on_batch(images))
    compiled = _compiled.get(model)
    if compiled is not None and compiled.is_current(model):
        return compiled(model, images)
    answers = model.predict_on_batch(images)
    _compiled[model] = _Compiled(model)
    return answers


class _Compiled:
    def __init__(self, model):
        import tensorflow as tf

        # Weak, as the dictionary must not keep its own keys alive.
        self.keras_function = weakref.ref(model.predict_function)
        reference = weakref.ref(model)
        self.function = tf.function(
            lambda images: reference()(images, training=False),
            autograph=False,
            jit_compile=True,
        )

    def is_current(self, model):
        """Keras forgets its own function when it changes a model."""
        function = model.predict_function
        return function is not None and function is self.keras_function()

    def __call__(self, model, images):
        import tensorflow as tf

        if self.function is not None:
            try:
                return self.function(tf.convert_to_tensor(images)).numpy()
            except tf.errors.OpError:
                # XLA does not know every operation.
                self.function = None
        return model.predict_on_batch(images)
