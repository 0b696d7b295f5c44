import dataclasses
import math

import pytest

from cct_keras.training import Recipe
from cct_keras.training import WarmupSchedule
from cct_keras.training import find_recipe
from cct_keras.training import list_recipes
from cct_keras.training.recipe import RecipeError
from cct_keras.training.recipes import RECIPES

# variant, epochs, batch, lr, min lr, warmup, warmup lr, weight decay, erasing, mixing
# off, crop scale: the table of the authors' files.
PUBLISHED = {
    "cifar10_300": (
        ("cct_7_3x1_32", 300, 128, 5.5e-4, 1e-5, 10, 1e-5, 0.06, 0, 175, (0.8, 1))
    ),
    "cifar10_1500": (
        ("cct_7_3x1_32_sine", 1500, 128, 5e-4, 1e-5, 10, 1e-5, 0.05, 0.25, 0, (0.8, 1))
    ),
    "cifar10_5000": (
        ("cct_7_3x1_32_sine", 5000, 128, 5e-4, 1e-5, 10, 1e-5, 0.05, 0.25, 0, (0.8, 1))
    ),
    "cifar100_300": (
        ("cct_7_3x1_32", 300, 128, 6e-4, 1e-5, 10, 1e-6, 0.06, 0.25, 0, (0.8, 1))
    ),
    "cifar100_1500": (
        ("cct_7_3x1_32_sine", 1500, 128, 7e-4, 1e-5, 10, 1e-6, 0.05, 0.25, 0, (0.8, 1))
    ),
    "cifar100_5000": (
        ("cct_7_3x1_32_sine", 5000, 128, 5e-4, 1e-5, 10, 1e-6, 0.05, 0.25, 0, (0.8, 1))
    ),
    "flowers102": (
        ("cct_7_7x2_224_sine", 300, 96, 5e-4, 1e-5, 10, 1e-6, 0.06, 0.25, 0, (0.8, 1))
    ),
    "imagenet": (
        ("cct_14_7x2_224", 300, 128, 5e-4, 1e-5, 10, 1e-6, 0.05, 0.25, 0, (0.08, 1))
    ),
    "imagenet_384_finetune": (
        ("cct_14_7x2_224", 30, 96, 1e-5, 0, 0, 1e-6, 0, 0.25, 0, (0.08, 1))
    ),
    "flowers102_finetune": (
        ("cct_14_7x2_384", 300, 20, 5e-5, 1e-8, 10, 1e-6, 0.05, 0.25, 0, (0.8, 1))
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_rows(name):
    recipe = find_recipe(name)
    assert PUBLISHED[name] == (
        recipe.variant,
        recipe.epochs,
        recipe.batch_size,
        recipe.lr,
        recipe.min_lr,
        recipe.warmup_epochs,
        recipe.warmup_lr,
        recipe.weight_decay,
        recipe.erase_prob,
        recipe.mix_off_epoch,
        recipe.crop_scale,
    )
    assert (recipe.label_smoothing, recipe.mixup, recipe.cutmix) == (0.1, 0.8, 1.0)
    assert (recipe.mix_prob, recipe.mix_switch_prob, recipe.flip) == (1.0, 0.5, 0.5)
    assert (recipe.augment, recipe.cooldown_epochs) == ("rand-m9-mstd0.5-inc1", 10)
    assert recipe.decay_exempt == "vectors"
    assert recipe.schedule == ("step" if name == "flowers102_finetune" else "cosine")
    assert recipe.about


def test_older_rows():
    for name, batch, warmup in (("legacy_200", 128, 5), ("legacy_200_cct_6", 64, 10)):
        recipe = find_recipe(name)
        assert (recipe.epochs, recipe.lr, recipe.min_lr) == (200, 5e-4, 0)
        assert (recipe.batch_size, recipe.warmup_epochs) == (batch, warmup)
        assert (recipe.augment, recipe.crop, recipe.crop_padding) == (
            "auto",
            "padded",
            4 / 32,
        )
        assert (recipe.weight_decay, recipe.decay_exempt) == (0.03, "nothing")


def test_every_recipe_says_what_it_is():
    assert {"small", "quick", *PUBLISHED} < set(list_recipes())
    assert all(recipe.about for recipe in RECIPES.values())


# === Overrides ===


def test_fewer_epochs_scale_the_rest():
    recipe = find_recipe("cifar10_300", epochs=30)
    assert (recipe.epochs, recipe.warmup_epochs, recipe.cooldown_epochs) == (30, 1, 1)
    assert recipe.mix_off_epoch == 17.5
    assert recipe.total_epochs == 31
    # What is given as well is taken as it is.
    assert find_recipe("cifar10_300", epochs=30, warmup_epochs=5).warmup_epochs == 5


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
        ({"crop_scale": (1, 0.5)}, "`crop_scale` must be two areas"),
        ({"crop_scale": 3}, "`crop_scale` must be two numbers"),
        ({"flip": "often"}, "`flip` must be a probability or 'auto'"),
        ({"variant": "cct_7_3x1"}, "unknown variant 'cct_7_3x1'. Did you mean"),
        ({"augment": "rand-m9-oops"}, "oops"),
        ({"augment": "auto-colour"}, "`augment` must be one of none, auto, auto-color"),
    ],
)
def test_bad_fields(fields, message):
    with pytest.raises(ValueError, match=message):
        find_recipe("small", **fields)


