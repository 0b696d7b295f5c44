"""What a model says about images, by the fastest way."""

import weakref

import keras
import numpy as np

# Models that were asked about a single image before, with a compiled function, or
# `None` where the plain way is the fastest.
_compiled = weakref.WeakKeyDictionary()


def answer(model: keras.Model, images: np.ndarray) -> np.ndarray:
    """Outputs of a model for a batch of images, as `predict` and `evaluate` get them.

    On TensorFlow a single image spends much of its time between the operations. From
    the second one on it goes through XLA, which first takes half a second or more to
    compile the model. Batches gain nothing from it.

    Args:
        model: A model with one input and one output.
        images: What it takes.

    Returns:
        What it says.
    """
    if len(images) == 1 and keras.config.backend() == "tensorflow":
        function = _compiled.get(model)
        if function is not None:
            try:
                return function(images)
            except _beyond_xla():
                _compiled[model] = None
        elif model not in _compiled:
            free = None in model.input_shape[1:]
            _compiled[model] = None if free or model.jit_compile else _compile(model)
    return keras.ops.convert_to_numpy(model.predict_on_batch(images))


def _compile(model):
    import tensorflow as tf

    # The dictionary must not keep its own keys alive.
    reference = weakref.ref(model)
    function = tf.function(
        lambda images: reference()(images, training=False),
        autograph=False,
        jit_compile=True,
    )
    return lambda images: function(tf.convert_to_tensor(images)).numpy()


def _beyond_xla():
    import tensorflow as tf

    return tf.errors.InvalidArgumentError, tf.errors.UnimplementedError
