"""Who imports whom, and what an import costs."""

import ast
import os
import pathlib
import subprocess
import sys

import pytest

import cct_keras

PACKAGE = pathlib.Path(cct_keras.__file__).parent
# Single files at the top that import nothing of the package but each other.
LEAVES = {
    "atomic_file",
    "cache",
    "checks",
    "download",
    "errors",
    "geometry",
    "hub",
    "import_hook",
    "model_files",
    "notes",
    "quiet",
    "run_files",
    "spelling",
}
MODELS = {"models", "layers", "kernels"}
STORED = {"pretrained", "converter", "data", "runtime", *MODELS}
# Every room and the rooms it may import, at the top of a file or inside a function.
ALLOWED = {
    "kernels": set(),
    "runtime": set(),
    "layers": {"kernels"},
    "models": {"layers"},
    "data": {"layers", "runtime"},
    "converter": {"models", "layers"},
    "pretrained": {"converter", "data", "models", "layers"},
    "recipes": {"data", "models", "pretrained"},
    "inference": {"recipes", *STORED},
    "drawing": set(),
    "exporting": {"inference", *STORED},
    "explaining": {"drawing", "inference", *STORED},
    "finetuning": {"inference", "recipes", *STORED},
    "distillation": {"recipes", *STORED},
    "distributed": {"recipes", *STORED},
    "report": {"drawing", "explaining", "inference", "recipes", *STORED},
    "training": {
        "drawing",
        "report",
        "explaining",
        "distillation",
        "finetuning",
        "distributed",
        "inference",
        "recipes",
        *STORED,
    },
    "publishing": {"training", "inference", "recipes", *STORED},
    "studies": {"training", "drawing", "recipes", *STORED},
    "benchmarking": {"training", "finetuning", "inference", "recipes", *STORED},
    # The public face: the table of names and what Keras has to know.
    "registration": {"layers", "finetuning", "distillation", "training"},
    "__init__": {"pretrained"},
}
HEAVY = (
    "tensorflow",
    "tensorflow_datasets",
    "keras_cv",
    "torch",
    "sklearn",
    "scipy",
    "matplotlib",
    "PIL",
)


def imports_of(path, top_level_only=False):
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            # `from cct_keras.data import dataset` imports a module too.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules():
    return sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports(path):
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert room in {*ALLOWED, *LEAVES, "cli"}, f"{room} is not on the plan"
    for name in imports_of(path):
        assert not name.startswith("keras.src")
        target = name.split(".")[1] if name.startswith("cct_keras.") else room
        if room == "cli" or target == room or target in {*LEAVES, "__version__"}:
            continue
        assert target in ALLOWED.get(room, ()), f"{room} imports {name}"
    for name in imports_of(path, top_level_only=True):
        assert name.split(".")[0] not in HEAVY, f"{name} at the top of {path.name}"


def test_the_plan_has_no_circle():
    reached = {room: set(targets) for room, targets in ALLOWED.items()}
    for _ in reached:
        for targets in reached.values():
            targets |= {far for near in set(targets) for far in reached.get(near, ())}
    assert not [room for room, targets in reached.items() if room in targets]


@pytest.mark.integration
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
