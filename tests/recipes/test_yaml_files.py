import dataclasses

import pytest

from cct_keras.errors import RecipeError
from cct_keras.recipes.rows import find_recipe

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
