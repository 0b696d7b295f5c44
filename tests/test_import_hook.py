"""Loading our files needs `import cct_keras` and `import keras`, in whatever order.

The rules of the hook are tested with small packages, and the whole with Keras in fresh
processes.
"""

import importlib
import importlib.util
import json
import os
import pathlib
import pkgutil
import subprocess
import sys
import threading
import types

import pytest

import cct_keras
from cct_keras.import_hook import when_imported

GOLDEN = pathlib.Path(__file__).parent / "golden" / "version_0_1"


# === The rules, with small packages ===


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Writes `library` and `ours`, and restores the import system in the end.

    `ours.layers` needs `ours.kernels`, which needs the library: if `ours.kernels` is
    imported first, the library is complete while it is not.
    """
    files = {
        "library.py": "",
        "ours/__init__.py": "",
        "ours/free.py": "",
        "ours/kernels.py": "import library\ndef kernel():\n    pass\n",
        "ours/layers.py": "import library\nfrom ours.kernels import kernel\n",
        "ours/broken.py": "import library\n1 / 0\n",
    }
    (tmp_path / "ours").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in list(sys.modules):
        if name == "library" or name.split(".")[0] == "ours":
            del sys.modules[name]


@pytest.fixture
def calls(packages):
    """Waits for the library, and collects what is complete at each call."""
    found = []

    def register():
        importlib.import_module("ours.layers")
        found.append(sorted(n for n in sys.modules if n.startswith("ours.")))

    finders = len(sys.meta_path)
    when_imported("library", register, package="ours")
    assert len(sys.meta_path) == finders + 1
    return found


def is_waiting():
    return any(type(f).__module__ == "cct_keras.import_hook" for f in sys.meta_path)


def test_the_library_is_imported_first(packages):
    importlib.import_module("library")
    calls = []
    when_imported("library", lambda: calls.append(1), package="ours")
    assert calls == [1]
    assert not is_waiting()


def test_the_library_is_imported_later(calls):
    importlib.import_module("ours.free")
    assert calls == []
    importlib.import_module("library")
    assert calls == [["ours.free", "ours.kernels", "ours.layers"]]
    assert not is_waiting()
    importlib.reload(sys.modules["library"])
    assert len(calls) == 1


@pytest.mark.parametrize("name", ["kernels", "layers"])
def test_one_of_our_modules_imports_the_library_first(calls, name):
    module = importlib.import_module(f"ours.{name}")
    assert module.kernel is sys.modules["ours.kernels"].kernel
    assert calls == [["ours.kernels", "ours.layers"]]
    assert not is_waiting()


def test_one_of_our_modules_fails(calls):
    with pytest.raises(ZeroDivisionError):
        importlib.import_module("ours.broken")
    assert len(calls) == 1


def test_the_library_cannot_be_imported_at_first(calls, packages):
    (packages / "library.py").write_text("raise ImportError('no backend')")
    for module in ("library", "ours.kernels", "library"):
        with pytest.raises(ImportError, match="no backend"):
            importlib.import_module(module)
    assert calls == []
    (packages / "library.py").write_text("")
    importlib.import_module("library")
    assert len(calls) == 1


def test_the_library_is_not_installed(calls, packages):
    (packages / "library.py").unlink()
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError, match="library"):
        importlib.import_module("library")
    assert is_waiting()


def test_the_function_fails_at_first(packages):
    failures = [RuntimeError("no such layer")]

    def register():
        if failures:
            raise failures.pop()

    when_imported("library", register, package="ours")
    with pytest.raises(RuntimeError, match="no such layer"):
        importlib.import_module("library")
    assert is_waiting()
    importlib.import_module("library")
    assert not is_waiting()


def test_the_package_is_reloaded(calls):
    finders = list(sys.meta_path)
    when_imported("library", lambda: calls.append("again"), package="ours")
    assert sys.meta_path == finders
    importlib.reload(importlib.import_module("ours.free"))
    importlib.import_module("library")
    assert len(calls) == 1


def test_modules_look_as_without_the_hook(calls):
    for name in ("ours.free", "library"):
        module = importlib.import_module(name)
        assert module.__loader__ is module.__spec__.loader
        assert type(module.__loader__).__name__ == "SourceFileLoader"
        assert module.__spec__.loader.get_source(name) == ""
    assert importlib.util.find_spec("ours").submodule_search_locations


def test_finding_a_module_without_importing_it(calls):
    spec = importlib.util.find_spec("library")
    assert spec.loader.get_source("library") == ""
    assert calls == []
    assert importlib.util.find_spec("ours.nothing") is None


@pytest.mark.parametrize("position", [0, 1], ids=["before ours", "after ours"])
def test_another_finder_of_the_same_kind(calls, position):
    """That of wrapt asks all finders again."""
    wrapt = pytest.importorskip("wrapt")
    others = []
    wrapt.register_post_import_hook(others.append, "library")
    own = [
        f for f in sys.meta_path if not isinstance(f, wrapt.importer.ImportHookFinder)
    ]
    sys.meta_path[:] = own
    sys.meta_path.insert(position, wrapt.importer.ImportHookFinder())
    library = importlib.import_module("library")
    assert others == [library]
    assert len(calls) == 1


def test_two_threads(calls, packages, monkeypatch):
    """While one imports the library, the other begins a module that needs it."""
    state = types.ModuleType("state_of_this_test")
    state.started = threading.Event()
    monkeypatch.setitem(sys.modules, state.__name__, state)
    (packages / "library.py").write_text(
        f"import time\nfrom {state.__name__} import started\n"
        "started.set()\ntime.sleep(0.2)\n"
    )
    errors = []

    def run(name, begin):
        begin.wait(10)
        try:
            importlib.import_module(name)
        except BaseException as error:
            errors.append(error)

    at_once = threading.Event()
    at_once.set()
    threads = [
        threading.Thread(target=run, args=arguments, daemon=True)
        for arguments in (("library", at_once), ("ours.kernels", state.started))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert errors == []
    assert len(calls) == 1


def test_a_thread_begins_while_the_function_runs(packages):
    """It does not wait for the thread that has imported the library."""
    errors = []

    def other():
        try:
            importlib.import_module("ours.kernels")
        except BaseException as error:
            errors.append(error)

    def register():
        thread = threading.Thread(target=other, daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
        importlib.import_module("ours.layers")

    when_imported("library", register, package="ours")
    importlib.import_module("library")
    assert errors == []


# === With Keras ===

# A process that has imported everything Keras needs, and forgotten `keras` itself,
# stands for a fresh one: it forks for each program, which takes a tenth of a second.
FORKING = """
import json, os, sys, traceback
import keras
del sys.modules["keras"]
for name, program in json.loads(sys.stdin.read()).items():
    reader, writer = os.pipe()
    if not os.fork():
        try:
            exec(program, {})
            result = "complete"
        except BaseException:
            result = traceback.format_exc()
        os.write(writer, result.encode()[-4000:])
        os._exit(0)
    os.close(writer)
    os.wait()
    with os.fdopen(reader) as file:
        print(json.dumps([name, file.read()]))
