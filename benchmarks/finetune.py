"""Does fine-tuning help? Five classes of CIFAR-10 learn from the other five.

    python benchmarks/finetune.py CIFAR10_FOLDER [--out runs/finetune]

The folder holds `{train,test}/<class>/*`. CCT-2/3x2 is trained on the first five
classes, then adapted to the others with few images by each method, and trained on the
same few images from scratch. Of the few images a tenth is for validation, which
chooses the epoch; accuracy is that of all 5,000 test images. Every result is kept in
`results.json` as soon as it is there: interrupted, the same command goes on.
"""

import argparse
import json
import pathlib
import tempfile

import numpy as np

import cct_keras

SOURCE = ("airplane", "automobile", "bird", "cat", "deer")
TARGET = ("dog", "frog", "horse", "ship", "truck")
# Images a class: epochs, so that more images mean more steps, but not in proportion.
SIZES = {20: 60, 100: 30, 500: 12}
SEEDS = (0, 1, 2)
# As `finetune` has it, so that the start is what differs.
SCRATCH = {"recipe": "small_adamw", "augment": "none"}
METHODS = {
    "from scratch": SCRATCH,
    "all weights": {"layer_decay": 1.0},
    "layer decay": {},
    "first block frozen": {"freeze": 1},
    "gradual unfreezing": {"unfreeze_epochs": 0.1},
    "LoRA": {"lora_rank": 8, "layer_decay": 1.0},
    "head only": {"freeze": "body", "layer_decay": 1.0},
    "linear probe": None,
}


def main():
    """Runs what is missing, then prints the table and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default="runs/finetune")
    parser.add_argument("--epochs", type=int, default=30, help="of the pre-training")
    parser.add_argument("--smoke", action="store_true", help="one short run of each")
    arguments = parser.parse_args()
    for part in ("train", "test"):
        if not (arguments.data / part).is_dir():
            parser.error(f"there is no folder {arguments.data / part}")
    sizes, seeds, share = SIZES, SEEDS, 1.0
    if arguments.smoke:
        arguments.epochs, sizes, seeds, share = 1, {20: 1}, (0,), 0.02
    arguments.out.mkdir(parents=True, exist_ok=True)
    results_file = arguments.out / "results.json"
    results = {}
    if results_file.exists():
        results = json.loads(results_file.read_text())

    weights = pretrain(arguments.data, arguments.out, arguments.epochs, share)
    for seed in seeds:
        for size, epochs in sizes.items():
            for method, fields in METHODS.items():
                key = f"{method}/{size}/{seed}"
                if key not in results:
                    results[key] = adapt(
                        arguments.data, weights, size, epochs, seed, fields
                    )
                    results_file.write_text(json.dumps(results, indent=1))
                    print(f"{key}: {results[key]:.2%}", flush=True)
    print_table(results, sizes, seeds)
    draw(results, sizes, seeds, arguments.out / "finetune.png")


def pretrain(data, out, epochs, share):
    """The model of the first five classes."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "source"
        for split in ("train", "test"):
            for name in SOURCE:
                files = sorted((data / split / name).iterdir())
                link(files[: round(share * len(files))], source / split / name)
        run = cct_keras.train(
            source, "cct_2_3x2_32", epochs=epochs, out=out / "pretrained", **SCRATCH
        )
    print(f"pre-trained: {run.metrics['test']['top1']:.2%} of the first five classes")
    return out / "pretrained"


def adapt(data, weights, size, epochs, seed, fields):
    """Test accuracy of one method on `size` images of each other class."""
    generator = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        few = pathlib.Path(folder) / "few"
        for name in TARGET:
            files = sorted((data / "train" / name).iterdir())
            link(generator.choice(files, size, replace=False), few / "train" / name)
            link(sorted((data / "test" / name).iterdir()), few / "test" / name)
        images = cct_keras.load_data(few, seed=seed)
        if fields is None:
            run = cct_keras.linear_probe(images, weights=weights)
        else:
            start = {} if "recipe" in fields else {"weights": weights}
            fields = dict(fields)
            if "unfreeze_epochs" in fields:
                fields["unfreeze_epochs"] *= epochs
            run = cct_keras.train(
                images, **start, **fields, epochs=epochs, seed=seed, verbose=False
            )
    return run.metrics["test"]["top1"]


def link(files, folder):
    """Symbolic links to files."""
    folder.mkdir(parents=True)
    for file in files:
        (folder / file.name).symlink_to(file.resolve())


def values(results, method, size, seeds):
    """Accuracies of all seeds, in percent."""
    return 100 * np.array([results[f"{method}/{size}/{seed}"] for seed in seeds])


def print_table(results, sizes, seeds):
    """Mean and standard deviation over the seeds."""
    print("\n| method | " + " | ".join(f"{size} a class" for size in sizes) + " |")
    print("|---" * (1 + len(sizes)) + "|")
    for method in METHODS:
        cells = [values(results, method, size, seeds) for size in sizes]
        text = " | ".join(f"{cell.mean():.1f} ± {cell.std():.1f}" for cell in cells)
        print(f"| {method} | {text} |")


def draw(results, sizes, seeds, path):
    """Accuracy against images, a line a method."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    for method in METHODS:
        cells = [values(results, method, size, seeds) for size in sizes]
        axes.errorbar(
            list(sizes),
            [cell.mean() for cell in cells],
            [cell.std() for cell in cells],
            marker="o",
            capsize=3,
            linestyle="--" if method == "from scratch" else "-",
            label=method,
        )
    axes.set_xscale("log")
    axes.set_xticks(list(sizes), list(map(str, sizes)))
    axes.minorticks_off()
    axes.set_xlabel("images a class")
    axes.set_ylabel("test accuracy, %")
    axes.set_title("CCT-2/3x2, from five classes of CIFAR-10 (JPEG) to the other five")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    print(f"picture: {path}")


if __name__ == "__main__":
    main()
