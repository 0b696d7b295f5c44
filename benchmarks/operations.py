"""Operations of a training step against those of Keras, on TensorFlow.

    python benchmarks/operations.py

Forward and backward passes of the kernels with the sizes of CCT-7/3x1 at a batch of 32,
and one update of the weights of CCT-14/7x2 by AdamW; the best of several rounds, in
which both sides take turns. Last, how long a short pipeline takes to end, with and
without tf.data's own tuning.
"""

import functools
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import tensorflow as tf

import cct_keras
from cct_keras.data.pipeline import untuned
from cct_keras.kernels.attention import attention
from cct_keras.kernels.gelu import gelu
from cct_keras.layers import LayerNormalization
from cct_keras.training.optimizers import FusedAdamW

ROUNDS = 15
RATE = 0.1


def main():
    """Measures and prints a table."""
    tokens = tf.random.normal((32, 256, 256))
    hidden = tf.random.normal((32 * 256, 512))
    heads = [tf.random.normal((32, 4, 256, 64)) for _ in range(3)]
    operations = {
        "layer normalization": (
            differentiated(keras.layers.LayerNormalization(epsilon=1e-5), tokens),
            differentiated(LayerNormalization(), tokens),
        ),
        "GELU": (
            differentiated(lambda x: keras.ops.gelu(x, approximate=False), hidden),
            differentiated(lambda x: gelu(x, training=True), hidden),
        ),
        "attention with dropout": (
            differentiated(stock_attention(), *heads),
            differentiated(our_attention(), *heads),
        ),
        "AdamW, 22 million weights": (
            update(keras.optimizers.AdamW),
            update(FusedAdamW),
        ),
        "a pipeline of 700 ms": (pipeline(lambda x: x), pipeline(untuned)),
    }
    print("| | Keras, TensorFlow | here |")
    print("|---|---|---|")
    for name, (stock, ours) in operations.items():
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

    def attend(query, key, value):
        scores = keras.ops.matmul(query / 8.0, keras.ops.swapaxes(key, -1, -2))
        weights = keras.ops.softmax(scores)
        return keras.ops.matmul(dropout(weights, training=True), value)

    return attend


def our_attention():
    """As `MultiHeadSelfAttention` has it."""
    seeds = keras.random.SeedGenerator(0)
    return functools.partial(attention, dropout_rate=RATE, seed_generator=seeds)


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
