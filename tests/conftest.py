import os
import pathlib
import sys

# On the torch backend Keras has to come before TensorFlow.
import keras
import pytest

TESTS = pathlib.Path(__file__).parent
# Helpers are imported by their names, from whichever folder.
sys.path[:0] = [str(path) for path in (TESTS, *TESTS.glob("*/"), *TESTS.glob("*/*/"))]
# Scripts that wrote the files beside them.
collect_ignore_glob = ["golden/*", "samples/*"]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def pytest_addoption(parser):
    """Options of `tests/fuzz`; a folder's own conftest would come too late."""
    group = parser.getgroup("fuzz")
    group.addoption("--fuzz-cases", type=int, default=150, help="damaged files to read")
    group.addoption("--fuzz-seed", type=int, default=0, help="which ones")


def pytest_terminal_summary(terminalreporter):
    """The figures of `tests/fuzz`."""
    reports = [
        x for kind in ("passed", "failed") for x in terminalreporter.getreports(kind)
    ]
    for report in reports:
        for name, value in report.user_properties:
            if name == "fuzz":
                terminalreporter.write_line(f"{report.nodeid}: {value}")


@pytest.fixture(autouse=True)
def fresh_keras_state():
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy("float32")
    yield
    keras.config.set_dtype_policy("float32")
    keras.utils.clear_session(free_memory=False)
