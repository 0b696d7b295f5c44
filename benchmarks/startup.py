"""How long the command takes to answer, and the package to import.

    python benchmarks/startup.py [--rounds N] [--export]

Each runs in a process of its own, in turn; the best of several rounds counts. Commands
that need no Keras must take at most a tenth of the time of `import keras`: the last
column is the share of that time. With `--export` a model is exported first, and one
picture is classified by each file; that may take a fifth.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

LIMIT = 0.1
# What computes a picture takes longer than what only prints.
PICTURE_LIMIT = 0.2
MODEL = "cct_2_3x2_32.cifar10_jpeg"
SAMPLES = pathlib.Path(__file__).parent.parent / "tests" / "samples" / "cifar10_jpeg"
REFERENCE = "import keras"
# Name in the table: arguments of Python, and the expected exit code.
IMPORTS = {
    "an empty program": (["-c", "pass"], 0),
    REFERENCE: (["-c", "import keras"], 0),
    "import cct_keras": (["-c", "import cct_keras"], 0),
    "import keras, cct_keras": (["-c", "import keras, cct_keras"], 0),
    "import cct_keras, keras": (["-c", "import cct_keras, keras"], 0),
}
# Words after `cct-keras`, and the expected exit code.
COMMANDS = {
    "--version": 0,
    "--help": 0,
    "train --help": 0,
    "list": 0,
    "list --pretrained": 0,
    "list --recipes": 0,
    "summary cct_14_7x2_224": 0,
    "trian": 2,
    "summary cct_7_3x1_33": 2,
    "train digits --variant cct_7_3x1_33": 2,
    "benchmark cct_7_3x1_33": 2,
    "predict cct_2_3x2_33.mnist a.png": 2,
}


def main():
    """Reads the options, and measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--export", action="store_true")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds must be 1 or more")
    programs = dict(IMPORTS)
    for words, code in COMMANDS.items():
        program = ["-m", "cct_keras.cli.main", *words.split()]
        programs[f"cct-keras {words}"] = (program, code)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.export:
            programs |= picture_programs(pathlib.Path(folder))
        report(programs, arguments.rounds)


def picture_programs(folder):
    """One picture, classified by exported files and by the file beside them."""
    picture = shutil.copy(next(SAMPLES.rglob("*.png")), folder / "photo.png")
    programs = {}
    for name in ("model.onnx", "model.tflite"):
        words = ["cct_keras.cli.main", "export", MODEL, folder / name, "--script"]
        seconds(["-m", *map(str, words)], 0)
        program = ["-m", "cct_keras.cli.main", "predict", str(folder / name), picture]
        programs[f"cct-keras predict {name} photo.png"] = (program, 0)
    script = [str(folder / "predict.py"), str(folder / "model.onnx"), picture]
    programs["predict.py model.onnx photo.png"] = (script, 0)
    return programs


def report(programs, rounds):
    """Measures and prints a table; the exit code is 1 if a command takes too long."""
    best = dict.fromkeys(programs, float("inf"))
    for _ in range(rounds):
        for name, (program, code) in programs.items():
            best[name] = min(best[name], seconds(program, code))
    print(f"| | seconds | of `{REFERENCE}` |\n|---|---|---|")
    for name, value in best.items():
        print(f"| `{name}` | {value:.3f} | {value / best[REFERENCE]:.1%} |")
    limits = {
        name: PICTURE_LIMIT if "photo.png" in name else LIMIT
        for name in programs
        if name not in IMPORTS
    }
    slow = [name for name in limits if best[name] > limits[name] * best[REFERENCE]]
    if slow:
        sys.exit(f"too large a share of `{REFERENCE}`: {', '.join(slow)}")


def seconds(program, code):
    """How long a Python program takes that ends with this exit code."""
    start = time.perf_counter()
    result = subprocess.run(
        [sys.executable, *program], capture_output=True, text=True, check=False
    )
    elapsed = time.perf_counter() - start
    if result.returncode != code:
        sys.exit(f"{' '.join(program)} failed: {result.stderr}")
    return elapsed


if __name__ == "__main__":
    main()
