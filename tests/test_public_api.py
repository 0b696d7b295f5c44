"""The public names: the table, the stub for editors, and what importing them costs."""

import ast
import importlib
import pathlib
import pkgutil
import subprocess
import sys

import pytest

import cct_keras

PACKAGE = pathlib.Path(cct_keras.__file__).parent
SLOW = ("keras", "tensorflow", "jax", "torch", "numpy", "matplotlib", "sklearn", "PIL")


def test_table_stub_and_dir_have_the_same_names():
    stub = {}
    for node in ast.parse((PACKAGE / "__init__.pyi").read_text()).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                # Only `import x as x` counts as a re-export.
                assert alias.asname == alias.name
                stub[alias.name] = node.module
    modules = {name for name, home in stub.items() if home == "cct_keras"}
    assert modules == set(cct_keras._MODULES)
    homes = {name: home for name, home in stub.items() if name not in modules}
    assert homes == cct_keras._HOMES
    assert set(cct_keras.__all__) == set(stub)
    assert dir(cct_keras) == sorted(cct_keras.__all__)


@pytest.mark.parametrize("name", cct_keras._HOMES)
def test_a_name_is_where_the_table_says(name):
    home = importlib.import_module(cct_keras._HOMES[name])
    value = getattr(cct_keras, name)
    assert value is vars(home)[name]
    assert value.__module__ == home.__name__
    assert value.__doc__


@pytest.mark.parametrize("name", cct_keras._MODULES)
def test_a_public_module(name):
    assert getattr(cct_keras, name) is importlib.import_module(f"cct_keras.{name}")


def test_no_module_is_named_like_a_public_function():
    """Importing such a module would replace the function by itself."""
    modules = {module.name for module in pkgutil.iter_modules(cct_keras.__path__)}
    assert not modules & set(cct_keras._HOMES)


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="'cct_keras' has no attribute 'CTC'"):
        cct_keras.CTC  # noqa: B018
    assert not hasattr(cct_keras, "os")


@pytest.mark.parametrize(
    "statement",
    [
        "import cct_keras",
        "from cct_keras import CCTKerasError, errors",
        "from cct_keras import list_models, list_weights",
        "from cct_keras.models.cost import variant_cost",
    ],
)
def test_what_needs_no_keras_imports_none(statement):
    code = f"{statement}\nimport sys\nprint([n for n in {SLOW} if n in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
