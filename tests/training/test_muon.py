"""Muon against singular values in float64."""

import keras
import numpy as np
import pytest

import cct_keras
from cct_keras.distributed.devices import Devices
from cct_keras.recipes.recipe import Recipe
from cct_keras.training.compile import make_optimizer
from cct_keras.training.compile import make_schedule
from cct_keras.training.optimizers import LayerwiseMuon
from cct_keras.training.optimizers import Muon

RANDOM = np.random.default_rng(0)


def with_equal_singular_values(matrix):
    """The polynomial of Muon, five times, of each singular value by itself."""
    left, values, right = np.linalg.svd(matrix / np.linalg.norm(matrix), False)
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return left * values @ right


def expected(value, gradients, parts, *, rate, decay):
    shape, momentum = value.shape, 0
    for gradient in gradients:
        value = value * (1 - decay)
        momentum = 0.95 * momentum + gradient
        flat = (gradient + 0.95 * momentum).reshape(-1, shape[-1])
        update = [
            with_equal_singular_values(part)
            * max(1, part.shape[1] / part.shape[0]) ** 0.5
            for part in np.split(flat, parts, axis=1)
        ]
        value = value - rate * np.concatenate(update, axis=1).reshape(shape)
    return value


@pytest.mark.backend
@pytest.mark.parametrize(
    ("shape", "parts"), [((12, 5), 1), ((5, 12), 1), ((6, 18), 3), ((3, 3, 2, 8), 1)]
)
def test_matrices_have_equal_singular_values(shape, parts):
    value = RANDOM.standard_normal(shape)
    gradients = RANDOM.standard_normal((3, *shape))
    variable = keras.Variable(value.astype("float32"), name="kernel")
    optimizer = Muon(
        0.01,
        matrices={variable.path: parts},
        matrix_lr=0.2,
        peak=0.02,
        weight_decay=0.3,
    )
    optimizer.build([variable])
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(gradient, "float32")])
    # Half of the peak is half of the rate of the matrices.
    result = expected(value, gradients, parts, rate=0.1, decay=0.003)
    np.testing.assert_allclose(variable.numpy(), result, atol=2e-5)


@pytest.mark.backend
def test_other_weights_are_those_of_adamw():
    values = RANDOM.standard_normal((2, 4, 3)).astype("float32")
    variables = [
        [keras.Variable(values[0], name="a"), keras.Variable(values[1], name="b")]
        for _ in range(2)
    ]
    options = {"weight_decay": 0.1, "epsilon": 1e-3}
    muon = Muon(0.1, matrices={}, **options)
    adamw = keras.optimizers.AdamW(0.1, **options)
    for optimizer, own in zip((muon, adamw), variables, strict=True):
        optimizer.build(own)
        for gradient in RANDOM.standard_normal((3, 4, 3)):
            gradient = keras.ops.convert_to_tensor(np.ones_like(gradient), "float32")
            optimizer.apply([gradient, 2 * gradient])
    for a, b in zip(*variables, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-5)


def test_what_a_recipe_updates_as_matrices():
    model = cct_keras.create_model("cct_2_3x2_32", classifier_activation=None)
    recipe = Recipe(optimizer="muon", lr=1e-3, matrix_lr=0.03)
    optimizer = make_optimizer(model, recipe, make_schedule(recipe, 100), Devices())
    optimizer.build(model.trainable_variables)
    by_adamw = [
        variable.path
        for variable, velocity in zip(
            model.trainable_variables, optimizer.adam_velocities, strict=True
        )
        if velocity is not None and len(variable.shape) > 1
    ]
    assert by_adamw == [
        "position_embedding/embeddings",
        "pool/attention/kernel",
    ]
    assert (optimizer.matrix_lr, optimizer.peak) == (0.03, 1e-3)
    assert optimizer.matrices["block_1/attention/qkv/kernel"] == 3


def test_a_rate_for_every_layer():
    model = cct_keras.create_model("vit_2_4_32", classifier_activation=None)
    recipe = Recipe(
        variant="vit_2_4_32", optimizer="muon", layer_decay=0.5, warmup_epochs=0
    )
    optimizer = make_optimizer(model, recipe, make_schedule(recipe, 100), Devices())
    assert isinstance(optimizer, LayerwiseMuon)
    optimizer.build(model.trainable_variables)
    before = [variable.numpy() for variable in model.trainable_variables]
    gradients = [keras.ops.ones(v.shape) for v in model.trainable_variables]
    optimizer.exclude_from_weight_decay(var_names=[""])
    optimizer.apply(gradients)
    steps = {
        variable.path: np.abs(variable.numpy() - old).max()
        for variable, old in zip(model.trainable_variables, before, strict=True)
    }
    name = "block_{}/attention/proj/kernel"
    assert steps[name.format(0)] == pytest.approx(steps[name.format(1)] / 2, rel=0.1)


def test_it_loads_back():
    optimizer = Muon(0.1, matrices={"a/kernel": 3}, matrix_lr=0.5, weight_decay=0.2)
    restored = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(restored) is Muon
    assert restored.get_config() == optimizer.get_config()
    assert restored.matrices == {"a/kernel": 3}


def test_at_a_rate_of_zero_nothing_moves():
    variable = keras.Variable(np.ones((3, 4), "float32"), name="kernel")
    optimizer = Muon(0.0, matrices={variable.path: 1})
    optimizer.build([variable])
    optimizer.apply([keras.ops.ones((3, 4))])
    np.testing.assert_array_equal(variable.numpy(), np.ones((3, 4)))
