"""`cct-keras evaluate` and `cct-keras predict`."""

import json

from cct_keras.cli.main import main


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_evaluate_command(folder, model_file, capsys):
    code, text, _ = run(capsys, "evaluate", model_file, folder)
    assert code == 0
    assert "top-1   100.00% (95 % interval" in text
    assert "green" in text
    code, text, _ = run(capsys, "evaluate", model_file.parent, folder, "--json")
    assert json.loads(text)["top1"] == 1.0


def test_predict_command(folder, model_file, capsys, tmp_path):
    image = next((folder / "red").iterdir())
    code, text, _ = run(capsys, "predict", model_file, image, "--top", "2")
    assert code == 0
    assert text.splitlines()[0] == str(image)
    assert text.splitlines()[1].endswith("  red")
    assert len(text.splitlines()) == 3
    (tmp_path / "bad.jpg").write_bytes(b"")
    code, text, error = run(
        capsys, "predict", model_file, image, tmp_path / "bad.jpg", "--json"
    )
    assert code == 2
    assert json.loads(text)[0]["classes"][0]["name"] == "red"
    assert "bad.jpg" in error
    assert len(error.splitlines()) == 1


def test_predict_command_draws_a_figure(folder, model_file, capsys, tmp_path):
    picture = tmp_path / "figure.png"
    code, _, error = run(
        capsys, "predict", model_file, folder / "red", "--figure", picture
    )
    assert code == 0
    assert error == f"figure: {picture}\n"
    assert picture.read_bytes().startswith(b"\x89PNG")
