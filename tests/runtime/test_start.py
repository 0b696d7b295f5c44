"""Exported models are answered for without Keras, and so at once.

`benchmarks/startup.py` measures the times; here is only what is imported.
"""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import cct_keras

# The exporters' own.
pytestmark = pytest.mark.filterwarnings("ignore")

ROOT = pathlib.Path(cct_keras.__file__).parent.parent
SLOW = ("keras", "tensorflow", "scipy", "sklearn", "matplotlib", "yaml", "h5py")
CODE = """
import sys
{code}
print("imported:", *({slow!r} & sys.modules.keys()))
"""


def imported(code, slow=SLOW):
    """What a program imports, of what takes long, and what it prints."""
    result = subprocess.run(
        [sys.executable, "-c", CODE.format(code=code, slow=set(slow))],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stderr == ""
    return result.stdout.rpartition("imported:")[2].split()


def command(*words):
    words = [str(word) for word in words]
    return f"from cct_keras.cli.main import main\nassert main({words!r}) == 0"


@pytest.fixture
def folder(tmp_path):
    generator = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for index in range(2):
            pixels = generator.integers(0, 256, (40, 50, 3), "uint8")
            Image.fromarray(pixels).save(tmp_path / name / f"{index}.png")
    return tmp_path


@pytest.mark.parametrize("format", ["onnx", "litert"])
def test_one_picture(format, export_to, folder):
    predict = command("predict", export_to(format), folder / "cat" / "0.png")
    # A pool of threads for one picture would be a waste.
    assert imported(predict, (*SLOW, "concurrent", "tempfile")) == []


def test_a_folder_and_evaluation(onnx_file, folder):
    assert imported(command("predict", onnx_file, folder, "--json")) == []
    assert imported(command("evaluate", onnx_file, folder)) == []
    images, labels = np.zeros((4, 32, 32, 3), "uint8"), np.array(["cat", "dog"] * 2)
    np.savez(folder / "data.npz", x_train=images, y_train=labels)
    assert imported(command("evaluate", onnx_file, folder / "data.npz")) == []


def test_in_python(onnx_file, folder):
    code = (
        "import cct_keras\n"
        f"classifier = cct_keras.runtime.Classifier({str(onnx_file)!r})\n"
        f"classifier({str(folder / 'cat')!r})\n"
        f"cct_keras.predict({str(onnx_file)!r}, {str(folder)!r})"
    )
    assert imported(code) == []


def test_benchmark(onnx_file):
    words = ("--rounds", 1, "--seconds", 0.01)
    assert imported(command("benchmark", onnx_file, *words)) == []
