"""`cct-keras list`."""

import pytest

import cct_keras
from cct_keras.cli import main as cli
from cct_keras.pretrained.catalog import WEIGHTS
from cct_keras.recipes.rows import RECIPES


def lines_of(capsys, *words):
    assert cli.main(["list", *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_variants(capsys):
    header, *rows = lines_of(capsys)
    assert [row.split()[0] for row in rows] == cct_keras.list_models()
    assert len({len(row) for row in (header, *rows)}) == 1
    (row,) = lines_of(capsys, "cct_14_7x2_224")[1:]
    assert row.split()[1:] == ["224", "learnable", "1000", "22,367,273", "5.11", "G"]


def test_weights(capsys):
    lines = lines_of(capsys, "cct_14*", "--pretrained")
    rows = [line.split() for line in lines if line.startswith("  cct_14")]
    assert ["cct_14_7x2_224", "imagenet", "1000", "80.67", "%"] in rows
    assert len(rows) == 3
    rows = [x for x in lines_of(capsys, "--pretrained") if x.endswith((" %", "shed"))]
    assert len(rows) == len(WEIGHTS)


def test_what_weights_are_good_for(capsys):
    lines = lines_of(capsys, "dinov2_small", "--pretrained")
    text = "\n".join(lines)
    assert "k-NN and probes without fine-tuning" in text
    assert "Apache-2.0" in text
    assert "mean 0.485, 0.456, 0.406, deviation 0.229, 0.224, 0.225" in text
    assert "linear probe on ImageNet" in text
    assert lines[-1].split() == ["dinov2_small", "lvd142m", "none", "81.1", "%"]


@pytest.mark.parametrize(
    ("variant", "warning"),
    [
        ("cct_7_7x2_224_sine", "6,552 training images"),
        ("cct_7_3x1_32", "the best epoch on the test images"),
        ("vit_base_patch16_224", "not for commercial use"),
    ],
)
def test_figures_and_licenses_that_need_a_word(variant, warning, capsys):
    assert warning in "\n".join(lines_of(capsys, variant, "--pretrained"))


def test_recipes(capsys):
    rows = lines_of(capsys, "--recipes", "cifar10_*")
    names = ["cifar10_300", "cifar10_1500", "cifar10_5000"]
    assert [row.split()[0] for row in rows] == names
    assert rows[0].endswith(RECIPES["cifar10_300"].about)
    names = [row.split()[0] for row in lines_of(capsys, "--recipes")]
    assert names == cct_keras.list_recipes()


@pytest.mark.parametrize("flags", [[], ["--pretrained"], ["--recipes"]])
def test_nothing_matches(flags, capsys):
    assert cli.main(["list", "resnet*", *flags]) == 2
    assert "matches 'resnet*'" in capsys.readouterr().err
