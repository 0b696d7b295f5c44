"""Files that are damaged, foreign or hostile: one line, whatever is wrong."""

import dataclasses
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

import numpy as np
import pytest

import cct_keras
from cct_keras.cli.main import main
from cct_keras.errors import CCTKerasError
from cct_keras.errors import DataError
from cct_keras.errors import MissingPackageError
from cct_keras.runtime import Classifier
from cct_keras.runtime import Metadata
from cct_keras.runtime.litert_engine import add_litert_metadata
from cct_keras.runtime.onnx_engine import seal_onnx

# The exporters' own.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.integration]

# What `seal_onnx` adds to a file.
SEAL_BYTES = len(seal_onnx(b""))
METADATA = Metadata(("cat", "dog"), (32, 32), 3, (0.5,) * 3, (0.25,) * 3)


def refused(path):
    with pytest.raises(CCTKerasError) as error:
        Classifier(path)
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


@pytest.mark.parametrize("suffix", [".onnx", ".tflite", ".xml"])
def test_what_is_no_model(suffix, tmp_path):
    path = tmp_path / f"model{suffix}"
    assert "no such model file" in refused(path)
    path.mkdir()
    assert "is a folder" in refused(path)
    path.rmdir()
    path.write_bytes(b"")
    assert "is empty" in refused(path)
    path.write_text("no model")
    assert str(path) in refused(path)
    path.with_suffix(".bin").write_bytes(b"")
    assert str(tmp_path) in refused(path)


def test_other_names(tmp_path):
    assert "is not an exported model" in refused(tmp_path / "model.keras")
    assert "is not an exported model" in refused(tmp_path)
    with pytest.raises(DataError, match="`threads` must be 1 or more"):
        Classifier(tmp_path / "model.onnx", threads=0)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root reads all files")
def test_a_file_that_may_not_be_read(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"model")
    path.chmod(0)
    assert "cannot be read: Permission denied" in refused(path)


def damaged(content):
    """Ways in which a disk, a network or an editor damages a file."""
    yield content[:-1]
    yield content[: len(content) // 2]
    yield content[100:]
    yield content + b"\n"
    for place in (5, len(content) // 3, len(content) // 2, len(content) - 90):
        yield content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize("format", ["onnx", "litert"])
def test_damage(format, export_to, tmp_path, capsys):
    whole = export_to(format)
    path = tmp_path / whole.name
    for content in damaged(whole.read_bytes()):
        path.write_bytes(content)
        assert str(path) in refused(path)
    assert main(["predict", str(path), "photo.jpg"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.integration
@pytest.mark.parametrize("damaged_file", ["model.xml", "model.bin"])
def test_damage_to_an_openvino_model(damaged_file, export_to, tmp_path):
    whole = export_to("openvino")
    for content in damaged((whole.parent / damaged_file).read_bytes()):
        for file in ("model.xml", "model.bin"):
            shutil.copy(whole.parent / file, tmp_path)
        Classifier(tmp_path / "model.xml")
        (tmp_path / damaged_file).write_bytes(content)
        assert str(tmp_path) in refused(tmp_path / "model.xml")
    (tmp_path / "model.bin").unlink()
    assert "needs the file model.bin beside it" in refused(tmp_path / "model.xml")


@pytest.mark.integration
@pytest.mark.parametrize("file", ["saved_model.pb", "cct_keras.json", "variables"])
def test_damage_to_a_saved_model(file, export_to, tmp_path):
    whole = export_to("saved_model")
    for number in range(8):
        folder = shutil.copytree(whole, tmp_path / str(number))
        path = folder / file
        if path.is_dir():
            path = max(path.iterdir(), key=lambda file: file.stat().st_size)
        path.write_bytes(list(damaged(path.read_bytes()))[number])
        if number != 3 or file != "cct_keras.json":
            assert str(folder) in refused(folder)


def forge(onnx_file, path, change):
    """A copy of an ONNX file with other contents and a right hash."""
    import onnx

    model = onnx.load(onnx_file)
    change(model)
    path.write_bytes(seal_onnx(model.SerializeToString()))
    return path


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("package", "other", "was not written by"),
        ("format_version", 2, "later version"),
        ("format_version", "1", "must be an integer"),
        ("class_names", ["cat"], "metadata claim outputs"),
        ("class_names", [], "must be a list of names"),
        ("class_names", "cat", "must be a list of names"),
        ("class_names", [1] * 10, "must be a list of names"),
        ("image_size", [16, 16], "its graph has"),
        ("image_size", [10**9, 10**9], "at most 4096"),
        ("image_size", [32], "at most 4096"),
        ("image_size", [10**400, 1], "at most 4096"),
        ("channels", 1, "one value for each of 1 channels"),
        ("channels", True, "must be 1 or 3"),
        ("mean", [float("nan")] * 3, "1 or 3 numbers"),
        ("std", [0, 1, 1], "above 0"),
        ("mean", [10**400] * 3, "1 or 3 numbers"),
        ("crop", 0, r"in (0, 1]"),
        ("interpolation", "lanczos", "'bicubic'"),
        ("input_dtype", "object", "'float32'"),
        ("layout", "nchw", "its graph has"),
        ("batch", 10**12, "a positive integer or null"),
        ("batch", 65536, "too large"),
        ("output", ["logits"], "'probabilities'"),
        ("maps", [4, 4], "2 outputs"),
        ("trained_on", {"name": "x"}, "name, fingerprint and cut"),
        ("trained_on", [[[]]], "name, fingerprint and cut"),
        ("name", "x" * 200_000, "must be a text"),
        ("license", {"a": {"b": {}}}, "a text or null"),
        ("class_names_known", 1, "true or false"),
    ],
)
def test_hostile_metadata(field, value, message, onnx_file, tmp_path):
    def change(model):
        for entry in model.metadata_props:
            if entry.key == field:
                entry.value = json.dumps(value)

    found = refused(forge(onnx_file, tmp_path / "model.onnx", change))
    assert message in found
    assert len(found) < 300 + len(str(tmp_path))


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "", "nope", "1" * 5000])
def test_metadata_that_are_no_json(text, onnx_file, tmp_path):
    def change(model):
        for entry in model.metadata_props:
            if entry.key == "class_names":
                entry.value = text

    assert "broken" in refused(forge(onnx_file, tmp_path / "model.onnx", change))
    path = tmp_path / "model.tflite"
    path.write_bytes(b"\0\0\0\0TFL3")
    assert "not written by" in refused(path)


