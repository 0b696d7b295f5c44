"""The example notebooks run; a file of their own, for another process."""

import os
import pathlib
import re

import pytest

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda p: p.name)
def test_notebook(path, tmp_path, monkeypatch):
    import nbclient
    import nbformat

    monkeypatch.setitem(os.environ, "MPLBACKEND", "agg")
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        # Fewer, for the time of the tests
        cell.source = cell.source.replace("epochs=20", "epochs=8")
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
