"""The examples run; none is only read."""

import os
import pathlib
import re
import subprocess
import sys

import keras
import pytest

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


def test_quickstart(tmp_path):
    script = EXAMPLES / "quickstart.py"
    assert len(script.read_text().splitlines()) < 60
    result = subprocess.run(
        [sys.executable, script, "--epochs", "5", "--out", tmp_path / "digits.keras"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "accuracy" in result.stdout
    (accuracy,) = re.findall(r"test accuracy: ([\d.]+)%", result.stdout)
    assert float(accuracy) > 60
    assert keras.models.load_model(tmp_path / "digits.keras").output_shape == (None, 10)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda p: p.name)
def test_notebook(path, tmp_path, monkeypatch):
    import nbclient
    import nbformat

    monkeypatch.setitem(os.environ, "MPLBACKEND", "agg")
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    text = "".join(
        output.get("text", "")
        for cell in notebook.cells
        for output in cell.get("outputs", [])
    )
    (accuracy,) = re.findall(r"test accuracy: ([\d.]+)%", text)
    assert float(accuracy) > 95
