"""The example notebooks run, to the end and as they are: `pytest -m slow`."""

import os
import pathlib
import re

import pytest

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


@pytest.mark.slow
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
    assert float(accuracy) > 90
