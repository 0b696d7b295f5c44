"""Who imports whom, and what an import costs."""

import ast
import os
import pathlib
import subprocess
import sys

import pytest

import cct_keras

PACKAGE = pathlib.Path(cct_keras.__file__).parent
ALLOWED = {
    "layers": set(),
    "notes": set(),
    # `pretrained` only inside functions: constructors take weights by name.
    "models": {"layers", "pretrained", "bfloat16"},
    "converter": {
        "models",
        "layers",
        "download",
        "bfloat16",
        "atomic_file",
        "notes",
    },
    "data": {"layers", "download"},
    "pretrained": {
        "converter",
        "models",
        "layers",
        "data",
        "download",
        "atomic_file",
    },
    "training": {
        "models",
        "layers",
        "data",
        "pretrained",
        "atomic_file",
        "download",
        "notes",
    },
    "benchmark": {"measuring", "models", "layers", "data", "training"},
    # Alone in the process of a rival.
    "measuring": set(),
    "atomic_file": set(),
    "bfloat16": set(),
    "download": set(),
    "quiet": set(),
}
HEAVY = (
    "tensorflow",
    "tensorflow_datasets",
    "keras_cv",
    "torch",
    "sklearn",
    "matplotlib",
)


def imports_of(path, top_level_only=False):
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module


def modules():
    return sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports(path):
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for name in imports_of(path):
        assert not name.startswith("keras.src")
        target = name.split(".")[1:2] if name.startswith("cct_keras.") else []
        assert part in {*ALLOWED, "cli", "__init__"}
        if part in ALLOWED and target and target[0] != part:
            assert target[0] in ALLOWED[part], f"{part} imports {name}"
    for name in imports_of(path, top_level_only=True):
        assert part != "models" or name != "cct_keras.pretrained"
        assert name.split(".")[0] not in HEAVY, f"{name} at the top of {path.name}"


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_import_adds_nothing_heavy_to_keras(backend):
    code = (
        "import importlib.util, sys\n"
        f"if importlib.util.find_spec({backend!r}) is None: sys.exit(77)\n"
        "import keras\n"
        "before = set(sys.modules)\n"
        "import cct_keras\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        f"print(sorted(new & set({HEAVY!r})))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode == 77:
        pytest.skip(f"{backend} is not installed")
    assert result.stdout.strip() == "[]", result.stderr
