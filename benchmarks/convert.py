"""Time and memory of converting a checkpoint of CCT-14/7x2.

    python benchmarks/convert.py [FILE]

Without a file one of random weights is made, in the official layout. The backend
is imported, and has run once, before anything is measured. Prints the best of
five conversions and the peak memory of the first, both beyond the start.
"""

import argparse
import os
import pathlib
import resource
import tempfile
import time

import keras
import numpy as np

import cct_keras


def peak_memory() -> int:
    """Peak resident size of this process in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main():
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.file is None:
        folder = tempfile.TemporaryDirectory()
        arguments.file = pathlib.Path(folder.name) / "cct_14_7x2_224.safetensors"
        # In a process of its own: its memory is not the converter's.
        if os.fork() == 0:
            model = cct_keras.create_model("cct_14_7x2_224")
            cct_keras.to_torch(model, arguments.file)
            os._exit(0)
        os.wait()
    warm = cct_keras.create_model("cct_2_3x2_32")
    keras.ops.convert_to_numpy(warm(np.zeros((1, 32, 32, 3), "float32")))

    size = arguments.file.stat().st_size
    before, seconds = peak_memory(), []
    for turn in range(5):
        start = time.perf_counter()
        cct_keras.convert(arguments.file)
        seconds.append(time.perf_counter() - start)
        if turn == 0:
            growth = peak_memory() - before
    print(f"backend     {keras.config.backend()}")
    print(f"file        {size / 1e6:.1f} MB")
    print(f"conversion  {min(seconds):.2f} s (first {seconds[0]:.2f} s)")
    print(f"peak memory {growth / size:.2f} x the file")


if __name__ == "__main__":
    main()
