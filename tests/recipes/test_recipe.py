"""The fields of a recipe: their types, ranges and documentation."""

import dataclasses

import pytest

from cct_keras.errors import RecipeError
from cct_keras.recipes.recipe import FIELDS
from cct_keras.recipes.recipe import Recipe
from cct_keras.recipes.recipe import field_help
from cct_keras.recipes.rows import find_recipe


def test_text_becomes_the_type_of_the_field():
    recipe = find_recipe(
        "small",
        lr="2e-3",
        batch_size="32",
        crop_scale="0.5 1",
        per_step="no",
        ema="none",
        clip_norm="None",
        flip="0.25",
    )
    assert (recipe.lr, recipe.batch_size, recipe.crop_scale) == (2e-3, 32, (0.5, 1.0))
    assert (recipe.per_step, recipe.ema, recipe.clip_norm) == (False, None, None)
    assert recipe.flip == 0.25
    assert find_recipe("small", flip="auto").flip == "auto"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"weigth_decay": 1}, "unknown recipe field 'weigth_decay'.*weight_decay"),
        ({"lr": "fast"}, "`lr` must be float.*'fast'"),
        ({"lr": -1}, "`lr` must be 0 or more"),
        ({"lr": float("nan")}, "`lr` must be float"),
        ({"epochs": 0}, "`epochs` must be 1 or more"),
        ({"epochs": 1.5}, "`epochs` must be int"),
        ({"batch_size": "inf"}, "`batch_size` must be int"),
        ({"per_step": "maybe"}, "`per_step` must be bool"),
        ({"dropout": 5}, "`dropout` must be from 0 to 0.999"),
        ({"batch_size": True}, "`batch_size` must be int"),
        ({"mix_prob": 2}, "`mix_prob` must be from 0 to 1"),
        ({"optimizer": "lion"}, "`optimizer` must be one of adamw, sgd"),
        ({"activation": "silu"}, "`activation` must be one of auto, gelu, gelu_tanh"),
        ({"crop_scale": (1, 0.5)}, "`crop_scale` must be two areas"),
        ({"crop_scale": 3}, "`crop_scale` must be two numbers"),
        ({"flip": "often"}, "`flip` must be a probability or one of auto, alt"),
        ({"variant": "cct_7_3x1"}, "unknown variant 'cct_7_3x1'. Did you mean"),
        ({"augment": "rand-m9-oops"}, "oops"),
        ({"augment": "auto-colour"}, "`augment` must be one of none, auto, auto-color"),
    ],
)
def test_bad_fields(fields, message):
    with pytest.raises(ValueError, match=message):
        find_recipe("small", **fields)


def test_a_recipe_converts_what_it_is_given():
    recipe = Recipe(lr="1e-3", crop_scale=[0.5, 1])
    assert (recipe.lr, recipe.crop_scale) == (1e-3, (0.5, 1.0))


def test_a_recipe_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Recipe().lr = 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"weights": {"a": 3}}, "`weights` must be str"),
        ({"freeze": 3}, "at most the 2 blocks of cct_2_3x2_32. Received: freeze=3"),
        ({"freeze": "tail"}, "a number of blocks or 'body'"),
        ({"freeze": "body", "unfreeze_epochs": 1}, "nothing for `unfreeze_epochs`"),
        ({"layer_decay": 1.5}, "`layer_decay` must be from 1e-06 to 1"),
        ({"lora_targets": "qkv"}, "need `lora_rank`"),
        ({"lora_rank": 2, "lora_targets": "key"}, "no layer for an adapter: key"),
        ({"lora_targets": "block_9/qkv"}, "block_9/qkv.*block_0 to block_1"),
        ({"lora_rank": 2, "freeze": 2}, "leaves nothing for `lora_rank`"),
        ({"lora_rank": 2, "freeze": "body"}, "leaves nothing for `lora_rank`"),
        ({"distill": "hard"}, "`distill` needs a `teacher`. Received: distill='hard'"),
        ({"teacher_views": 2}, "`teacher_views` needs a `teacher`."),
        ({"teacher_epochs": 2}, "`teacher_epochs` is for teacher='convnet'.*=None"),
        (
            {"teacher": "x.keras", "teacher_share": 0.5},
            "`teacher_share` is for teacher='convnet'.*'x.keras'",
        ),
        ({"teacher": "convnet", "teacher_epochs": 0}, "`teacher_epochs` must be 1 or"),
        ({"teacher": "x", "distill": "firm"}, "`distill` must be one of hard, soft."),
        ({"teacher": "x", "distill_tau": 2}, "is for distill='soft'.*distill=None"),
        (
            {"teacher": "x", "distill": "hard", "distill_weight": 0.4},
            "`distill_weight` is for distill='soft'",
        ),
        (
            {"teacher": "x", "teacher_views": 2, "augment": "keras_cv"},
            "augment='keras_cv' does not repeat its images",
        ),
        (
            {"teacher": "x", "teacher_views": 2, "mix_off_epoch": 3},
            "mixing cannot end at `mix_off_epoch`",
        ),
    ],
)
def test_what_does_not_go_together(fields, message):
    with pytest.raises(RecipeError, match=message):
        find_recipe("small", **fields)


def test_every_field_has_a_sentence_of_help():
    texts = field_help()
    assert set(texts) == set(FIELDS)
    for name, text in texts.items():
        assert text.endswith("."), name
        assert "\n" not in text
        assert 10 < len(text) < 400, name
    assert texts["batch_size"] == "Images in a training step."
    assert texts["layer_decay"] == (
        "Factor of the learning rate from each layer to the one below it."
    )
    # A field of `Augmentation`.
    assert texts["erase_prob"].startswith("Probability that")
