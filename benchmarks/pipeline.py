"""How many images a second the input pipelines alone yield.

    python benchmarks/pipeline.py [--image-size 32] [--stored-size 40]

The training pipeline of every recipe on random images, with and without each of its
augmentations, compared with how many images a second CCT-2/3x2 trains on, on the same
machine. Each number is the best of several rounds, in which the recipes take turns.
"""

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

import cct_keras
from cct_keras.benchmarking.benchmark import benchmark
from cct_keras.recipes.rows import find_recipe

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
    parser.add_argument(
        "--image-size", type=int, default=32, help="side at which a model sees images"
    )
    parser.add_argument(
        "--stored-size",
        type=int,
        help="side of the images themselves; by default equal",
    )
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    side = arguments.stored_size or arguments.image_size
    if arguments.image_size < 1 or side < 1 or arguments.rounds < 1:
        parser.error("--image-size, --stored-size and --rounds must be 1 or more")
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (IMAGES, side, side, 3), "uint8")
    data = cct_keras.load_data(
        (images, np.arange(IMAGES) % CLASSES), image_size=arguments.image_size
    )
    recipes = distinct_recipes()
    rates = {name: 0.0 for name in recipes}
    for _ in range(arguments.rounds):
        for name, recipe in recipes.items():
            rates[name] = max(rates[name], rate(data, recipe))
    speed = benchmark("cct_2_3x2_32", rounds=arguments.rounds)
    training = speed.batch_size / speed.training.best
    print(f"CCT-2/3x2 trains on {training:,.0f} images a second\n")
    print("| pipeline | images a second | compared with training |")
    print("|---|---|---|")
    for name, value in rates.items():
        print(f"| {name} | {value:,.0f} | {value / training:.1f}x |")


def distinct_recipes():
    """Finds one recipe for each pipeline, and adds it without each augmentation."""
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
    """Measures the images a second over an epoch, after the first batches."""
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
