"""Pieces of a training step against those of Keras, on TensorFlow.

    python benchmarks/operations.py

Forward and backward of what stands between the matrix products of CCT-7/3x1 at a batch
of 32, and one update of CCT-14/7x2's weights by AdamW; best of several rounds, in turn.
Last, how long a short pipeline takes to end, with and without tf.data's own tuning.
"""

import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import tensorflow as tf

import cct_keras
from cct_keras.data.pipeline import untuned
from cct_keras.layers import LayerNormalization
from cct_keras.layers.feed_forward import exact_gelu
from cct_keras.layers.keep_mask import keep_mask
from cct_keras.training.fused_adam import FusedAdamW

ROUNDS = 15
RATE = 0.1


def main():
    """Measures and prints a table."""
    tokens = tf.random.normal((32, 256, 256))
    hidden = tf.random.normal((32 * 256, 512))
    weights = tf.random.normal((32, 4, 256, 256))
    value = tf.random.normal((32, 4, 256, 64))
    pieces = {
        "layer normalisation": (
            differentiated(keras.layers.LayerNormalization(epsilon=1e-5), tokens),
            differentiated(LayerNormalization(), tokens),
        ),
        "GELU": (
            differentiated(lambda x: keras.ops.gelu(x, approximate=False), hidden),
            differentiated(lambda x: exact_gelu(x, training=True), hidden),
        ),
        "softmax, dropout, product with the values": (
            differentiated(stock_attention(), weights, value),
            differentiated(our_attention(), weights, value),
        ),
        "AdamW, 22 million weights": (
            update(keras.optimizers.AdamW),
            update(FusedAdamW),
        ),
        "a pipeline of 700 ms": (pipeline(lambda x: x), pipeline(untuned)),
    }
    print("| | Keras, TensorFlow | here |")
    print("|---|---|---|")
    for name, (stock, ours) in pieces.items():
        best = [float("inf")] * 2
        for _ in range(3 if "pipeline" in name else ROUNDS):
            for i, work in enumerate((stock, ours)):
                start = time.perf_counter()
                work()
                best[i] = min(best[i], time.perf_counter() - start)
        print(f"| {name} | {1000 * best[0]:.1f} ms | {1000 * best[1]:.1f} ms |")


def differentiated(function, *inputs):
    """A traced function that runs another one forward and backward."""
    weights = []
    if isinstance(function, keras.Layer):
        layer = function
        layer.build(inputs[0].shape)
        weights = [weight.value for weight in layer.trainable_weights]

        def function(x):
            return layer(x, training=True)

    @tf.function(autograph=False)
    def run():
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = function(*inputs)
        return output, tape.gradient(output, [*inputs, *weights], output)

    run()
    return run


def stock_attention():
    """As a model in stock Keras layers has it."""
    dropout = keras.layers.Dropout(RATE)

    def attend(scores, value):
        weights = keras.ops.softmax(scores)
        return keras.ops.matmul(dropout(weights, training=True), value)

    return attend


def our_attention():
    """As `MultiHeadSelfAttention` has it."""
    generator = keras.random.SeedGenerator(0)

    def attend(scores, value):
        weights = keras.ops.softmax(scores)
        keep = keep_mask(weights.shape, RATE, generator)
        product = keras.ops.matmul(keras.ops.where(keep, weights, 0.0), value)
        return product * (1.0 / (1.0 - RATE))

    return attend


def update(optimizer):
    """One step of an optimizer on CCT-14/7x2."""
    weights = cct_keras.create_model("cct_14_7x2_224").trainable_variables
    gradients = [tf.random.normal(weight.shape) for weight in weights]
    optimizer = optimizer(1e-3, weight_decay=0.06)
    optimizer.build(weights)
    run = tf.function(lambda: optimizer.apply(gradients, weights), autograph=False)
    run()
    return run


def pipeline(options):
    """Seventy slow batches, to the very end."""

    def slow(x):
        return tf.py_function(lambda x: time.sleep(0.01) or x, (x,), tf.int64)

    def run():
        batches = tf.data.Dataset.range(70).map(slow).prefetch(2)
        for _ in options(batches):
            pass

    return run


if __name__ == "__main__":
    main()
