"""Who is further after the same minutes? This package and its PyTorch peer.

    python benchmarks/time_to_accuracy.py CIFAR10_FOLDER [--minutes 2.5] [--seeds 3]

The folder holds `{train,test}/<class>/*`. CCT-2/3x2 learns from the first images of
each class for a fixed time, with the rates of `small`, shifts and flips, AdamW and
clipped gradients in both: ours with this package's pipeline and `fit` on TensorFlow,
the peer `vit_pytorch.cct.CCT` in an eager loop with torch's fused AdamW. The learning
rate follows the clock: warmup and cosine in fractions of the time. The clock begins
before the first step, whose tracing counts, and stands still while test images are
classified. Ours runs once more with 1/1.2 of the minutes. Contestants take turns, each
in a process of its own; a run is a file as soon as it is there: interrupted, the same
command goes on.
"""

import argparse
import dataclasses
import importlib.util
import json
import math
import os
import pathlib
import subprocess
import sys
import time

import numpy as np
from subsets import read_images

import cct_keras
from cct_keras.atomic_file import atomic_file
from cct_keras.recipes.recipe import Recipe
from cct_keras.recipes.rows import find_recipe

OURS, SHORTER, PEER = "cct_keras", "cct_keras, 1.2x fewer minutes", "vit_pytorch"
CONTESTANTS = {OURS: 1.0, SHORTER: 1 / 1.2, PEER: 1.0}
CHECKPOINTS = 8
# Images a class
TESTED = 300
# What the peer's loop does, and all of it
PLAIN = {
    "optimizer": "adamw",
    "schedule": "cosine",
    "warmup": "linear",
    "decay_exempt": "positions",
    "ema": None,
    "augment": "none",
    "crop": "padded",
    "flip": 0.5,
    "erase_prob": 0.0,
    "mixup": 0.0,
    "cutmix": 0.0,
    "repeats": 1,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "stochastic_depth": 0.0,
    "precision": "float32",
}
IMAGES, SETTINGS = "images.npz", "settings.json"


