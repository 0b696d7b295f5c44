"""`export`: files that other runtimes open, and that answer as the Keras model does."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from small import FAMILIES
from small import PLAIN_VITS
from small import small_model

import cct_keras
from cct_keras.errors import ExportError

pytestmark = pytest.mark.filterwarnings("ignore")  # The converters' own.
DIGITS = "cct_2_3x2_32.digits"
MODELS = {family: (family, {}) for family in FAMILIES} | {
    name: ("ViT", arguments)
    for name, arguments in PLAIN_VITS.items()
    if arguments.get("include_top", True)
}


@pytest.fixture(scope="module")
def digits():
    """Handwritten digits from 0 to 255, in the size of the shipped model."""
    from sklearn.datasets import load_digits

    pixels = np.kron(load_digits().images[:24], np.ones((1, 2, 2))) * 255 / 16
    return np.rint(pixels)[..., None].astype("float32")


@pytest.fixture(scope="module")
def digits_onnx(tmp_path_factory):
    folder = tmp_path_factory.mktemp("onnx")
    return cct_keras.export(DIGITS, folder / "d.onnx", license="CC0")


def keras_answers(model, images):
    model = cct_keras.load_classifier(model)
    return keras.ops.convert_to_numpy(model.predict_on_batch(images))


def raw_model(family="CCT", **arguments):
    """A model for raw pixels, with class names and constants of its own."""
    images = keras.Input((None, None, 3))
    layer = cct_keras.layers.Preprocessing(
        (16, 20),
        mean=(0.4, 0.5, 0.6),
        std=(0.2, 0.3, 0.4),
        crop=0.9,
        class_names=("ant", "bee", "<b>cat</b>", "dög", "eel"),
    )
    return small_model(
        family, input_shape=None, input_tensor=layer(images), **arguments
    )


def pictures(count, height=16, width=20, channels=3, seed=1):
    generator = np.random.default_rng(seed)
    return generator.integers(0, 256, (count, height, width, channels)).astype(
        "float32"
    )


def run_onnx(path, images):
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (source,) = session.get_inputs()
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {source.name: images}), strict=True))


def run_litert(path, images):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path))
    source = interpreter.get_input_details()[0]["index"]
    interpreter.resize_tensor_input(source, images.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(source, images)
    interpreter.invoke()
    outputs = [
        interpreter.get_tensor(output["index"])
        for output in interpreter.get_output_details()
    ]
    return sorted(outputs, key=np.ndim)


# === Formats ===


def test_onnx_takes_raw_pixels_of_any_batch(digits, digits_onnx):
    exported = digits_onnx
    for count in (1, 5):
        outputs = run_onnx(exported.path, digits[:count])
        assert list(outputs) == ["probabilities"]
        expected = keras_answers(DIGITS, digits[:count])
        np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)
    folder = exported.path.parent
    assert exported.files == (folder / "d.onnx", folder / "parity.json")
    assert set(folder.iterdir()) == set(exported.files)
    record = json.loads((folder / "parity.json").read_text())["d.onnx"]
    assert record == exported.parity
    assert record["largest_difference"] < 1e-5
    assert record["same_top1"] == 64
    assert record["bytes"] == exported.path.stat().st_size


def test_onnx_knows_its_classes_and_its_origin(digits_onnx):
    import onnx

    properties = onnx.load(digits_onnx.path).metadata_props
    stored = {item.key: json.loads(item.value) for item in properties}
    assert stored["class_names"] == list("0123456789")
    assert stored["image_size"] == [16, 16]
    assert stored["channels"] == 1
    assert stored["variant"] == "cct_2_3x2_32"
    assert stored["license"] == "CC0"
    assert stored["trained_on"]["name"] == "scikit-learn's digits"
    assert stored["version"] == cct_keras.__version__
    assert {"mean", "std", "crop", "interpolation"} <= stored.keys()


def check_operations_of(path, opset, norms):
    import onnx

    model = onnx.load(path)
    kinds = [node.op_type for node in model.graph.node]
    assert model.opset_import[0].version == opset
    assert kinds.count("LayerNormalization") == norms
    assert "Pad" not in kinds
    assert kinds.count("MaxPool") == 2


def test_onnx_has_whole_operations(digits_onnx):
    check_operations_of(digits_onnx.path, opset=17, norms=5)


@pytest.mark.integration
@pytest.mark.parametrize("opset", [13, 18])
def test_onnx_of_other_opsets(digits, opset, tmp_path):
    exported = cct_keras.export(DIGITS, tmp_path / "d.onnx", opset=opset)
    check_operations_of(exported.path, opset, norms=0 if opset == 13 else 5)
    output = run_onnx(exported.path, digits)["probabilities"]
    np.testing.assert_allclose(output, keras_answers(DIGITS, digits), atol=1e-5)


@pytest.mark.integration
def test_litert(digits, tmp_path):
    import zipfile

    exported = cct_keras.export(DIGITS, tmp_path / "d.tflite")
    for count in (1, 5):
        (output,) = run_litert(exported.path, digits[:count])
        expected = keras_answers(DIGITS, digits[:count])
        np.testing.assert_allclose(output, expected, atol=1e-5)
    with zipfile.ZipFile(exported.path) as archive:
        assert archive.read("labels.txt").decode().split() == list("0123456789")
        assert json.loads(archive.read("cct_keras.json"))["package"] == "cct_keras"


@pytest.mark.integration
def test_openvino(digits, tmp_path):
    import openvino

    exported = cct_keras.export(DIGITS, tmp_path / "d.xml")
    compiled = openvino.Core().compile_model(
        str(exported.path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    output = compiled(digits[:5])[compiled.output(0)]
    np.testing.assert_allclose(output, keras_answers(DIGITS, digits[:5]), atol=1e-5)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"d.xml", "d.bin", "parity.json"}


@pytest.mark.integration
def test_saved_model_takes_any_size(tmp_path):
    import tensorflow as tf

    model = raw_model()
    exported = cct_keras.export(model, tmp_path / "saved", format="saved_model")
    serve = tf.saved_model.load(str(exported.path)).signatures["serving_default"]
    for shape in ((16, 20), (37, 61), (9, 5)):
        images = pictures(2, *shape)
        output = serve(images=tf.constant(images))["probabilities"].numpy()
        expected = keras_answers(model, images)
        np.testing.assert_allclose(output, expected, atol=1e-5)
    stored = json.loads((exported.path / "cct_keras.json").read_text())
    assert stored["class_names"][2:4] == ["<b>cat</b>", "dög"]
    # Once more over itself, as after more training.
    cct_keras.export(model, tmp_path / "saved", format="saved_model")
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


# === Models ===


@pytest.mark.integration
@pytest.mark.parametrize("suffix", [".onnx", ".tflite"])
@pytest.mark.parametrize("name", MODELS)
def test_every_family(name, suffix, tmp_path):
    family, arguments = MODELS[name]
    model, path = raw_model(family, **arguments), tmp_path / f"model{suffix}"
    cct_keras.export(model, path)
    images = pictures(3)
    if suffix == ".onnx":
        output = run_onnx(path, images)["probabilities"]
    else:
        (output,) = run_litert(path, images)
    np.testing.assert_allclose(output, keras_answers(model, images), atol=1e-5)


@pytest.mark.integration
@pytest.mark.parametrize(
    "arguments",
    [
        {"classifier_activation": None},
        {"positional_embedding": "sine"},
        {"positional_embedding": None, "num_conv_layers": 1},
        {"kernel_size": 7},
        {"pooling_kernel_size": 2, "pooling_padding": 0},
        {"dtype": "mixed_bfloat16"},
    ],
    ids=str,
)
def test_every_kind_of_model(arguments, tmp_path):
    model = raw_model(**arguments)
    exported = cct_keras.export(model, tmp_path / "m.onnx")
    images = pictures(3)
    expected = keras_answers(model, images).astype("float32")
    if arguments.get("classifier_activation", "softmax") is None:
        expected = keras.ops.convert_to_numpy(keras.ops.softmax(expected))
    # A model that computes in half precision is exported in float32.
    tolerance = 2e-2 if "dtype" in arguments else 1e-5
    output = run_onnx(exported.path, images)["probabilities"]
    np.testing.assert_allclose(output, expected, atol=tolerance)


@pytest.mark.integration
def test_models_of_normalized_images(tmp_path):
    model = small_model("CCT", num_classes=4)
    exported = cct_keras.export(
        model,
        tmp_path / "m.onnx",
        mean=(0.1, 0.2, 0.3),
        std=(0.4, 0.5, 0.6),
        class_names=("a", "b", "c", "d"),
    )
    images = pictures(3, 16, 16)
    normalized = (images / 255 - [0.1, 0.2, 0.3]) / [0.4, 0.5, 0.6]
    expected = keras_answers(model, normalized.astype("float32"))
    output = run_onnx(exported.path, images)["probabilities"]
    np.testing.assert_allclose(output, expected, atol=1e-5)
    assert exported.metadata.class_names == ("a", "b", "c", "d")
    guessed = cct_keras.export(model, tmp_path / "g.onnx")
    assert any("`mean` and `std`" in note for note in guessed.notes)
    assert any("numbered" in note for note in guessed.notes)


@pytest.mark.integration
def test_official_checkpoint(tmp_path):
    """A file in the layout of the authors, without any preprocessing."""
    model = cct_keras.create_model("cct_2_3x2_32", num_classes=10)
    checkpoint = tmp_path / "official.safetensors"
    cct_keras.to_torch(model, checkpoint)
    exported = cct_keras.export(checkpoint, tmp_path / "m.onnx")
    # CIFAR-10's constants: the authors published nothing else of ten classes.
    assert exported.metadata.mean == pytest.approx((0.4914, 0.4822, 0.4465))
    assert exported.metadata.image_size == (32, 32)


@pytest.mark.integration
def test_run_folder_and_lora(tmp_path):
    model = cct_keras.add_lora(raw_model(), rank=2)
    adapter = model.get_layer("block_0").attention.qkv.lora_b
    adapter.assign(np.random.default_rng(0).normal(0, 0.1, adapter.shape))
    (tmp_path / "run").mkdir()
    model.save(tmp_path / "run" / "model.keras")
    exported = cct_keras.export(tmp_path / "run", tmp_path / "m.onnx")
    images = pictures(3)
    output = run_onnx(exported.path, images)["probabilities"]
    np.testing.assert_allclose(output, keras_answers(model, images), atol=1e-5)


# === Options ===


@pytest.mark.integration
@pytest.mark.parametrize("suffix", [".onnx", ".tflite", ".xml"])
def test_all_options_at_once(suffix, tmp_path):
    model, path = raw_model(), tmp_path / f"m{suffix}"
    exported = cct_keras.export(
        model, path, batch=2, input_dtype="uint8", layout="nchw", logits=True, maps=True
    )
    metadata = exported.metadata
    assert metadata.input_shape == (2, 3, 16, 20)
    assert metadata.maps == (4, 5)
    images = pictures(5)
    classifier = cct_keras.runtime.Classifier(path)
    expected = keras_answers(model, images)
    np.testing.assert_allclose(classifier(images), expected, atol=1e-5)
    maps = classifier.maps(images)
    assert maps.shape == (5, 4, 5)
    np.testing.assert_allclose(maps.sum((1, 2)), 1, atol=1e-5)
    assert exported.parity["largest_map_difference"] < 1e-5
    shown = cct_keras.explain(model, images.astype("uint8"), "seqpool", verbose=False)
    np.testing.assert_allclose(maps, shown.token_maps, atol=1e-4)
    if suffix == ".onnx":
        raw = images[:2].astype("uint8").transpose(0, 3, 1, 2)
        outputs = run_onnx(path, np.ascontiguousarray(raw))
        assert list(outputs) == ["logits", "maps"]
        odds = np.exp(outputs["logits"])
        np.testing.assert_allclose(odds / odds.sum(1)[:, None], expected[:2], atol=1e-5)


@pytest.mark.integration
@pytest.mark.parametrize("suffix", [".onnx", ".tflite", ".xml"])
def test_float16_is_half_as_large(digits, suffix, tmp_path):
    single = cct_keras.export(DIGITS, tmp_path / f"single{suffix}")
    half = cct_keras.export(DIGITS, tmp_path / f"half{suffix}", precision="float16")
    assert half.parity["bytes"] < 0.6 * single.parity["bytes"]
    answers = cct_keras.runtime.Classifier(half.path)(digits)
    np.testing.assert_allclose(answers, keras_answers(DIGITS, digits), atol=1e-2)
    assert set(json.loads((tmp_path / "parity.json").read_text())) == {
        f"single{suffix}",
        f"half{suffix}",
    }


@pytest.mark.integration
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_other_backends_export_by_a_child_process(backend, tmp_path):
    code = (
        "import importlib.util, sys\n"
        f"if importlib.util.find_spec({backend!r}) is None: sys.exit(77)\n"
        "from cct_keras.cli.main import main\n"
        f"sys.exit(main(['export', {DIGITS!r}, sys.argv[1]]))\n"
    )
    for name in ("d.onnx", "d.tflite"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / name)],
            env={**os.environ, "KERAS_BACKEND": backend},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 77:
            pytest.skip(f"{backend} is not installed")
        assert done.returncode == 0, done.stderr
        assert "by a child process on TensorFlow" in done.stdout
        assert "same first class: 64 of 64" in done.stdout


def test_export_command(tmp_path, capsys):
    from cct_keras.cli.main import main

    out = tmp_path / "d.onnx"
    assert main(["export", DIGITS, str(out), "--data", "digits"]) == 0
    printed = capsys.readouterr().out
    assert "10 classes, images of 16 x 16 x 1" in printed
    assert "validation images of digits" in printed
    assert "(at most 1e-04)" in printed
    assert f"wrote {out}" in printed


# === Refusals ===


def refusals(model):
    return {
        "unknown suffix": ((model, "m.pb"), {}, r"let it end in \.onnx, \.tflite"),
        "suffix of another format": ((model, "m.onnx"), {"format": "litert"}, "tflite"),
        "unknown format": ((model, "m.onnx"), {"format": "onxn"}, "Did you mean: onnx"),
        "precision": ((model, "m.onnx"), {"precision": "int4"}, "precision='int4'"),
        "int8 without data": ((model, "m.onnx"), {"precision": "int8"}, "`data`"),
        "batch": ((model, "m.onnx"), {"batch": 0}, "batch=0"),
        "opset": ((model, "m.onnx"), {"opset": 9}, "opset=9"),
        "opset of LiteRT": ((model, "m.tflite"), {"opset": 13}, "no `opset`"),
        "layout": ((model, "m.onnx"), {"layout": "chw"}, "layout='chw'"),
        "input": ((model, "m.onnx"), {"input_dtype": "int8"}, "input_dtype='int8'"),
        "mean alone": ((model, "m.onnx"), {"mean": (1, 1, 1)}, "both `mean` and `std`"),
        "std": ((model, "m.onnx"), {"mean": [0], "std": [1]}, "each of the 3 channels"),
        "names": ((model, "m.onnx"), {"class_names": ["a"]}, "5 classes"),
        "no folder": ((model, "no/m.onnx"), {}, "does not exist"),
        "no model": (("nothing.keras", "m.onnx"), {}, "no such model"),
        "ort": ((model, "m.onnx"), {"ort": "x"}, "format='web'"),
        "number": ((3, "m.onnx"), {}, "Received: int"),
    }


@pytest.fixture(scope="module")
def model():
    return raw_model()


@pytest.mark.parametrize("case", list(refusals(None)))
def test_refusals(case, tmp_path, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    arguments, options, message = refusals(model)[case]
    with pytest.raises(ExportError, match=message):
        cct_keras.export(*arguments, **options)
    assert not list(tmp_path.iterdir())


def strangers():
    def dense():
        return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, "softmax")])

    def with_more_layers():
        ours = raw_model()
        more = keras.layers.Dense(3, "softmax", name="more")(ours.output)
        return keras.Model(ours.input, more)

    def of_any_size():
        shape = (None, None, 3)
        return small_model("CCT", input_shape=shape, positional_embedding=None)

    return {
        "not ours": (dense, "ConvTokenizer"),
        "more layers": (with_more_layers, "not a model of this package"),
        "no head": (lambda: raw_model(include_top=False), "head"),
        "sigmoid": (lambda: raw_model(classifier_activation="sigmoid"), "sigmoid"),
        "any size": (of_any_size, "one size"),
    }


@pytest.mark.parametrize("case", list(strangers()))
def test_models_that_are_refused(case, tmp_path):
    make, message = strangers()[case]
    with pytest.raises(ExportError, match=message):
        cct_keras.export(make(), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_maps_need_sequence_pooling(tmp_path):
    with pytest.raises(ExportError, match="ViTLite has none"):
        cct_keras.export(raw_model("ViTLite"), tmp_path / "m.onnx", maps=True)


def test_missing_package(tmp_path, monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    missing = ("tf2onnx", "onnxruntime")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n, *a: None if n in missing else find(n, *a)
    )
    with pytest.raises(ExportError, match="pip install tf2onnx onnxruntime$"):
        cct_keras.export(DIGITS, tmp_path / "m.onnx")


def test_what_is_not_ours_stays(tmp_path, model):
    (tmp_path / "parity.json").write_text("{}[")
    with pytest.raises(ExportError, match="parity.json was not written by this"):
        cct_keras.export(model, tmp_path / "m.onnx")
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "holiday.jpg").write_text("dear")
    with pytest.raises(ExportError, match="is not empty"):
        cct_keras.export(model, folder, format="saved_model")
    assert (folder / "holiday.jpg").read_text() == "dear"
    (tmp_path / "m.tflite").mkdir()
    with pytest.raises(ExportError, match="is a folder"):
        cct_keras.export(model, tmp_path / "m.tflite")


def test_a_file_that_differs_is_not_written(tmp_path, monkeypatch, capsys):
    """What a fault of a converter would do, made by changing a weight on its way."""
    from cct_keras.cli.main import main
    from cct_keras.exporting import trace

    build = trace.build_body

    def build_other(architecture, arrays):
        kernel = arrays["head/kernel"]
        return build(architecture, {**arrays, "head/kernel": kernel + 0.1 * kernel[0]})

    monkeypatch.setattr(trace, "build_body", build_other)
    assert main(["export", DIGITS, str(tmp_path / "m.onnx")]) == 2
    assert "was not written: its answers differ" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_operations_outside_the_standard_are_refused():
    """As the antialiased resize of TensorFlow, of which tf2onnx makes a dead file."""
    import onnx
    from onnx import TensorProto
    from onnx import helper

    from cct_keras.exporting.onnx_file import check_operations

    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy"]
    node = helper.make_node("ScaleAndTranslate", ["x"], ["y"])
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    assert isinstance(model, onnx.ModelProto)
    with pytest.raises(ExportError, match="ScaleAndTranslate"):
        check_operations(model)


@pytest.mark.integration
def test_full_disk(tmp_path):
    """A limit on the size of files stands for a disk that is full."""
    code = (
        "import resource, signal, sys\n"
        "from cct_keras.cli.main import main\n"
        "from cct_keras.cli.quiet import import_keras_quietly\n"
        "import_keras_quietly(with_tensorflow=True)\n"
        "import tf2onnx, onnxruntime\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        f"sys.exit(main(['export', {DIGITS!r}, sys.argv[1], *sys.argv[2:]]))\n"
    )
    for name in ("m.onnx", "m.tflite", "m.xml"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / name)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
        assert "cannot be written" in done.stderr
        assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no /proc")
def test_place_that_cannot_be_written():
    """Not even by root."""
    with pytest.raises(ExportError, match="cannot be written"):
        cct_keras.export(DIGITS, "/proc/self/m.onnx")
