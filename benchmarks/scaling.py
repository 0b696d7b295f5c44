"""How time and memory grow with the image and with the batch.

    python benchmarks/scaling.py [--backends tensorflow torch] [--out FOLDER]

CCT-7/7x2 from 32 to 384 pixels at a batch of 8, and at 224 pixels from a batch of 1 to
32, in training: as it is, and with the blocks computed again in the backward pass
(`remat`). Memory is how much the process grows at most after the model is built. There
is no attention dropout, so that torch can use its fused kernel. `scaling.json` and
`scaling.png` are written to the folder.
"""

import argparse
import json
import pathlib

from cct_keras.benchmarking.benchmark import installed_backends
from cct_keras.benchmarking.measuring import Contestant
from cct_keras.benchmarking.measuring import measure
from cct_keras.models.cost import variant_cost

VARIANT = "cct_7_7x2_224"
SIZES = (32, 64, 96, 128, 192, 256, 320, 384)
BATCHES = (1, 2, 4, 8, 16, 32)
SIZE, BATCH = 224, 8


def main():
    """Measures what is missing, prints a table, draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--backends", nargs="+", choices=installed_backends(), default=["tensorflow"]
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default="runs/scaling")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds must be 1 or more")
    if not pathlib.Path("/proc/self/clear_refs").exists():
        parser.error("only Linux says how much memory a step takes")
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "scaling.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    places = [(size, BATCH) for size in SIZES] + [(SIZE, batch) for batch in BATCHES]
    for backend in arguments.backends:
        for remat in (False, True):
            name = f"{backend}, remat" if remat else backend
            rows = results.setdefault(name, {})
            for size, batch in places:
                if f"{size}/{batch}" in rows:
                    continue
                rows[f"{size}/{batch}"] = row(
                    backend, size, batch, remat, arguments.rounds
                )
                file.write_text(json.dumps(results, indent=1))
    results = {
        name: rows for name, rows in results.items() if len(rows) >= len(set(places))
    }
    print_table(results)
    draw(results, arguments.out / "scaling.png")


def row(backend, size, batch, remat, rounds):
    """Seconds and bytes of a training step."""
    contestant = Contestant(
        VARIANT,
        "cct_keras.benchmarking.benchmark:variant_tasks",
        {
            "variant": VARIANT,
            "batch_size": batch,
            "image_size": [size, size],
            "remat": remat,
            "attention_dropout": 0.0,
        },
        {"KERAS_BACKEND": backend},
    )
    timings = measure([contestant], ["training"], rounds=rounds, seconds=0.5)
    timing = timings[VARIANT]["training"]
    return {"seconds": timing.best, "memory": timing.memory}


def print_table(results):
    """Milliseconds and memory per image, by size."""
    print("| image | tokens | " + " | ".join(results) + " |")
    print("|---" * (2 + len(results)) + "|")
    for size in SIZES:
        tokens = variant_cost(VARIANT, image_size=(size, size)).tokens
        cells = []
        for rows in results.values():
            row = rows[f"{size}/{BATCH}"]
            memory = row["memory"] / 2**20 / BATCH
            cells.append(f"{1000 * row['seconds'] / BATCH:.0f} ms, {memory:.0f} MiB")
        print(f"| {size} | {tokens} | " + " | ".join(cells) + " |")


def draw(results, path):
    """Time and memory against tokens and batch, on logarithmic axes."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 2, figsize=(10, 7))
    tokens = [variant_cost(VARIANT, image_size=(s, s)).tokens for s in SIZES]
    for name, rows in results.items():
        style = "--" if "remat" in name else "-"
        color = f"C{[*results].index(name.split(',')[0])}"
        for column, (x, keys) in enumerate(
            (
                (tokens, [f"{size}/{BATCH}" for size in SIZES]),
                (BATCHES, [f"{SIZE}/{batch}" for batch in BATCHES]),
            )
        ):
            seconds = [rows[key]["seconds"] for key in keys]
            memory = [rows[key]["memory"] / 2**20 for key in keys]
            for axes, y in zip(panels[:, column], (seconds, memory), strict=True):
                axes.loglog(x, y, style, color=color, marker=".", label=name)
    for column, label in enumerate((f"tokens, batch {BATCH}", f"batch, {SIZE} pixels")):
        panels[0][column].set_ylabel("seconds per step")
        panels[1][column].set_ylabel("memory of a step, MiB")
        panels[1][column].set_xlabel(label)
    for axes in panels.flat:
        axes.grid(alpha=0.3, which="both")
    panels[0][0].legend(fontsize=8)
    figure.suptitle("CCT-7/7x2, training step")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    print(f"picture: {path}")


if __name__ == "__main__":
    main()
