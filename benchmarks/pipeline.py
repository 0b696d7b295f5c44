"""Images a second of the input pipelines alone.

    python benchmarks/pipeline.py [--image-size 32]

The training pipeline of every recipe on random images of that size, beside what
CCT-2/3x2 takes in training on the same machine, and what the pipeline would do without
each of its augmentations. The best of several rounds; the recipes take turns.
"""

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

import cct_keras
from cct_keras.benchmark import benchmark
from cct_keras.training import find_recipe

IMAGES, CLASSES = 2000, 10
WITHOUT = {
    "augment": {"augment": "none"},
    "mixing": {"mixup": 0.0, "cutmix": 0.0},
    "erasing": {"erase_prob": 0.0},
    "crop and flip": {"crop": "none", "flip": 0.0},
}


def main():
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.image_size < 1 or arguments.rounds < 1:
        parser.error("--image-size and --rounds must be 1 or more")
    random = np.random.default_rng(0)
    size = (IMAGES, arguments.image_size, arguments.image_size, 3)
    images = random.integers(0, 256, size, "uint8")
    data = cct_keras.load_data(
        (images, np.arange(IMAGES) % CLASSES), image_size=arguments.image_size
    )
    recipes = distinct_recipes(data)
    rates = {name: 0.0 for name in recipes}
    for _ in range(arguments.rounds):
        for name, recipe in recipes.items():
            rates[name] = max(rates[name], rate(data, recipe))
    speed = benchmark("cct_2_3x2_32", rounds=arguments.rounds)
    training = speed.batch_size / speed.training.best
    print(f"CCT-2/3x2 trains on {training:,.0f} images a second\n")
    print("| pipeline | images a second | of the training |")
    print("|---|---|---|")
    for name, value in rates.items():
        print(f"| {name} | {value:,.0f} | {value / training:.1f}x |")


def distinct_recipes(data):
    """One recipe of each pipeline, and it without each of its augmentations."""
    fields = [name for change in WITHOUT.values() for name in change]
    found = {}
    for name in cct_keras.list_recipes():
        recipe = find_recipe(name, batch_size=64)
        found.setdefault(tuple(getattr(recipe, f) for f in fields), (name, recipe))
    recipes = {}
    for name, recipe in found.values():
        recipes[name] = recipe
        for part, change in WITHOUT.items():
            other = find_recipe(name, batch_size=64, **change)
            if other != recipe:
                recipes[f"{name} without {part}"] = other
    return recipes


def rate(data, recipe):
    """Images a second over an epoch, once it flows."""
    steps = len(data.train) // recipe.batch_size
    batches = data.training_pipeline(recipe).take(steps + 3).as_numpy_iterator()
    for _ in range(3):
        next(batches)
    start = time.perf_counter()
    for _ in batches:
        pass
    return steps * recipe.batch_size / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