def main():
    """Runs what is missing, then prints the table and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=2.5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--images", type=int, default=1000, help="a class, to train")
    parser.add_argument("--out", type=pathlib.Path, default="runs/time_to_accuracy")
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contestant:
        compete(arguments)
        return
    for part in ("train", "test"):
        if not (arguments.data / part).is_dir():
            parser.error(f"there is no folder {arguments.data / part}")
    if min(arguments.minutes, arguments.seeds, arguments.images) <= 0:
        parser.error("--minutes, --seeds and --images must be above 0")
    if not importlib.util.find_spec("vit_pytorch"):
        parser.error(
            "the peer is missing: pip install torch einops, and --no-deps vit-pytorch"
        )
    arguments.out.mkdir(parents=True, exist_ok=True)
    settings = {
        "minutes": arguments.minutes,
        "images": arguments.images,
        "data": str(arguments.data.resolve()),
        "recipe": dataclasses.asdict(find_recipe("small_adamw", **PLAIN)),
    }
    settings = json.loads(json.dumps(settings))
    settings_file = arguments.out / SETTINGS
    if settings_file.exists() and json.loads(settings_file.read_text()) != settings:
        parser.error(f"{arguments.out} is of other settings: give another --out")
    settings_file.write_text(json.dumps(settings))
    if not (arguments.out / IMAGES).exists():
        x_train, y_train = read_images(
            arguments.data / "train", slice(arguments.images)
        )
        x_test, y_test = read_images(arguments.data / "test", slice(TESTED))
        arrays = dict(x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
        with atomic_file(arguments.out / IMAGES) as path, path.open("wb") as file:
            np.savez(file, **arrays)
    curves = {name: [] for name in CONTESTANTS}
    for seed in range(arguments.seeds):
        # Whoever begins has the cooler machine.
        for name in list(CONTESTANTS)[:: 1 if seed % 2 else -1]:
            path = curve_file(arguments.out, name, seed)
            if not path.exists():
                own = ["--contestant", name, "--seed", str(seed)]
                command = [sys.executable, __file__, *sys.argv[1:], *own]
                # TensorFlow and torch's vision packages do not share a process.
                backend = "torch" if name == PEER else "tensorflow"
                environment = {
                    "KERAS_BACKEND": backend,
                    "TF_CPP_MIN_LOG_LEVEL": "3",
                    # The peer's loop is for a CPU.
                    "CUDA_VISIBLE_DEVICES": "",
                }
                subprocess.run(command, check=True, env=os.environ | environment)
            curves[name].append(json.loads(path.read_text()))
            final = curves[name][-1][-1]
            print(
                f"{name}, seed {seed}: {final['accuracy']:.2%} after "
                f"{final['images']:,} images",
                flush=True,
            )
    print_table(curves, arguments.minutes)
    draw(curves, arguments.out / "time_to_accuracy.png")


def curve_file(out, name, seed):
    """Where the curve of one run is kept."""
    return out / f"{list(CONTESTANTS).index(name)}-{seed}.json"


# === A run against the clock ===


class Race:
    """The clock of a run: the rate of each step, and the accuracy now and then.

    Args:
        seconds: Length of the run, without the tests.
        recipe: Its rates and, as a share of its epochs, its warmup.
        test: Function that returns the accuracy.
    """

    def __init__(self, seconds, recipe, test):
        self.seconds, self.recipe, self.test = seconds, recipe, test
        self.curve, self.images, self.started = [], 0, None

    def start(self):
        """Starts the clock."""
        self.started = time.perf_counter()

    @property
    def share(self):
        """Which part of the time is over."""
        return (time.perf_counter() - self.started) / self.seconds

    def rate(self):
        """Learning rate now."""
        recipe, share = self.recipe, self.share
        warmup = recipe["warmup_epochs"] / recipe["epochs"]
        if share < warmup:
            return recipe["lr"] * share / warmup
        wave = (1 + math.cos(math.pi * min(share, 1.0))) / 2
        return recipe["min_lr"] + (recipe["lr"] - recipe["min_lr"]) * wave

    def step(self, images):
        """Counts a step, tests if it is time, and tells whether to go on."""
        self.images += images
        share = self.share
        # More than one, if a step was that long.
        due = int(CHECKPOINTS * min(share, 1.0)) - len(self.curve)
        if due:
            before = time.perf_counter()
            row = {"seconds": share * self.seconds, "images": self.images}
            self.curve += due * [{**row, "accuracy": float(self.test())}]
            self.started += time.perf_counter() - before
        return share < 1


def compete(arguments):
    """One run of one contestant, in this process."""
    recipe = json.loads((arguments.out / SETTINGS).read_text())["recipe"]
    with np.load(arguments.out / IMAGES) as stored:
        images = {name: stored[name] for name in stored.files}
    train = train_peer if arguments.contestant == PEER else train_ours
    seconds = 60 * arguments.minutes * CONTESTANTS[arguments.contestant]
    curve = train(images, recipe, seconds, arguments.seed)
    curve_file(arguments.out, arguments.contestant, arguments.seed).write_text(
        json.dumps(curve, indent=1)
    )


def train_ours(images, recipe, seconds, seed):
    """This package's pipeline, model and optimizer, and Keras' `fit`."""
    import keras

    from cct_keras.inference.forward import run_on_batch
    from cct_keras.training.build import build_model
    from cct_keras.training.compile import find_undecayed
    from cct_keras.training.optimizers import find_adamw

    keras.utils.set_random_seed(seed)
    test = images["x_test"], images["y_test"]
    data = cct_keras.load_data(((images["x_train"], images["y_train"]), test, test))
    recipe = Recipe(**recipe)
    model = build_model(data, recipe, classifier_activation=None)
    optimizer = find_adamw()(
        0.0,
        epsilon=1e-8,
        weight_decay=recipe.weight_decay,
        global_clipnorm=recipe.clip_norm,
    )
    optimizer.exclude_from_weight_decay(var_list=find_undecayed(model, recipe))
    model.compile(
        optimizer,
        keras.losses.CategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )

    def accuracy():
        x, y = test
        parts = [run_on_batch(model, x[i : i + 500]) for i in range(0, len(x), 500)]
        return np.mean(np.concatenate(parts).argmax(1) == y)

    race = Race(seconds, dataclasses.asdict(recipe), accuracy)

    class Clock(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            optimizer.learning_rate = race.rate()

        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = not race.step(recipe.batch_size)

    pipeline = data.training_pipeline(recipe, epochs=10_000, seed=seed)
    race.start()
    model.fit(pipeline, callbacks=[Clock()], shuffle=False, verbose=0)
    return race.curve


def train_peer(images, recipe, seconds, seed):
    """`vit_pytorch.cct.CCT` in an eager loop."""
    import torch
    from peers import torch_arguments
    from peers import vit_pytorch_class

    from cct_keras.models.variants import VARIANTS
    from cct_keras.models.variants import constructor_arguments

    torch.manual_seed(seed)
    architecture = constructor_arguments(VARIANTS["cct_2_3x2_32"])
    model = vit_pytorch_class()(
        **{
            **torch_arguments(architecture),
            "num_classes": len(set(images["y_train"])),
            "attention_dropout": recipe["attention_dropout"],
        },
        dropout_rate=recipe["dropout"],
        stochastic_depth_rate=recipe["stochastic_depth"],
    )
    named = dict(model.named_parameters())
    plain = [n for n, v in named.items() if v.ndim < 2 or "positional_emb" in n]
    groups = [
        {"params": [v for n, v in named.items() if n not in plain]},
        {"params": [named[n] for n in plain], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
        groups, weight_decay=recipe["weight_decay"], fused=True
    )
    loss = torch.nn.CrossEntropyLoss(label_smoothing=recipe["label_smoothing"])
    pixels = images["x_train"].reshape(-1, 3) / 255
    mean, std = (
        torch.tensor(255 * f(pixels, axis=0), dtype=torch.float32)[:, None, None]
        for f in (np.mean, np.std)
    )
    x_test = torch.tensor(images["x_test"]).permute(0, 3, 1, 2)
    y_train, y_test = (torch.tensor(images[f"y_{part}"]) for part in ("train", "test"))
    side = images["x_train"].shape[1]
    shift = round(recipe["crop_padding"] * side)
    padded = torch.nn.functional.pad(
        torch.tensor(images["x_train"]).permute(0, 3, 1, 2), (shift,) * 4
    )
    places = torch.arange(side)

    def batch(indices):
        """Shifted and flipped images, normalized."""
        count = len(indices)
        rows = torch.randint(2 * shift + 1, (count, 1)) + places
        columns = torch.randint(2 * shift + 1, (count, 1)) + places
        flipped = torch.rand(count, 1) < recipe["flip"]
        columns = torch.where(flipped, columns.flip(1), columns)
        x = padded[
            indices[:, None, None, None],
            torch.arange(3)[None, :, None, None],
            rows[:, None, :, None],
            columns[:, None, None, :],
        ]
        return (x - mean) / std

    def accuracy():
        model.eval()
        with torch.inference_mode():
            parts = [model((part - mean) / std).argmax(1) for part in x_test.split(500)]
        model.train()
        return (torch.cat(parts) == y_test).float().mean().item()

    race = Race(seconds, recipe, accuracy)
    size, more = recipe["batch_size"], True
    model.train()
    race.start()
    while more:
        order = torch.randperm(len(y_train))
        for indices in order[: len(order) // size * size].split(size):
            rate = race.rate()
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.zero_grad()
            loss(model(batch(indices)), y_train[indices]).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), recipe["clip_norm"])
            optimizer.step()
            more = race.step(size)
            if not more:
                break
    return race.curve


# === Results ===


def accuracies(curves):
    """Mean and standard deviation over the seeds at each checkpoint, in percent."""
    values = 100 * np.array([[row["accuracy"] for row in curve] for curve in curves])
    return values.mean(0), values.std(0, ddof=1 if len(values) > 1 else 0)


def minutes_to(target, curves):
    """When the mean curve reaches an accuracy, between checkpoints on a line."""
    means, _ = accuracies(curves)
    times = np.mean([[row["seconds"] / 60 for row in curve] for curve in curves], 0)
    reached = np.flatnonzero(means >= target)
    if not len(reached):
        return None
    after = reached[0]
    if not after:
        return times[0]
    part = (target - means[after - 1]) / (means[after] - means[after - 1])
    return times[after - 1] + part * (times[after] - times[after - 1])


def print_table(curves, minutes):
    """Accuracy at each checkpoint, and when the peer's last one is reached."""
    shares = [f"{(i + 1) / CHECKPOINTS:.0%}" for i in range(CHECKPOINTS)]
    print(f"\n| share of the time | {' | '.join(shares)} | images |")
    print("|---" * (CHECKPOINTS + 2) + "|")
    for name, runs in curves.items():
        cells = [f"{m:.1f} ± {d:.1f}" for m, d in zip(*accuracies(runs), strict=True)]
        seen = np.mean([curve[-1]["images"] for curve in runs])
        total = minutes * CONTESTANTS[name]
        print(f"| {name}, {total:.1f} min | {' | '.join(cells)} | {seen:,.0f} |")
    target = accuracies(curves[PEER])[0][-1]
    for name in (OURS, SHORTER):
        reached = minutes_to(target, curves[name])
        if reached is None:
            print(f"{name} does not reach the peer's {target:.1f} %")
        else:
            ratio = minutes / reached
            print(
                f"{name} reaches the peer's {target:.1f} % after {reached:.2f} min: "
                f"{ratio:.2f}x fewer"
            )


def draw(curves, path):
    """Accuracy against minutes, a band of one standard deviation."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    for name, runs in curves.items():
        times = np.mean([[row["seconds"] / 60 for row in run] for run in runs], 0)
        means, deviations = accuracies(runs)
        (line,) = axes.plot(times, means, "o-", label=name)
        axes.fill_between(
            times,
            means - deviations,
            means + deviations,
            alpha=0.2,
            color=line.get_color(),
        )
    axes.set(xlabel="minutes of training", ylabel="test accuracy, %")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main()
