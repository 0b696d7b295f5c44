"""What do the choices of int8 cost in accuracy, and what do they bring?

    python benchmarks/quantization.py CIFAR10_FOLDER MNIST_FOLDER

Quantizes the shipped CCT-2/3x2 in each way and measures accuracy, size and speed
beside float32. The validation images compare the choices; of the test images only what
`export` uses is shown. Speeds are ratios to float32 in the same runtime: every file has
a process of its own, and they take turns.
"""

import argparse
import pathlib
import tempfile

import numpy as np

from cct_keras.benchmarking.measuring import Contestant
from cct_keras.benchmarking.measuring import measure
from cct_keras.exporting import int8_onnx
from cct_keras.exporting.export import describe
from cct_keras.exporting.graph import serving_function
from cct_keras.exporting.onnx_file import add_metadata
from cct_keras.exporting.parity import in_batches
from cct_keras.exporting.parity import paired_accuracy
from cct_keras.exporting.sample_images import CALIBRATED
from cct_keras.exporting.sample_images import dataset_images
from cct_keras.exporting.settings import ExportSettings
from cct_keras.exporting.subject import build_body
from cct_keras.exporting.subject import open_subject
from cct_keras.exporting.trace import write_graph
from cct_keras.exporting.trace import write_saved_model
from cct_keras.layers.preprocessing import Preprocessing
from cct_keras.runtime.formats import open_engine
from cct_keras.runtime.litert_engine import add_litert_metadata

CHOSEN = "as exported"
# Arguments of `int8_onnx.quantize` in place of its defaults.
ONNX_CHOICES = {
    CHOSEN: {},
    "per tensor": {"per_channel": False},
    "min-max": {"calibration": "min-max"},
    "entropy": {"calibration": "entropy"},
    "min-max, per tensor": {"calibration": "min-max", "per_channel": False},
    "8 bits of weights": {"full_range": True},
    "attention products too": {"attention_products": True},
    "additions and products too": {"operations": ("Conv", "MatMul", "Add", "Mul")},
    "convolutions alone": {"operations": ("Conv",)},
}
LITERT_CHOICES = (CHOSEN, "calibrated ranges")


def main():
    """Quantizes, measures and prints a table for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cifar10", type=pathlib.Path)
    parser.add_argument("mnist", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    models = {
        "cct_2_3x2_32.cifar10_jpeg": (str(arguments.cifar10), True),
        "cct_2_3x2_32.mnist": (str(arguments.mnist), False),
        "cct_2_3x2_32.digits": ("digits", False),
    }
    for name, (data, all_choices) in models.items():
        with tempfile.TemporaryDirectory() as folder:
            compare(name, data, all_choices, pathlib.Path(folder), arguments.rounds)


def compare(name, data, all_choices, folder, rounds):
    """Prints the table of one model."""
    subject = open_subject(name)
    calibration = dataset_images(subject, data, "train", CALIBRATED)
    files = {
        **write_onnx_files(subject, calibration.pixels, all_choices, folder),
        **write_litert_files(subject, calibration.pixels, all_choices, folder),
    }
    speeds = measure_speed(files, rounds)
    splits = {"validation": dataset_images(subject, data, "validation", 10_000)}
    splits["test"] = dataset_images(subject, data, "test", 10_000)
    counts = " and ".join(
        f"{len(samples.labels):,} {split}" for split, samples in splits.items()
    )
    print(f"\n### {name}, {counts} images\n")
    print(
        "| runtime | int8 | top-1, validation | lost | top-1, test | lost (95 % "
        "interval) | size | one image | batch of 64 |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    right = {
        key: {
            split: is_right(path, samples)
            for split, samples in splits.items()
            if split == "validation" or key[1] in (CHOSEN, "float32")
        }
        for key, path in files.items()
    }
    for (runtime, choice), path in files.items():
        before, after = right[runtime, "float32"], right[runtime, choice]
        cells = []
        for split in splits:
            if split not in after:
                cells += ["", ""]
                continue
            record = paired_accuracy(before[split], after[split])
            low, high = (100 * x for x in record["loss_ci95"])
            cells += [f"{record['after']:.2%}", f"{100 * record['loss']:.2f}"]
            if split == "test" and choice == CHOSEN:
                cells[-1] += f" ({low:.2f} to {high:.2f})"
        base, own = speeds[runtime, "float32"], speeds[runtime, choice]
        size = path.stat().st_size / files[runtime, "float32"].stat().st_size
        ratios = (base[t].best / own[t].best for t in ("latency", "inference"))
        cells += [f"{size:.2f}x", *(f"{ratio:.2f}x" for ratio in ratios)]
        print(f"| {runtime} | {choice} | {' | '.join(cells)} |", flush=True)


def write_onnx_files(subject, images, all_choices, folder):
    """The float32 file and the quantized ones, by runtime and choice."""
    settings = ExportSettings("onnx")
    source = folder / "float32.onnx"
    write_graph(subject, settings, source)
    files = {("onnxruntime", "float32"): source}
    for index, (choice, options) in enumerate(ONNX_CHOICES.items()):
        if all_choices or choice == CHOSEN:
            path = files["onnxruntime", choice] = folder / f"{index}.onnx"
            int8_onnx.quantize(source, path, images.astype("float32"), **options)
    for path in files.values():
        add_metadata(path, describe(subject, settings))
    return files


def write_litert_files(subject, images, all_choices, folder):
    """Likewise for LiteRT."""
    files = {}
    for precision, choice in (("float32", "float32"), ("int8", CHOSEN)):
        path = files["LiteRT", choice] = folder / f"{precision}.tflite"
        write_graph(subject, ExportSettings("litert", precision=precision), path)
    if all_choices:
        path = files["LiteRT", "calibrated ranges"] = folder / "calibrated.tflite"
        write_calibrated_litert(subject, images, path, folder / "saved_model")
    metadata = describe(subject, ExportSettings("litert"))
    for path in files.values():
        path.write_bytes(add_litert_metadata(path.read_bytes(), metadata))
    return files


def write_calibrated_litert(subject, images, path, saved_model):
    """A file whose activations are int8 by ranges from calibration images."""
    import tensorflow as tf

    known = ("image_size", "mean", "std", "crop", "interpolation")
    layer = Preprocessing(**{name: subject.preprocessing[name] for name in known})
    body = build_body(subject.architecture, subject.arrays)
    settings = ExportSettings("litert", precision="int8")
    function = serving_function(body, layer, settings)
    write_saved_model(function, body, settings, saved_model)
    converter = tf.lite.TFLiteConverter.from_saved_model(str(saved_model))
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: (
        [image[None].astype(np.float32)] for image in images
    )
    path.write_bytes(converter.convert())


def measure_speed(files, rounds):
    """Timings of all files, in turns."""
    contestants = [
        Contestant(
            "/".join(key),
            "cct_keras.benchmarking.exported:exported_tasks",
            {"path": str(path), "batch_size": 64},
        )
        for key, path in files.items()
    ]
    tasks = ("opening", "latency", "inference")
    timings = measure(contestants, tasks, rounds=rounds, seconds=0.5)
    return {key: timings["/".join(key)] for key in files}


def is_right(path, samples):
    """Whether each image is classified right."""
    answers = in_batches(open_engine(path).probabilities, samples.pixels)
    return answers.argmax(1) == samples.labels


if __name__ == "__main__":
    main()