def test_unknown_recipe_names_near_ones():
    with pytest.raises(RecipeError, match="unknown recipe 'smal'. Did you mean: small"):
        find_recipe("smal")


# === YAML ===

TIMM = """
dataset: cifar10
num_classes: 10
img_size: 32
mean:
    - 0.4914
    - 0.4822
    - 0.4465
std: [0.2470, 0.2435, 0.2616]
crop_pct: 1.0
scale:
    - 0.8
    - 1.0
interpolation: bicubic
train_interpolation: random
aa: rand-m9-mstd0.5-inc1
mixup: 0.8
mixup_off_epoch: 175
mixup_prob: 1.0
mixup_mode: batch
mixup_switch_prob: 0.5
cutmix: 1.0
reprob: 0
remode: pixel
amp: True
model: cct_7_3x1_32
model_ema: False
batch_size: 128
lr: 55e-5
min_lr: 1e-5
sched: cosine
weight_decay: 6e-2
epochs: 300
cooldown_epochs: 10
warmup_epochs: 10
warmup_lr: 0.00001
opt: adamw
smoothing: 0.1
workers: 8
"""


def write(tmp_path, text, name="recipe.yml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_yaml_file_of_the_authors_is_the_row(tmp_path):
    recipe = find_recipe(write(tmp_path, TIMM))
    row = dataclasses.replace(find_recipe("cifar10_300"), about=recipe.about)
    assert recipe == row


def test_a_yaml_file_without_schedule_is_a_step_decay(tmp_path):
    text = TIMM.replace("sched: cosine", "pretrained: True")
    text = text.replace("cct_7_3x1_32", "cct_14_7x2_384")
    recipe = find_recipe(str(write(tmp_path, text)), lr=1e-4)
    assert (recipe.schedule, recipe.decay_epochs, recipe.decay_rate) == (
        "step",
        30,
        0.1,
    )
    assert (recipe.weights, recipe.lr) == ("imagenet", 1e-4)


def test_the_image_size_of_a_yaml_file(tmp_path):
    text = TIMM.replace("cct_7_3x1_32", "cct_14_7x2_224")
    assert find_recipe(write(tmp_path, text.replace(": 32", ": 384"))).image_size == 384
    assert (
        find_recipe(write(tmp_path, text.replace(": 32", ": 224"))).image_size is None
    )
    assert find_recipe("imagenet_384_finetune").image_size == 384


def test_a_yaml_file_with_our_own_fields(tmp_path):
    recipe = find_recipe(write(tmp_path, "variant: cct_4_3x2_32\nlr: 1e-3\nema: 0.99"))
    assert (recipe.variant, recipe.lr, recipe.ema) == ("cct_4_3x2_32", 1e-3, 0.99)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: cct_7_3x1_32\nsmoothin: 0.1", "unknown field 'smoothin'.*smoothing"),
        ("lerning: 1", "unknown recipe field 'lerning'"),
        ("model: cct_7_3x1_32\nmixup_mode: elem", "mixup_mode must be 'batch'"),
        ("- 1\n- 2", "must be a mapping"),
        ("a: [", "is not YAML"),
        ("!!python/object/apply:os.system ['true']", "is not YAML"),
    ],
)
def test_bad_yaml(tmp_path, text, message):
    with pytest.raises(RecipeError, match=message):
        find_recipe(write(tmp_path, text))


