"""One run on several devices of one machine."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from machines import FIELDS
from machines import losses

import cct_keras
from cct_keras.distributed.devices import Devices
from cct_keras.distributed.devices import reduced
from cct_keras.errors import RecipeError
from cct_keras.recipes.rows import find_recipe

BACKEND = keras.config.backend()

SCRIPT = """
import json, sys
import keras
if keras.config.backend() == "tensorflow":
    import tensorflow as tf
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
import cct_keras
source, fields = sys.argv[1], json.loads(sys.argv[2])
for devices in (1, 2):
    run = cct_keras.train(source, devices=devices, verbose=False, **fields)
    print(json.dumps({"history": run.history, "test": run.metrics["test"]["loss"]}))
"""


@pytest.mark.integration
@pytest.mark.backend
@pytest.mark.skipif(BACKEND == "torch", reason="Keras has no devices there")
@pytest.mark.parametrize("more", [{}, {"ema": 0.9, "optimizer": "sgd"}])
def test_two_devices_compute_what_one_computes(source, more):
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, source, json.dumps({**FIELDS, **more})],
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    one, two = (json.loads(line) for line in result.stdout.splitlines())
    np.testing.assert_allclose(
        losses(two["history"]), losses(one["history"]), rtol=1e-5
    )
    assert two["test"] == pytest.approx(one["test"], rel=1e-5)


@pytest.mark.backend
def test_more_devices_than_there_are(source):
    message = "several devices need" if BACKEND == "torch" else r"has \d+ device"
    with pytest.raises(RecipeError, match=message):
        cct_keras.train(source, devices=99, **FIELDS)


@pytest.mark.parametrize("devices", [0, "many"])
@pytest.mark.skipif(BACKEND == "torch", reason="Keras has no devices there")
def test_no_number_of_devices(source, devices):
    with pytest.raises(RecipeError, match="`devices` must be a number or 'all'"):
        cct_keras.train(source, devices=devices, **FIELDS)


@pytest.mark.skipif(BACKEND == "jax", reason="it has them")
def test_machines_need_jax(source):
    with pytest.raises(
        RecipeError, match="several machines need the Keras backend JAX"
    ):
        cct_keras.train(source, coordinator="127.0.0.1:1", num_hosts=2, host_id=0)
    with pytest.raises(
        RecipeError,
        match="need `coordinator`, `num_hosts` and .*num_hosts=2, host_id=None",
    ):
        cct_keras.train(source, num_hosts=2)


def test_batches_that_do_not_split_evenly():
    recipe = find_recipe("small", batch_size=32)
    message = "32 images cannot be split evenly over 3 devices. Received: batch_size=32"
    with pytest.raises(RecipeError, match=message):
        Devices(3).check(recipe, 100)
    with pytest.raises(RecipeError, match="a batch of 25 images"):
        Devices(2).check(recipe, 25)
    Devices(4).check(recipe, 100)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="JAX accumulates there, too")
def test_tensorflow_does_not_accumulate_on_several_devices():
    recipe = find_recipe("small", accumulate=2)
    with pytest.raises(RecipeError, match="accumulate=1, or the JAX.*accumulate=2"):
        Devices(2).check(recipe, 100)
    Devices(1).check(recipe, 100)


def test_one_machine_talks_to_nobody():
    devices = Devices()
    devices.agree({"lr": 1})
    devices.fail(ValueError("gone"))
    devices.disband()
    assert devices.broadcast(b"content") == b"content"
    assert not devices.is_loss_of_host(RuntimeError("Gloo: connection closed by peer"))
    assert Devices(2, hosts=2).is_loss_of_host(RuntimeError("Gloo: closed by peer"))
    assert not Devices(2, hosts=2).is_loss_of_host(ValueError("another mistake"))


@pytest.mark.skipif(BACKEND != "tensorflow", reason="an optimizer for TensorFlow")
def test_one_replica_clips_as_ever():
    """What two replicas clip shows `test_two_devices_compute_what_one_computes`."""
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        variable = keras.Variable([1.0])
        optimizer = reduced(keras.optimizers.SGD)(1.0, global_clipnorm=0.5)
        optimizer.build([variable])

    @tf.function
    def step():
        strategy.run(lambda: optimizer.apply([tf.constant([4.0])], [variable]))

    step()
    assert float(keras.ops.convert_to_numpy(variable)[0]) == pytest.approx(0.5)
