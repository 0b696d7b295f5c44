"""What the package adds to `import keras`, and how long `cct-keras list` takes.

    python benchmarks/startup.py

Each in processes of its own, in turn, the best of several.
"""

import subprocess
import sys
import time

ROUNDS = 5
COMMANDS = {
    "import keras": ["-c", "import keras"],
    "import cct_keras": ["-c", "import keras, cct_keras"],
    "cct-keras list": ["-m", "cct_keras.cli", "list"],
}


def main():
    """Measures and prints."""
    best = dict.fromkeys(COMMANDS, float("inf"))
    for _ in range(ROUNDS):
        for name, arguments in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, *arguments], capture_output=True, check=True
            )
            best[name] = min(best[name], time.perf_counter() - start)
    for name, seconds in best.items():
        more = seconds - best["import keras"]
        print(f"{name:<18}{seconds:6.2f} s  (+ {more:.2f} s)")


if __name__ == "__main__":
    main()
