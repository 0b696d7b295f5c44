"""`predict.py`: the runtime in one file."""

import ast
import builtins
import collections
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import venv

import pytest

import cct_keras
from cct_keras.runtime.single_file import PARTS
from cct_keras.runtime.single_file import single_file

# The exporters' own.
pytestmark = pytest.mark.filterwarnings("ignore")


def defined_names(tree):
    """What the lines of a module define, each as often as it is defined."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                yield from (name.id for name in names)


def test_every_name_is_defined_once():
    counts = collections.Counter(defined_names(ast.parse(single_file())))
    assert [name for name, count in counts.items() if count > 1] == []
    assert not set(counts) & set(dir(builtins))


def test_python_3_9_reads_it():
    text = single_file()
    tree = ast.parse(text, feature_version=(3, 9))
    compile(tree, "predict.py", "exec", dont_inherit=True)
    # What came with Python 3.10.
    assert "strict=" not in text
    future = tree.body[1]
    assert (future.module, future.names[0].name) == ("__future__", "annotations")


def test_it_says_what_it_is():
    text = single_file()
    assert text.startswith("#!")
    head = ast.get_docstring(ast.parse(text))
    assert f"cct_keras {cct_keras.__version__}" in head
    assert "pip install numpy pillow onnxruntime" in head
    assert "python predict.py model.onnx photo.jpg" in head


def test_it_holds_the_whole_runtime():
    """A new module of the runtime has to be named."""
    folder = pathlib.Path(cct_keras.__file__).parent / "runtime"
    modules = {f"runtime/{file.name}" for file in folder.glob("*.py")}
    left_out = {"runtime/__init__.py", "runtime/single_file.py"}
    assert modules - left_out == {part for part in PARTS if "/" in part}
    tree = ast.parse(single_file())
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert not any(name.startswith("cct_keras") for name in imported)


def test_it_is_loaded_by_its_path(tmp_path):
    path = tmp_path / "predict.py"
    path.write_text(single_file())
    spec = importlib.util.spec_from_file_location("by_hand", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.Classifier.__module__ == "by_hand"
    assert "by_hand" not in sys.modules


@pytest.fixture
def beside(onnx_file, pictures, tmp_path):
    """A folder with a model, the script that was written with it, and a picture."""
    folder = tmp_path / "beside"
    folder.mkdir()
    for file in (onnx_file, onnx_file.parent / "predict.py", pictures / "picture.bmp"):
        shutil.copy(file, folder)
    return folder


@pytest.fixture
def isolated(tmp_path):
    """Runs Python where only NumPy, Pillow and onnxruntime can be imported."""
    packages = tmp_path / "packages"
    packages.mkdir()
    import numpy
    import onnxruntime
    import PIL

    for module in (numpy, PIL, onnxruntime):
        folder = pathlib.Path(module.__file__).parent
        (packages / folder.name).symlink_to(folder)
        # Shared libraries of wheels.
        for libraries in folder.parent.glob(f"{folder.name.lower()}*.libs"):
            (packages / libraries.name).symlink_to(libraries)

    def run(*words, folder, without=()):
        for name in without:
            (packages / name).unlink()
        return subprocess.run(
            [sys.executable, "-S", *map(str, words)],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(packages)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.integration
def test_the_command_without_the_package(beside, isolated):
    expected = cct_keras.predict(
        beside / "model.onnx", str(beside / "picture.bmp"), top=2
    )
    result = isolated(
        "predict.py", "picture.bmp", "--json", "--top", "2", folder=beside
    )
    assert (result.returncode, result.stderr) == (0, "")
    (row,) = json.loads(result.stdout)
    assert row["classes"] == expected[0]["classes"]
    result = isolated(
        "predict.py", "model.onnx", "picture.bmp", "gone.png", folder=beside
    )
    assert result.returncode == 2
    assert result.stdout.splitlines()[0] == "picture.bmp"
    assert result.stderr == "predict.py: error: no such file: gone.png\n"


def test_the_module_without_the_package(beside, isolated):
    code = (
        "import sys, numpy, predict\n"
        "classifier = predict.Classifier('model.onnx')\n"
        "print(classifier(numpy.zeros((2, 50, 40, 3), 'uint8')).shape)\n"
        "print('cct_keras' in sys.modules)\n"
    )
    result = isolated("-c", code, folder=beside)
    assert result.stdout.split("\n")[:2] == ["(2, 10)", "False"], result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("picture.bmp", "name the model first; beside this file there is: a.onnx, mo"),
        ("model.tflite picture.bmp", "no such model file: model.tflite"),
        ("a.onnx picture.bmp", "a.onnx is cut off, or was not written by"),
        (
            "model.onnx picture.bmp --top 0",
            "--top must be 1 or more. Received: --top 0",
        ),
    ],
)
def test_refusals(words, message, beside, isolated):
    (beside / "a.onnx").write_text("no model")
    result = isolated("predict.py", *words.split(), folder=beside)
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert message in result.stderr


@pytest.mark.parametrize("package", ["numpy", "PIL", "onnxruntime"])
def test_a_missing_package(package, beside, isolated):
    result = isolated("predict.py", "picture.bmp", folder=beside, without=[package])
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert "run `pip install" in result.stderr


@pytest.mark.integration
def test_a_fresh_environment(beside, tmp_path):
    """Really installed: NumPy, Pillow and onnxruntime, then this package alone."""
    venv.create(tmp_path / "venv", with_pip=True)
    scripts = tmp_path / "venv" / "bin"
    root = pathlib.Path(cct_keras.__file__).parent.parent

    def run(*words):
        return subprocess.run(
            list(map(str, words)),
            cwd=beside,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )

    for arguments in (["numpy", "pillow", "onnxruntime"], ["--no-deps", str(root)]):
        result = run(scripts / "pip", "install", "-q", *arguments)
        if result.returncode:
            pytest.skip(f"pip cannot install: {result.stderr.splitlines()[-1]}")
    script = run(scripts / "python", "-I", "predict.py", "picture.bmp")
    assert (script.returncode, script.stderr) == (0, "")
    command = run(scripts / "cct-keras", "predict", "model.onnx", "picture.bmp")
    assert (command.returncode, command.stdout) == (0, script.stdout)
    code = (
        "import cct_keras; print(cct_keras.runtime.Classifier('model.onnx').metadata)"
    )
    assert run(scripts / "python", "-c", code).returncode == 0
    missing = run(scripts / "cct-keras", "train", "digits")
    assert missing.returncode == 2
    assert missing.stderr == (
        "cct-keras: error: keras is not installed: run `pip install cct-keras`, which "
        "installs all that this command needs\n"
    )
