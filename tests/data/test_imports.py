"""Rows and records of plain data import nothing heavy."""

import subprocess
import sys

HEAVY = ("keras", "tensorflow", "numpy", "PIL", "sklearn", "tensorflow_datasets")
LIGHT = (
    "cct_keras.data.known",
    "cct_keras.data.augmentation.settings",
    "cct_keras.data.augmentation.policies",
    "cct_keras.geometry",
)


def imported(modules):
    code = (
        f"import sys, {', '.join(modules)}; print(*(set(sys.modules) & {set(HEAVY)}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(result.stdout.split())


def test_light_modules():
    assert imported(LIGHT) == set()


def test_loading_data_needs_no_keras():
    assert imported(["cct_keras.data.dataset"]) == {"numpy"}
