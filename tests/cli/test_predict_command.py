"""`cct-keras predict`, with shipped weights."""

import json
import pathlib

import pytest

from cct_keras.cli import main as cli

MODEL = "cct_2_3x2_32.mnist"
SAMPLES = pathlib.Path(__file__).parent.parent / "samples" / "mnist"
SEVEN = str(SAMPLES / "7" / "0000.png")


def test_an_image(capsys):
    assert cli.main(["predict", MODEL, SEVEN, "--top", "2"]) == 0
    name, *classes = capsys.readouterr().out.splitlines()
    assert name == SEVEN
    assert len(classes) == 2
    assert classes[0].split()[1] == "7"


def test_json_and_a_file_that_is_no_image(capsys, tmp_path):
    """What can be read is answered, and then comes the error."""
    text = tmp_path / "text.png"
    text.write_text("no image")
    assert cli.main(["predict", MODEL, SEVEN, str(text), str(text), "--json"]) == 2
    captured = capsys.readouterr()
    rows = json.loads(captured.out)
    assert rows[0]["classes"][0]["name"] == "7"
    assert "text.png" in rows[1]["error"]
    assert "text.png" in captured.err
    assert captured.err.endswith("(and 1 more)\n")


def test_a_figure(capsys, tmp_path):
    figure = tmp_path / "figure.png"
    assert cli.main(["predict", MODEL, SEVEN, "--figure", str(figure)]) == 0
    assert capsys.readouterr().err == f"figure: {figure}\n"
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([MODEL, SEVEN, "--figure", "a.txt"], "--figure must end in .png, .svg, .pdf"),
        (["cct_2_3x2_33.mnist", SEVEN], "Did you mean: cct_2_3x2_32"),
        ([MODEL, "none.png"], "none.png"),
    ],
)
def test_refusals(arguments, message, capsys):
    assert cli.main(["predict", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
