"""How fast this package and other implementations of CCT are, side by side.

    python benchmarks/speed.py [VARIANT ...] [--original CHECKOUT] [--out FOLDER]

Every contestant has a process of its own; they take turns, with batches of the same
size. All of them train with AdamW and attention dropout and stochastic depth of 0.1.
Rows named "default" are what `train` and `predict` do without any setting.
`vit_pytorch` (with einops) is measured if it is installed, the authors' class if a
checkout of SHI-Labs/Compact-Transformers is given. Ratios are to the faster of the two.
`speed.json` and `speed.png` are written to the folder.
"""

import argparse
import importlib.util
import json
import pathlib

from cct_keras.benchmarking.benchmark import GEMM_SIDE
from cct_keras.benchmarking.benchmark import installed_backends
from cct_keras.benchmarking.measuring import Contestant
from cct_keras.benchmarking.measuring import measure
from cct_keras.models.cost import variant_cost
from cct_keras.models.variants import VARIANTS
from cct_keras.models.variants import constructor_arguments

PEERS = str(pathlib.Path(__file__).parent / "peers.py")
# Images per step of training and of inference.
BATCHES = {
    "cct_2_3x2_32": (64, 128),
    "cct_7_3x1_32": (32, 64),
    "cct_14_7x2_224": (8, 64),
}
TASKS = ("training", "inference", "latency", "gemm")
PYTORCH = ("vit_pytorch", "the original")


