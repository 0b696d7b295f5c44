"""The function that is exported, as a graph of TensorFlow: pixels to probabilities."""

import keras

from cct_keras.exporting.settings import ExportSettings
from cct_keras.layers.preprocessing import Preprocessing


def serving_function(
    body: keras.Model, preprocessing: Preprocessing, settings: ExportSettings
):
    """The function from raw pixels to what the file returns.

    Args:
        body: The model from normalized images to logits.
        preprocessing: The layer before it.
        settings: The choices of the export.

    Returns:
        A `tf.function` with one input `images`, and a tuple of outputs: probabilities
        or logits, and the SeqPool weights if these were asked for.
    """
    import tensorflow as tf

    run_body = _with_maps(body) if settings.maps else lambda x: (body(x),)

    def serve(images):
        if settings.layout == "nchw":
            images = tf.transpose(images, (0, 2, 3, 1))
        logits, *maps = run_body(_prepare(tf.cast(images, tf.float32), preprocessing))
        return (logits if settings.logits else tf.nn.softmax(logits), *maps)

    return tf.function(
        serve,
        input_signature=[_input_spec(preprocessing, settings)],
        autograph=False,
    )


def _prepare(images, preprocessing):
    """Images of any size, or of exactly the right one, which are not cut."""
    import tensorflow as tf

    size = preprocessing.image_size
    if images.shape[1:3] == size:
        return preprocessing(images)
    fitting = (images.shape[0], *size, images.shape[3])
    return tf.cond(
        # The layer knows only in a graph of fixed size that nothing is to be done.
        tf.reduce_all(tf.shape(images)[1:3] == size),
        lambda: preprocessing(tf.ensure_shape(images, fitting)),
        lambda: preprocessing(images),
    )


def _input_spec(preprocessing, settings):
    import tensorflow as tf

    # TensorFlow itself resizes images of any size as training did; no other runtime
    # has that operation.
    any_size = settings.format == "saved_model"
    height, width = (None, None) if any_size else preprocessing.image_size
    shape = (height, width, len(preprocessing.mean))
    if settings.layout == "nchw":
        shape = (shape[2], height, width)
    return tf.TensorSpec((settings.batch, *shape), settings.input_dtype, name="images")


def _with_maps(body):
    """The body with the weights of its SeqPool, `(batch, rows, columns)`."""
    pool = body.get_layer("pool")
    encoder = keras.Model(body.input, pool.input)
    head = keras.Model(pool.output, body.output)
    grid = body.get_layer("tokenizer").compute_grid(body.input_shape)

    def run(images):
        pooled, weights = pool(encoder(images), return_attention_scores=True)
        return head(pooled), keras.ops.reshape(weights, (-1, *grid))

    return run