def test_missing_yaml(tmp_path):
    with pytest.raises(RecipeError, match="cannot read .*: No such file"):
        find_recipe(tmp_path / "none.yml")


# === Schedule ===


def rate(schedule, epoch, step=0):
    return float(schedule(epoch * schedule.steps_per_epoch + step))


@pytest.mark.backend
def test_warmup_cosine_cooldown():
    """The rates of the 300 epochs of CIFAR-10, epoch by epoch."""
    schedule = WarmupSchedule(
        5.5e-4,
        epochs=300,
        steps_per_epoch=390,
        min_lr=1e-5,
        warmup_epochs=10,
        warmup_lr=1e-5,
    )
    for epoch in (0, 1, 5, 9):
        expected = 1e-5 + epoch * (5.5e-4 - 1e-5) / 10
        assert rate(schedule, epoch) == pytest.approx(expected, rel=1e-5)
    for epoch in (10, 11, 75, 150, 299):
        cosine = (1 + math.cos(math.pi * epoch / 300)) / 2
        assert rate(schedule, epoch) == pytest.approx(1e-5 + 5.4e-4 * cosine, rel=1e-5)
    for epoch in (300, 309):
        assert rate(schedule, epoch) == pytest.approx(1e-5)
    # Within an epoch it stays.
    assert rate(schedule, 100, 389) == rate(schedule, 100)


@pytest.mark.backend
def test_step_decay():
    schedule = WarmupSchedule(
        5e-5,
        epochs=300,
        steps_per_epoch=7,
        min_lr=1e-8,
        kind="step",
        warmup_epochs=10,
        warmup_lr=1e-6,
    )
    assert rate(schedule, 5) == pytest.approx(1e-6 + 5 * 4.9e-6)
    for epoch, expected in ((10, 5e-5), (29, 5e-5), (30, 5e-6), (299, 5e-14)):
        assert rate(schedule, epoch) == pytest.approx(expected, rel=1e-4)
    assert rate(schedule, 300) == pytest.approx(1e-8)


def test_older_warmup():
    schedule = WarmupSchedule(
        5e-4, epochs=200, steps_per_epoch=3, warmup_epochs=5, warmup="inverse"
    )
    for epoch in range(5):
        assert rate(schedule, epoch) == pytest.approx(5e-4 / (5 - epoch))
    for epoch in (5, 100, 199):
        cosine = (1 + math.cos(math.pi * (epoch - 5) / 195)) / 2
        assert rate(schedule, epoch) == pytest.approx(5e-4 * cosine, abs=1e-10)


def test_per_step():
    schedule = WarmupSchedule(
        1e-3, epochs=10, steps_per_epoch=4, warmup_epochs=0.5, per_step=True
    )
    assert rate(schedule, 0, 1) == pytest.approx(1e-3 * 0.25 / 0.5)
    cosine = (1 + math.cos(math.pi * 2.75 / 10)) / 2
    assert rate(schedule, 2, 3) == pytest.approx(1e-3 * cosine, rel=1e-5)
    assert schedule.get_config() == WarmupSchedule(**schedule.get_config()).get_config()


def test_constant():
    schedule = WarmupSchedule(1e-3, epochs=3, steps_per_epoch=2, kind="constant")
    assert [rate(schedule, epoch) for epoch in (0, 2, 9)] == pytest.approx([1e-3] * 3)


def test_a_recipe_converts_what_it_is_given():
    recipe = Recipe(lr="1e-3", crop_scale=[0.5, 1])
    assert (recipe.lr, recipe.crop_scale) == (1e-3, (0.5, 1.0))


def test_a_recipe_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Recipe().lr = 1
