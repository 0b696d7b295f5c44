"""How fast the same model is in different runtimes, side by side.

    python benchmarks/runtimes.py [VARIANT ...] [--out FOLDER]

A model with fresh weights is exported in float32 and int8 and runs in onnxruntime,
LiteRT and OpenVINO, beside Keras as `predict` uses it, and beside `vit_pytorch` (if it
is installed), eager and by `torch.compile`. Every contestant has a process of its own;
they take turns. `runtimes.json` is written to the folder.
"""

import argparse
import importlib.util
import json
import pathlib

import numpy as np

import cct_keras
from cct_keras.benchmarking.measuring import Contestant
from cct_keras.benchmarking.measuring import TaskError
from cct_keras.benchmarking.measuring import measure
from cct_keras.models.variants import VARIANTS
from cct_keras.models.variants import constructor_arguments

HERE = pathlib.Path(__file__)
PEERS = str(HERE.parent / "peers.py")
# Images per step of inference.
BATCHES = {"cct_2_3x2_32": 128, "cct_7_3x1_32": 64, "cct_14_7x2_224": 16}
TASKS = ("opening", "latency", "inference")
BASE = "Keras, float32"


def main():
    """Exports, measures, and prints a table for each variant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "variants", nargs="*", metavar="VARIANT", help=f"of {', '.join(BATCHES)}"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--out", type=pathlib.Path, default="runs/runtimes")
    arguments = parser.parse_args()
    unknown = set(arguments.variants) - set(BATCHES)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(BATCHES)}")
    if arguments.rounds < 1:
        parser.error("--rounds must be 1 or more")
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "runtimes.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    for variant in arguments.variants or BATCHES:
        contestants = find_contestants(variant, arguments.out)
        timings = measure(
            contestants, TASKS, rounds=arguments.rounds, seconds=arguments.seconds
        )
        results[variant] = {
            name: {
                "one_image_ms": 1000 * timing["latency"].best,
                "images_per_second": BATCHES[variant] / timing["inference"].best,
            }
            for name, timing in timings.items()
        }
        file.write_text(json.dumps(results, indent=1))
        print_table(variant, results[variant])


def find_contestants(variant, folder):
    """The exported files in their runtimes, Keras, and PyTorch."""
    batch = BATCHES[variant]
    found = [
        Contestant(
            f"Keras, {precision}",
            "cct_keras.benchmarking.benchmark:variant_tasks",
            {
                "variant": variant,
                "batch_size": 1,
                "inference_batch_size": batch,
                "precision": policy,
            },
            {"KERAS_BACKEND": "tensorflow"},
        )
        for precision, policy in (
            ("float32", "float32"),
            ("bfloat16", "mixed_bfloat16"),
        )
    ]
    for (runtime, precision), path in export_all(variant, folder).items():
        found.append(
            Contestant(
                f"{runtime}, {precision}",
                "cct_keras.benchmarking.exported:exported_tasks",
                {"path": str(path), "batch_size": batch},
            )
        )
        if (runtime, precision) == ("OpenVINO", "float32"):
            arguments = {"path": str(path), "variant": variant, "batch_size": batch}
            found.append(
                Contestant("OpenVINO, bfloat16", f"{HERE}:openvino_bfloat16", arguments)
            )
    if importlib.util.find_spec("vit_pytorch"):
        peer = {
            "architecture": constructor_arguments(VARIANTS[variant]),
            "batch_size": batch,
        }
        for precision in ("float32", "bfloat16"):
            for compiled in (False, True):
                name = "torch.compile" if compiled else "PyTorch"
                settings = {**peer, "compiled": compiled, "precision": precision}
                found.append(
                    Contestant(
                        f"{name}, {precision}",
                        f"{PEERS}:vit_pytorch_inference",
                        settings,
                    )
                )
    return found


def export_all(variant, folder):
    """The files of a model in each runtime and precision."""
    row = VARIANTS[variant]
    random, side = np.random.default_rng(0), row.image_size
    images = random.integers(0, 256, (64, side, side, 3), "uint8")
    labels = np.arange(len(images)) % 4
    model, files = None, {}
    for precision in ("float32", "int8"):
        for runtime, suffix in (
            ("onnxruntime", "onnx"),
            ("LiteRT", "tflite"),
            ("OpenVINO", "xml"),
        ):
            path = folder / f"{variant}-{precision}.{suffix}"
            files[runtime, precision] = path
            if path.exists():
                continue
            model = model or cct_keras.create_model(variant)
            data = (images, labels) if precision == "int8" else None
            cct_keras.export(model, path, precision=precision, data=data)
    return files


def openvino_bfloat16(path, variant, batch_size):
    """The float32 file, computed in bfloat16 on request."""
    import openvino

    core = openvino.Core()
    hint = {"INFERENCE_PRECISION_HINT": "bf16"}
    request = core.compile_model(path, "CPU", hint).create_infer_request()
    side = VARIANTS[variant].image_size
    images = np.full((batch_size, side, side, 3), 127, "float32")

    def run(count, images):
        for _ in range(count):
            request.infer([images])

    return {
        "latency": lambda count: run(count, images[:1]),
        "inference": lambda count: run(count, images),
    }


def print_table(variant, rows):
    """A row for each contestant, with its ratio to Keras in float32."""
    base = rows[BASE]
    print(f"\n### {variant}, batches of {BATCHES[variant]}\n")
    print("| | one image | | images/s | |\n|---|---|---|---|---|")
    for name, row in rows.items():
        single = base["one_image_ms"] / row["one_image_ms"]
        many = row["images_per_second"] / base["images_per_second"]
        print(
            f"| {name} | {row['one_image_ms']:.2f} ms | {single:.2f}x | "
            f"{row['images_per_second']:,.0f} | {many:.2f}x |"
        )
    print(flush=True)


if __name__ == "__main__":
    try:
        main()
    except TaskError as error:
        raise SystemExit(f"runtimes.py: {error}") from error
