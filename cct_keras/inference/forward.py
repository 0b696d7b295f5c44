"""The outputs of a model, computed in the fastest way."""

import weakref

import keras
import numpy as np

# Models that have answered for a single image before, each with its compiled function.
_compiled = weakref.WeakKeyDictionary()


def run_on_batch(model: keras.Model, images: np.ndarray) -> np.ndarray:
    """The outputs of a model for a batch of images.

    On TensorFlow a single image takes much of its time between the operations. From
    the second single image on the model therefore runs through XLA, which first takes
    half a second or more to compile it. Larger batches gain nothing from XLA. A model
    that the user has compiled runs as it was compiled.

    Args:
        model: A model with one input and one output.
        images: Its input, a batch of any length.

    Returns:
        Its output.

    Example:

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> run_on_batch(model, np.zeros((3, 4), "float32")).shape
    (3, 2)
    """
    single = len(images) == 1
    compiled = _compiled.get(model) if single else None
    if compiled is not None and compiled.is_current(model):
        return compiled(model, images)
    outputs = keras.ops.convert_to_numpy(model.predict_on_batch(images))
    if single and _gains_from_xla(model):
        _compiled[model] = _CompiledModel(model)
    return outputs


def _gains_from_xla(model):
    tensorflow = keras.config.backend() == "tensorflow"
    return tensorflow and not model.compiled and None not in model.input_shape[1:]


class _CompiledModel:
    def __init__(self, model):
        import tensorflow as tf

        # References are weak, because the dictionary must not keep its keys alive.
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
        """Whether the model is unchanged: Keras drops its own function on a change."""
        function = model.predict_function
        return function is not None and function is self.keras_function()

    def __call__(self, model, images):
        import tensorflow as tf

        if self.function is not None:
            try:
                if self.traced is None:
                    # Calling the trace itself saves the search for it, 0.1 ms a call.
                    self.traced = self.function.get_concrete_function(self.images)
                images = tf.convert_to_tensor(images, self.images.dtype)
                return self.traced(images).numpy()
            except tf.errors.OpError:
                # XLA does not have every operation.
                self.function = None
        return model.predict_on_batch(images)
