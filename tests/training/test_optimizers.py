"""The fused update computes what Keras' own does."""

import keras
import numpy as np
import pytest

from cct_keras.training.optimizers import FusedAdamW
from cct_keras.training.optimizers import find_adamw

pytestmark = pytest.mark.integration

RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.standard_normal((48, 8)).astype("float32")
TARGETS = RANDOM.standard_normal((48, 3)).astype("float32")
OPTIONS = [
    {"weight_decay": 0.1, "epsilon": 1e-3},
    {"global_clipnorm": 0.5, "use_ema": True, "ema_momentum": 0.5},
    {"gradient_accumulation_steps": 2},
    {"amsgrad": True, "beta_1": 0.5},
    {"learning_rate": keras.optimizers.schedules.CosineDecay(0.1, 9)},
]


def small_model(optimizer, jit=False):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(3)]
    )
    model.compile(optimizer, "mse", jit_compile=jit, run_eagerly=not jit)
    return model


def trained(cls, jit=False, **options):
    model = small_model(cls(**{"learning_rate": 1e-2, **options}), jit)
    model.fit(INPUTS, TARGETS, 16, epochs=3, verbose=0, shuffle=False)
    return [*model.weights, *model.optimizer.variables]


@pytest.mark.parametrize(
    ("options", "jit"),
    [*((options, False) for options in OPTIONS), (OPTIONS[0], True)],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else str(value),
)
def test_same_weights_and_moments(options, jit):
    expected = trained(keras.optimizers.AdamW, jit, **options)
    found = trained(FusedAdamW, jit, **options)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(a),
            keras.ops.convert_to_numpy(b),
            rtol=1e-4,
            atol=1e-5,
        )


def test_the_optimizer_loads_back():
    restored = keras.optimizers.deserialize(
        keras.optimizers.serialize(FusedAdamW(0.02, weight_decay=0.3))
    )
    assert type(restored) is FusedAdamW
    assert restored.weight_decay == pytest.approx(0.3)


@pytest.mark.backend
def test_only_tensorflow_needs_it():
    fused = keras.config.backend() == "tensorflow"
    assert find_adamw() is (FusedAdamW if fused else keras.optimizers.AdamW)