def main():
    """Measures, prints tables, and writes JSON and a picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "variants", nargs="*", metavar="VARIANT", help=f"of {', '.join(BATCHES)}"
    )
    backends = installed_backends()
    parser.add_argument("--backends", nargs="+", choices=backends, default=backends)
    parser.add_argument("--original", type=pathlib.Path, metavar="CHECKOUT")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="about how long a round takes"
    )
    parser.add_argument("--out", type=pathlib.Path, default="runs/speed")
    arguments = parser.parse_args()
    unknown = set(arguments.variants) - set(BATCHES)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(BATCHES)}")
    if arguments.original and not (arguments.original / "src/cct.py").is_file():
        parser.error(f"{arguments.original} is not a checkout: it has no src/cct.py")
    if arguments.rounds < 1:
        parser.error("--rounds must be 1 or more")
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "speed.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    for variant in arguments.variants or BATCHES:
        timings = measure(
            contestants(variant, arguments.backends, arguments.original),
            TASKS,
            rounds=arguments.rounds,
            seconds=arguments.seconds,
            log=lambda line: print(line, flush=True),
        )
        results[variant] = rows(variant, timings)
        file.write_text(json.dumps(results, indent=1))
        print_table(variant, results[variant])
    draw(results, arguments.out / "speed.png")


def contestants(variant, backends, checkout):
    """The package on each backend, with and without XLA, and the others."""
    batch, inference = BATCHES[variant]
    sizes = {"batch_size": batch, "inference_batch_size": inference}
    architecture = constructor_arguments(VARIANTS[variant])
    peer = {**sizes, "architecture": architecture}
    found = []
    for backend in backends:
        # By default XLA compiles on JAX, and on TensorFlow for single images.
        choices = (None, True) if backend == "tensorflow" else (None,)
        for jit in choices:
            label = "XLA" if jit else "default"
            found.append(
                Contestant(
                    f"cct_keras, {backend}, {label}",
                    "cct_keras.benchmarking.benchmark:variant_tasks",
                    {**sizes, "variant": variant, "jit": jit},
                    {"KERAS_BACKEND": backend},
                )
            )
    if "tensorflow" in backends:
        environment = {"KERAS_BACKEND": "tensorflow"}
        found.append(
            Contestant("keras.io style", f"{PEERS}:keras_io", peer, environment)
        )
    if importlib.util.find_spec("vit_pytorch"):
        found.append(Contestant("vit_pytorch", f"{PEERS}:vit_pytorch", peer))
    if checkout:
        own = {**peer, "checkout": str(checkout)}
        found.append(Contestant("the original", f"{PEERS}:original", own))
    return found


def rows(variant, timings):
    """A dictionary per contestant, with rates in images per second."""
    batch, inference = BATCHES[variant]
    cost = variant_cost(variant)
    flops = 2 * (cost.macs + cost.attention_macs)
    gemms = [timing["gemm"].best for timing in timings.values() if "gemm" in timing]
    peak = 2 * GEMM_SIDE**3 / min(gemms)
    table = {
        name: {
            "training": batch / timing["training"].best,
            "training_median": batch / timing["training"].median,
            "training_share": 3 * flops * batch / timing["training"].best / peak,
            "training_memory": timing["training"].memory,
            "first_step": timing["training"].first,
            "inference": inference / timing["inference"].best,
            "inference_median": inference / timing["inference"].median,
            "inference_share": flops * inference / timing["inference"].best / peak,
            "inference_memory": timing["inference"].memory,
            "latency": timing["latency"].best,
            "latency_median": timing["latency"].median,
        }
        for name, timing in timings.items()
    }
    return {"peak_flops": peak, "batches": [batch, inference], "rows": table}


def print_table(variant, result):
    """Markdown, with ratios to the fastest PyTorch implementation."""
    table = result["rows"]
    peers = [table[name] for name in PYTORCH if name in table]
    fastest = {
        "training": max((row["training"] for row in peers), default=None),
        "inference": max((row["inference"] for row in peers), default=None),
        "latency": min((row["latency"] for row in peers), default=None),
    }
    batch, inference = result["batches"]
    print(
        f"\n**{variant}**, batch {batch} in training and {inference} in inference; "
        f"{result['peak_flops'] / 1e9:.0f} GFLOP/s in a large product\n"
    )
    print(
        "| | training | median | of the product | memory | first step "
        "| inference | median | of the product | one image |"
    )
    print("|---" * 10 + "|")
    for name, row in table.items():
        cells = [name]
        for task in ("training", "inference"):
            against = ratio(row[task], fastest[task])
            cells.append(f"{row[task]:.1f}/s{against}")
            cells.append(f"{row[task + '_median']:.1f}/s")
            cells.append(f"{row[task + '_share']:.0%}")
            if task == "training":
                memory = row["training_memory"]
                cells.append("" if memory is None else f"{memory / 2**20:,.0f} MiB")
                cells.append(f"{row['first_step']:.1f} s")
        against = ratio(fastest["latency"], row["latency"])
        cells.append(f"{1000 * row['latency']:.2f} ms{against}")
        print("| " + " | ".join(cells) + " |")
    print(flush=True)


def ratio(value, reference):
    """`, 1.20x`, or nothing if there is nothing to compare with."""
    if value is None or reference is None:
        return ""
    return f", {value / reference:.2f}x"


def draw(results, path):
    """Bars of training and inference, a panel per variant."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(
        2,
        len(results),
        figsize=(4.5 * len(results), 6),
        sharey=True,
        squeeze=False,
    )
    names = {name for result in results.values() for name in result["rows"]}
    names = sorted(names, key=lambda name: (not name.startswith("cct_keras"), name))
    for column, (variant, result) in enumerate(results.items()):
        for line, task in enumerate(("training", "inference")):
            axes = panels[line][column]
            for place, name in enumerate(names):
                if name in result["rows"]:
                    color = "C0" if name.startswith("cct_keras") else "C7"
                    axes.barh(place, result["rows"][name][task], color=color)
            axes.set_yticks(range(len(names)), names)
            axes.set_title(f"{variant}, {task}")
            axes.set_xlabel("images/s")
            axes.grid(axis="x", alpha=0.3)
    panels[0][0].invert_yaxis()
    figure.tight_layout()
    figure.savefig(path, dpi=120, bbox_inches="tight")
    print(f"picture: {path}")


if __name__ == "__main__":
    main()
