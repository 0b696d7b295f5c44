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
    single = len(images) == 1
    compiled = _compiled.get(model) if single else None
    if compiled is not None and compiled.is_current(model):
        return compiled(model, images)
    answers = keras.ops.convert_to_numpy(model.predict_on_batch(images))
    if single and _gains(model):
        _compiled[model] = _Compiled(model)
    return answers


def _gains(model):
    tensorflow = keras.config.backend() == "tensorflow"
    return tensorflow and not model.compiled and None not in model.input_shape[1:]


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
        self.images = tf.TensorSpec((1, *model.input_shape[1:]), model.inputs[0].dtype)
        self.traced = None

    def is_current(self, model):
        """Keras forgets its own function when it changes a model."""
        function = model.predict_function
        return function is not None and function is self.keras_function()

    def __call__(self, model, images):
        import tensorflow as tf

        if self.function is not None:
            try:
                if self.traced is None:
                    # Called without the search for a trace, which takes 0.1 ms.
                    self.traced = self.function.get_concrete_function(self.images)
                images = tf.convert_to_tensor(images, self.images.dtype)
                return self.traced(images).numpy()
            except tf.errors.OpError:
                # XLA does not know every operation.
                self.function = None
        return model.predict_on_batch(images)