"""
LOAD = f"""
import keras
import numpy as np
model = keras.models.load_model({str(GOLDEN / "cct.keras")!r})
stored = np.load({str(GOLDEN / "cct.npz")!r})
outputs = keras.ops.convert_to_numpy(model(stored["x"]))
np.testing.assert_allclose(outputs, stored["y"], atol=1e-5)
"""
FILES = sorted(path.name for path in GOLDEN.glob("*.keras"))
ORDERS = {
    "ours first": "import cct_keras, keras",
    "Keras first": "import keras, cct_keras",
    "a submodule without Keras first": "import cct_keras.models.variants, keras",
    "a submodule with Keras first": "import cct_keras.models.parts",
    "only a layer": "from cct_keras.layers.seq_pool import SeqPool",
}


def module_names():
    names = pkgutil.walk_packages(cct_keras.__path__, "cct_keras.")
    return [module.name for module in names]


@pytest.fixture(scope="module")
def results():
    """What became of each program, all of them in one run."""
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork")
    programs = {name: order + LOAD for name, order in ORDERS.items()}
    programs |= {
        name: "import cct_keras, keras\n"
        f"keras.models.load_model({str(GOLDEN / name)!r})"
        for name in FILES
    }
    programs |= {
        name: f"import {name}\nimport keras\n"
        "assert 'cct_keras>SeqPool' in keras.saving.get_custom_objects()"
        for name in module_names()
    }
    result = subprocess.run(
        [sys.executable, "-c", FORKING],
        input=json.dumps(programs),
        # On JAX a fork warns; the order of imports is the same on all backends.
        env={**os.environ, "KERAS_BACKEND": "tensorflow"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return dict(json.loads(line) for line in result.stdout.splitlines())


@pytest.mark.integration
@pytest.mark.parametrize("name", [*ORDERS, *FILES])
def test_a_file_loads(results, name):
    assert results[name] == "complete"


@pytest.mark.integration
@pytest.mark.parametrize("name", module_names())
def test_every_module_can_be_imported_first(results, name):
    assert results[name] == "complete"


@pytest.mark.integration
def test_a_file_loads_in_a_fresh_process():
    """Nothing was imported before, and nothing of the package is used."""
    subprocess.run(
        [sys.executable, "-c", "import cct_keras" + LOAD],
        capture_output=True,
        check=True,
    )
