"""The third step of a run: schedule, optimizer and loss."""

import keras
import numpy as np
import pytest
from small import first_of_all
from small import small_model
from small import stripes

import cct_keras
from cct_keras.distillation.losses import DistillationLoss
from cct_keras.distributed.devices import Devices
from cct_keras.models.inspection import encoder_blocks
from cct_keras.recipes.recipe import Recipe
from cct_keras.recipes.rows import find_recipe
from cct_keras.training.build import build_model
from cct_keras.training.compile import compile_model
from cct_keras.training.compile import find_undecayed
from cct_keras.training.compile import make_loss
from cct_keras.training.compile import make_optimizer
from cct_keras.training.compile import make_schedule


@pytest.fixture(scope="module")
def data():
    return cct_keras.load_data(stripes(60))


def compiled(data, **fields):
    recipe = find_recipe("small", **{"variant": "tiny_2", "batch_size": 16, **fields})
    model = build_model(data, recipe, classifier_activation=None)
    compile_model(model, recipe, images=len(data.train), num_classes=data.num_classes)
    return model


# === Weight decay ===


def not_decayed(model, **fields):
    """A step with a gradient of zero moves only what is decayed."""
    recipe = Recipe(weight_decay=0.5, lr=2e-3, **fields)
    optimizer = make_optimizer(model, recipe, make_schedule(recipe, 100), Devices())
    optimizer.build(model.trainable_variables)
    for variable in model.trainable_variables:
        variable.assign(np.ones(variable.shape))
    zeros = [keras.ops.zeros(v.shape) for v in model.trainable_variables]
    optimizer.apply(zeros, model.trainable_variables)
    # AdamW: the share lr x decay of the weight itself.
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(model.get_layer("head").kernel),
        1 - 2e-3 * 0.5,
        rtol=1e-4,
    )
    return {
        variable.path
        for variable in model.trainable_variables
        if np.all(keras.ops.convert_to_numpy(variable) == 1)
    }


TABLES = {"embeddings", "token"}


@pytest.mark.parametrize(
    ("exempt", "expected"),
    [
        ("nothing", set()),
        ("vectors", {"bias", "gamma", "beta"}),
        ("positions", {"bias", "gamma", "beta"} | TABLES),
    ],
)
def test_what_is_not_decayed(exempt, expected):
    kept = not_decayed(small_model("ViTLite"), decay_exempt=exempt)
    assert {path.split("/")[-1] for path in kept} == expected


@pytest.mark.parametrize("layer_decay", [1.0, 0.75])
def test_all_tokens_of_a_distilled_deit_are_exempt(layer_decay):
    """Also by the optimizers with a rate for every layer."""
    fields = {"decay_exempt": "positions", "layer_decay": layer_decay}
    model = small_model("DeiT")
    kept = not_decayed(model, **fields)
    tables = {path for path in kept if path.split("/")[-1] in TABLES}
    assert tables == {
        "class_token/token",
        "distillation_token/token",
        "position_embedding/embeddings",
    }
    matrices = {v.path for v in model.trainable_variables if len(v.shape) > 1}
    assert kept & matrices == tables


def test_undecayed_weights_are_trainable_ones():
    model = small_model("DeiT")
    model.get_layer("distillation_token").trainable = False
    found = {id(v) for v in find_undecayed(model, Recipe(decay_exempt="positions"))}
    assert found <= {id(v) for v in model.trainable_variables}


# === Optimizer and loss ===


def test_sgd_and_clipping(data):
    model = compiled(data, optimizer="sgd", clip_norm=0.5, accumulate=4)
    assert isinstance(model.optimizer, keras.optimizers.SGD)
    assert model.optimizer.global_clipnorm == 0.5
    assert model.optimizer.gradient_accumulation_steps == 4


def test_half_precision_scales_the_loss(data):
    model = compiled(data, precision="mixed_float16")
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)


def test_several_replicas_clip_their_share(data):
    model = small_model("CVT")
    recipe = Recipe(clip_norm=1.0)
    optimizer = make_optimizer(model, recipe, make_schedule(recipe, 99), Devices(4))
    mirrored = keras.config.backend() == "tensorflow"
    assert optimizer.global_clipnorm == (0.25 if mirrored else 1.0)


def test_the_schedule_is_that_of_the_recipe():
    recipe = find_recipe("cifar10_300")
    schedule = make_schedule(recipe, 50_000)
    assert schedule.steps_per_epoch == 390
    assert float(schedule(0)) == pytest.approx(1e-5)
    assert float(schedule(390 * 10)) == pytest.approx(5.485e-4, rel=1e-3)


def test_the_loss_with_a_teacher():
    loss, accuracy = make_loss(Recipe(teacher="x"), 3)
    assert isinstance(loss, DistillationLoss)
    assert (loss.kind, loss.num_classes, accuracy.num_classes) == ("hard", 3, 3)
    recipe = Recipe(teacher="x", distill="soft", distill_tau=2, distill_weight=0.4)
    loss, _ = make_loss(recipe, 3)
    assert (loss.kind, loss.tau, loss.weight) == ("soft", 2, 0.4)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("soft", 3.0, 0.9)),
        ({"distill": "hard"}, ("hard", 3.0, 0.1)),
        ({"distill": "soft", "distill_tau": 2}, ("soft", 2.0, 0.1)),
    ],
)
def test_what_is_learned_from_the_convnet(fields, expected):
    loss, _ = make_loss(Recipe(teacher="convnet", **fields), 3)
    assert (loss.kind, loss.tau, loss.weight) == expected


def test_blocks_that_are_computed_again(data):
    assert [x.remat for x in encoder_blocks(compiled(data, remat=True))] == [True] * 2
    assert [x.remat for x in encoder_blocks(compiled(data))] == [False] * 2


@pytest.mark.parametrize("jit", [True, False])
def test_xla_if_it_is_asked_for(jit):
    model = small_model("CVT")
    compile_model(model, Recipe(), images=10, num_classes=5, jit=jit)
    assert model.jit_compile is jit


@pytest.mark.parametrize(
    "name", first_of_all(cct_keras.list_recipes(), "small", "finetune", "flowers102")
)
def test_one_step_of_every_recipe(name, data):
    """With a small stand-in for the variant; what it sees is the recipe's own.

    Only one recipe with RandAugment has it, which takes a second to trace.
    """
    fields = {"variant": "tiny_1", "batch_size": 8, "weights": None}
    if find_recipe(name).augment.startswith("rand") and name != "cifar10_300":
        fields["augment"] = "none"
    recipe = find_recipe(name, **fields)
    model = build_model(data, recipe, classifier_activation=None)
    compile_model(model, recipe, images=len(data.train), num_classes=data.num_classes)
    model.run_eagerly = True
    images, labels = next(iter(data.training_pipeline(recipe, epochs=1)))
    before = keras.ops.convert_to_numpy(model.get_layer("head").kernel)
    loss, _ = model.train_on_batch(images, labels)
    assert np.isfinite(loss)
    after = keras.ops.convert_to_numpy(model.get_layer("head").kernel)
    assert not np.array_equal(before, after)
