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
    rows = lines_of(capsys, "cct_14*", "--pretrained")[1:]
    assert len(rows) == 3
    expected = ["cct_14_7x2_224", "imagenet", "1000", "80.67", "%", "published"]
    assert rows[0].split() == expected
    assert len(lines_of(capsys, "--pretrained")) == 1 + len(WEIGHTS)


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
