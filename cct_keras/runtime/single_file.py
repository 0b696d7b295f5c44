"""`predict.py`: the runtime as one file, for places where only NumPy, Pillow and a
runtime are installed."""

import ast
import importlib.resources

import cct_keras

HEADER = '''\
#!/usr/bin/env python3
"""Classifies pictures with a model that cct_keras {version} exported.

    pip install numpy pillow onnxruntime       # ai-edge-litert for a .tflite file,
                                               # openvino for an .xml file
    python predict.py photo.jpg folder/        # with the model beside this file
    python predict.py model.onnx photo.jpg --top 3 --json

or in Python, with files, arrays of any size, or pictures of Pillow:

    from predict import Classifier
    classifier = Classifier("model.onnx")
    probabilities = classifier(["photo.jpg"])  # an array (pictures, classes)
    answers = classifier.predict("photo.jpg", top=3)

Neither cct_keras nor Keras is needed. `cct-keras export --script` made this file of the
modules of `cct_keras.runtime`; it is under their license, Apache 2.0.
"""
'''
FOOTER = """

if UNREGISTERED:
    del sys.modules[__name__]
if __name__ == "__main__":
    sys.exit(main(folder=os.path.dirname(os.path.abspath(__file__))))
"""
# A file comes after those that it imports.
PARTS = (
    "errors.py",
    "geometry.py",
    "model_files.py",
    "quiet.py",
    "runtime/messages.py",
    "runtime/packages.py",
    "runtime/files.py",
    "runtime/metadata.py",
    "runtime/ranking.py",
    "runtime/listing.py",
    "runtime/image_files.py",
    "runtime/resize.py",
    "runtime/engine.py",
    "runtime/onnx_engine.py",
    "runtime/litert_engine.py",
    "runtime/openvino_engine.py",
    "runtime/saved_model_engine.py",
    "runtime/formats.py",
    "runtime/prediction.py",
    "runtime/printing.py",
    "runtime/classifier.py",
    "runtime/command.py",
)
# What comes after the other imports.
PREAMBLE = """\
try:
    import numpy as np
except ModuleNotFoundError:
    if __name__ != "__main__":
        raise
    command = "pip install numpy pillow onnxruntime"
    print(f"predict.py: error: numpy is missing: run `{command}`", file=sys.stderr)
    sys.exit(2)

# A dataclass looks up its module, which not all who load a file by hand register.
UNREGISTERED = __name__ not in sys.modules
if UNREGISTERED:
    sys.modules[__name__] = sys
"""


def single_file() -> str:
    """Makes one Python file of the runtime.

    Returns:
        The text of the file. It runs on Python 3.9 and later, as a command and as a
        module.

    Example:

    >>> text = single_file()
    >>> "class Classifier" in text, "import cct_keras" in text
    (True, False)
    """
    root = importlib.resources.files(cct_keras)
    imports, bodies = set(), []
    for name in PARTS:
        text = (root / name).read_text(encoding="utf-8")
        found, body = _take_apart(text)
        imports |= found
        title = ast.get_docstring(ast.parse(text)).splitlines()[0].rstrip(".")
        bodies.append(f"# === {title} ===\n\n{body}")
    imports.discard("import numpy as np")
    # Python 3.9 reads the types in signatures only as text.
    lines = ["from __future__ import annotations", "", *_sorted_imports(imports)]
    header = HEADER.format(version=cct_keras.__version__)
    code = "\n\n\n".join(bodies)
    return f"{header}\n" + "\n".join(lines) + f"\n\n{PREAMBLE}\n\n{code}\n{FOOTER}"


def _take_apart(text):
    """The imports of a module from outside the package, and the code below them."""
    lines, imports, start = text.splitlines(), set(), 0
    for node in ast.parse(text).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            start = node.end_lineno
            if not ast.unparse(node).startswith("from cct_keras"):
                imports.add(ast.unparse(node))
        elif isinstance(node, ast.Expr) and node.lineno == 1:
            start = node.end_lineno
    return imports, "\n".join(lines[start:]).strip()


def _sorted_imports(imports):
    """Plain imports first, as ruff sorts them."""
    return sorted(imports, key=lambda line: (line.startswith("from"), line))