def test_models_of_others(onnx_file, tmp_path):
    path = forge(
        onnx_file, tmp_path / "model.onnx", lambda m: m.ClearField("metadata_props")
    )
    assert "was not written by `cct_keras.export`" in refused(path)
    shutil.copy(onnx_file, path)
    path.write_bytes(path.read_bytes()[:-SEAL_BYTES])
    assert "was not written by `cct_keras.export`" in refused(path)
    path = tmp_path / "model.tflite"
    path.write_bytes(add_litert_metadata(b"\0\0\0\0TFL3 and nothing else", METADATA))
    pytest.importorskip("ai_edge_litert")
    assert "is not a whole LiteRT file" in refused(path)


def test_weights_in_other_files(onnx_file, tmp_path):
    """A hostile file could name any file of the machine as its weights."""

    def change(model):
        tensor = model.graph.initializer[0]
        tensor.data_location = 1
        entry = tensor.external_data.add()
        entry.key, entry.value = "location", "/etc/passwd"

    path = forge(onnx_file, tmp_path / "model.onnx", change)
    assert "names other files" in refused(path)


def test_a_graph_without_its_claim(onnx_file, tmp_path):
    def two_inputs(model):
        model.graph.input.append(model.graph.input[0])
        model.graph.input[1].name = "other"

    path = forge(onnx_file, tmp_path / "model.onnx", two_inputs)
    assert "2 inputs" in refused(path)
    path.write_bytes(seal_onnx(b""))
    assert "broken" in refused(path) or "not a whole ONNX" in refused(path)


@pytest.mark.parametrize(
    ("format", "module", "package"),
    [
        ("onnx", "onnxruntime", "onnxruntime"),
        ("litert", "ai_edge_litert.interpreter", "ai-edge-litert"),
        pytest.param("openvino", "openvino", "openvino", marks=pytest.mark.integration),
        ("onnx", "PIL.Image", "pillow"),
    ],
)
def test_a_missing_package(
    format, module, package, export_to, pictures, monkeypatch, capsys
):
    path = export_to(format)
    monkeypatch.setitem(sys.modules, module, None)
    picture = str(pictures / "picture.bmp")
    with pytest.raises(MissingPackageError, match=f"run `pip install {package}`"):
        cct_keras.predict(path, picture)
    assert main(["predict", str(path), picture]) == 2
    error = capsys.readouterr().err
    assert f"`pip install {package}`" in error
    assert len(error.splitlines()) == 1


def test_metadata_go_there_and_back():
    every = dataclasses.replace(
        METADATA,
        batch=4,
        maps=(8, 8),
        variant="cct_2_3x2_32",
        trained_on={
            "name": "pets",
            "fingerprint": "f",
            "cut": {"validation": 0.1, "test": 0.15, "seed": 3},
        },
    )
    assert Metadata.from_json(every.to_json(), "x") == every
    assert Metadata.from_json_fields(every.to_json_fields(), "x") == every
    later = {**every.to_dict(), "unknown": 1}
    assert Metadata.from_dict(later) == every


CHILD = """
import sys, numpy
from cct_keras.errors import CCTKerasError
from cct_keras.runtime import open_engine
for path in map(str.strip, sys.stdin):
    try:
        engine = open_engine(path)
        shape = (2, *engine.metadata.image_size, engine.metadata.channels)
        engine.probabilities(numpy.zeros(shape, "float32"))
    except CCTKerasError:
        pass
    print("alive", flush=True)
"""


@pytest.mark.integration
def test_no_flipped_bits_end_the_process(onnx_file, tmp_path):
    """Even where the hash is right, which no accident brings about."""
    content = onnx_file.read_bytes()[:-SEAL_BYTES]
    path, choose = tmp_path / "model.onnx", random.Random(0)
    root = str(pathlib.Path(cct_keras.__file__).parent.parent)
    with subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": root},
        text=True,
    ) as child:
        for _ in range(300):
            changed = bytearray(content)
            for _ in range(choose.choice([1, 1, 3, 30])):
                changed[choose.randrange(len(changed))] ^= 1 << choose.randrange(8)
            path.write_bytes(seal_onnx(bytes(changed)))
            child.stdin.write(f"{path}\n")
            child.stdin.flush()
            assert child.stdout.readline() == "alive\n"
        child.stdin.close()


def test_a_huge_model_is_fed_in_small_batches(onnx_file, monkeypatch):
    from cct_keras.runtime import prediction

    monkeypatch.setattr(prediction, "BATCH_NUMBERS", 2 * 32 * 32 * 3)
    batches = prediction.load_batches(
        np.zeros((5, 40, 40, 3), "uint8"), Classifier(onnx_file).metadata
    )
    assert [len(images) for _, images in batches] == [2, 2, 1]
