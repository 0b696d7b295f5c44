"""The rival of `small_data.py`: a compact airbench in plain Keras, against the clock.

The model is the convnet that the package uses as a teacher; here it learns for itself,
from all images it gets and for the whole time, and its last weights count.
"""

import time

import keras
import numpy as np

import cct_keras
from cct_keras.distillation.convnet import convnet
from cct_keras.distillation.convnet import convnet_recipe
from cct_keras.distillation.convnet import whiten_stem
from cct_keras.distillation.convnet import whitening_images
from cct_keras.training.build import normalized_images
from cct_keras.training.compile import make_schedule

MOST_EPOCHS = 10**6
TIMED_STEPS = 10


class Clock(keras.callbacks.Callback):
    """Sets the rate by the share of the time that has passed, and ends on time."""

    def __init__(self, schedule, start, end):
        super().__init__()
        self.schedule, self.start, self.end = schedule, start, end

    def on_train_batch_begin(self, batch, logs=None):
        share = (time.perf_counter() - self.start) / (self.end - self.start)
        rate = self.schedule.at_epoch(min(share, 1.0) * self.schedule.epochs)
        self.model.optimizer.learning_rate = rate
        self.model.stop_training = share >= 1


def compete(arrays, minutes, seed):
    """Trains for so many minutes, and measures once."""
    started = time.perf_counter()
    keras.utils.set_random_seed(seed)
    train, (x_test, y_test) = arrays
    # Nothing is validated, so that no image has to be held back for it.
    data = cct_keras.load_data((train, arrays[1], arrays[1]))
    recipe = convnet_recipe(len(data.train))
    inputs = normalized_images(data)
    images = keras.utils.get_source_inputs(inputs)[0]
    dtype = "mixed_bfloat16"
    model = keras.Model(images, convnet(inputs, data.num_classes, dtype=dtype))
    whiten_stem(model, whitening_images(data, recipe, seed=seed))
    optimizer = keras.optimizers.SGD(
        0.0, momentum=0.9, nesterov=True, weight_decay=recipe.weight_decay
    )
    optimizer.exclude_from_weight_decay(
        var_list=[v for v in model.trainable_variables if len(v.shape) < 2]
    )
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=False)

    # At a rate of zero nothing changes but the moving averages.
    weights = model.get_weights()
    for x, y in data.training_pipeline(recipe, epochs=1, seed=seed).take(1):
        for index in range(TIMED_STEPS + 1):
            if index == 1:
                before = time.perf_counter()
            model.train_on_batch(x, y)
        step = (time.perf_counter() - before) / TIMED_STEPS
    model.set_weights(weights)

    # The test takes a third of a step an image, once from each side.
    test = 2 * len(y_test) / recipe.batch_size * step / 3
    start, end = time.perf_counter(), started + 60 * minutes - test
    steps = len(data.train) / recipe.batch_size
    epochs = max(1, round((end - start) / (steps * step)))
    recipe = convnet_recipe(len(data.train), epochs=epochs)
    schedule = make_schedule(recipe, len(data.train))
    batches = data.training_pipeline(recipe, epochs=MOST_EPOCHS, seed=seed)
    clock = Clock(schedule, start, end)
    model.fit(
        batches, steps_per_epoch=10**9, shuffle=False, callbacks=[clock], verbose=0
    )

    plain, mirrored = (
        np.concatenate(
            [
                keras.ops.softmax(model.predict_on_batch(view[i : i + 500]))
                for i in range(0, len(view), 500)
            ]
        )
        for view in (x_test, x_test[:, :, ::-1])
    )
    steps_done = int(model.optimizer.iterations) - TIMED_STEPS - 1
    return {
        "top1": float((plain.argmax(1) == y_test).mean()),
        "top1_flip": float(((plain + mirrored).argmax(1) == y_test).mean()),
        "epochs": steps_done * recipe.batch_size / len(data.train),
    }
