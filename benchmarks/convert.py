"""Time and memory of converting a checkpoint of CCT-14/7x2.

    python benchmarks/convert.py [FILE]

Without a file one of random weights is made, in the official layout. Each figure
comes from a process of its own, in which the backend was imported, and has run
once, before anything is measured: the first and the best of five conversions, and
the peak memory of the first, beside that of creating the model alone.
"""

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time


def peak_memory() -> int:
    """Peak resident size of this process in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(work: str, file: str) -> dict:
    """Seconds and memory of five turns of some work on a file."""
    import keras
    import numpy as np

    import cct_keras

    if work == "make":
        cct_keras.to_torch(cct_keras.create_model("cct_14_7x2_224"), file)
        return {}
    warm = cct_keras.create_model("cct_2_3x2_32")
    keras.ops.convert_to_numpy(warm(np.zeros((1, 32, 32, 3), "float32")))
    before, seconds = peak_memory(), []
    for turn in range(5):
        start = time.perf_counter()
        if work == "convert":
            cct_keras.convert(file)
        else:
            cct_keras.create_model("cct_14_7x2_224")
        seconds.append(time.perf_counter() - start)
        if turn == 0:
            growth = peak_memory() - before
    return {"backend": keras.config.backend(), "seconds": seconds, "growth": growth}


def in_new_process(work: str, file: pathlib.Path) -> dict:
    """`measure`, where nothing else has used memory."""
    command = [sys.executable, __file__, "--work", work, str(file)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return json.loads(output.splitlines()[-1])


def main():
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=pathlib.Path)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        print(json.dumps(measure(arguments.work, str(arguments.file))))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = arguments.file
        if file is None:
            file = pathlib.Path(folder) / "cct_14_7x2_224.safetensors"
            in_new_process("make", file)
        size = file.stat().st_size
        conversion = in_new_process("convert", file)
        creation = in_new_process("create", file)
    first, best = conversion["seconds"][0], min(conversion["seconds"])
    print(f"backend     {conversion['backend']}")
    print(f"file        {size / 1e6:.1f} MB")
    print(f"conversion  {best:.2f} s (first {first:.2f} s)")
    print(f"peak memory {conversion['growth'] / size:.2f} x the file")
    print(f"creation    {creation['growth'] / size:.2f} x the file, no checkpoint")


if __name__ == "__main__":
    main()
