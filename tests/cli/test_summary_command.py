"""`cct-keras summary`."""

import pytest

from cct_keras.cli import main as cli


def test_facts(capsys):
    assert cli.main(["summary", "cct_14_7x2_384"]) == 0
    output = capsys.readouterr().out
    for fact in ("22,513,193", "15.01 G", "3.57 G", "576", "14 / 6 / 384", "MiB"):
        assert fact in output


@pytest.mark.parametrize(
    ("size", "image", "tokens"),
    [(["48", "64"], "48 x 64 x 3", "768"), (["48"], "48 x 48 x 3", "576")],
)
def test_another_size(size, image, tokens, capsys):
    assert cli.main(["summary", "cct_7_3x1_32", "--image-size", *size]) == 0
    facts = capsys.readouterr().out.splitlines()
    assert facts[1].split(maxsplit=1)[1] == image
    assert ["tokens", tokens] in [fact.split() for fact in facts]


def test_other_classes(capsys):
    assert cli.main(["summary", "cct_2_3x2_32", "--num-classes", "100"]) == 0
    # 283,723 with 10 classes; a class has 128 weights and a bias.
    assert f"{283_723 + 90 * 129:,}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cct_7_3x1"], "Did you mean: cct_7_3x1_32"),
        (["cvt_7_4_32", "--image-size", "30", "32"], "divisible"),
        (["cct_7_3x1_32", "--image-size", "0", "32"], "positive"),
        (["cct_7_3x1_32", "--num-classes", "-1"], "--num-classes"),
    ],
)
def test_refusals(arguments, message, capsys):
    assert cli.main(["summary", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert message in captured.err
