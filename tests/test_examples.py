"""The example scripts run; none is only read."""

import pathlib
import re
import subprocess
import sys

import keras
import pytest

import cct_keras  # noqa: F401, lets Keras load the files

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


@pytest.mark.integration
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.name)
def test_script(path, tmp_path):
    result = subprocess.run(
        [sys.executable, path, "--smoke", "--out", tmp_path / "run"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    (accuracy,) = re.findall(r"test accuracy: ([\d.]+)%", result.stdout)
    assert 0 <= float(accuracy) <= 100
    model = keras.models.load_model(tmp_path / "run" / "model.keras")
    assert model.input_shape[:3] == (None, None, None)
