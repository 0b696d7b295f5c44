"""Does a teacher help? A convnet teaches CCT-2/3x2 and ViT-Lite on few images.

    python benchmarks/distillation.py CIFAR10_FOLDER [--out runs/distillation]

The folder holds `{train,test}/<class>/*`. A small convnet is trained on some images of
each class; then students learn from the same images, with its likeliest class (hard),
its probabilities (soft) or the labels alone, for as many epochs and with the same
augmentation, as `cct-keras train --teacher` does it. Accuracy is that of all test
images. Every result is kept in `results.json` as soon as it is there: interrupted, the
same command goes on.
"""

import argparse
import json
import pathlib

import keras
import numpy as np

import cct_keras
from cct_keras.recipes.rows import find_recipe

STUDENTS = {"CCT-2/3x2": "cct_2_3x2_32", "ViT-Lite-2/4": "vit_2_4_32"}
METHODS = {
    "labels alone": {},
    "soft": {"distill": "soft"},
    "hard": {"distill": "hard"},
}
SEEDS = (0, 1, 2)
# CIFAR images look alike from both sides, and shifted.
AUGMENTATION = {"flip": 0.5, "crop": "padded", "augment": "none"}


def main():
    """Runs what is missing, then prints the table and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default="runs/distillation")
    parser.add_argument("--images", type=int, default=250, help="a class, to train")
    parser.add_argument("--epochs", type=int, default=24, help="of teacher and student")
    parser.add_argument("--smoke", action="store_true", help="one short run of each")
    arguments = parser.parse_args()
    for part in ("train", "test"):
        if not (arguments.data / part).is_dir():
            parser.error(f"there is no folder {arguments.data / part}")
    seeds, test_images = SEEDS, None
    if arguments.smoke:
        arguments.images, arguments.epochs, seeds, test_images = 20, 1, (0,), 10
    arguments.out.mkdir(parents=True, exist_ok=True)
    results_file = arguments.out / "results.json"
    results = {}
    if results_file.exists():
        results = json.loads(results_file.read_text())
    settings = {"images": arguments.images, "epochs": arguments.epochs}
    if results.setdefault("settings", settings) != settings:
        parser.error(f"{arguments.out} is of {results['settings']}: give another --out")

    images = arguments.out / "images"
    link_images(arguments.data, images, arguments.images, test_images)
    data = cct_keras.load_data(images)
    teacher = arguments.out / "teacher.keras"
    if not teacher.exists():
        train_teacher(data, arguments.epochs, teacher)
    if "teacher" not in results:
        results["teacher"] = cct_keras.evaluate(teacher, data)["top1"]
    print(f"teacher: {results['teacher']:.2%}", flush=True)
    for seed in seeds:
        for student, variant in STUDENTS.items():
            for method, fields in METHODS.items():
                key = f"{student}/{method}/{seed}"
                if key in results:
                    continue
                taught = {"teacher": teacher} if fields else {}
                run = cct_keras.train(
                    data,
                    variant,
                    "small_adamw",
                    epochs=arguments.epochs,
                    seed=seed,
                    verbose=False,
                    **AUGMENTATION,
                    **fields,
                    **taught,
                )
                results[key] = run.metrics["test"]["top1"]
                results_file.write_text(json.dumps(results, indent=1))
                print(f"{key}: {results[key]:.2%}", flush=True)
    print_table(results, seeds)
    draw(results, seeds, arguments.images, arguments.out / "distillation.png")


def link_images(data, folder, count, test_images):
    """Symbolic links to the first images of each class."""
    for split, number in (("train", count), ("test", test_images)):
        for source in sorted(p for p in (data / split).iterdir() if p.is_dir()):
            target = folder / split / source.name
            target.mkdir(parents=True, exist_ok=True)
            for file in sorted(source.iterdir())[:number]:
                link = target / file.name
                if not link.exists():
                    link.symlink_to(file.resolve())


def train_teacher(data, epochs, path):
    """A convnet of 0.3 million parameters; raw images in, probabilities out."""
    keras.utils.set_random_seed(0)
    images = keras.Input((None, None, data.channels))
    x = cct_keras.layers.Preprocessing(
        data.image_size, mean=data.mean, std=data.std, class_names=data.class_names
    )(images)
    for width in (32, 64, 128):
        for stride in (1, 2):
            x = keras.layers.Conv2D(
                width, 3, strides=stride, padding="same", use_bias=False
            )(x)
            x = keras.layers.BatchNormalization()(x)
            x = keras.layers.ReLU()(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    x = keras.layers.Dropout(0.2)(x)
    x = keras.layers.Dense(data.num_classes)(x)
    x = keras.layers.Softmax()(x)
    model = keras.Model(images, x)
    recipe = find_recipe("small_adamw", epochs=epochs, **AUGMENTATION)
    steps = max(1, len(data.train) // recipe.batch_size)
    model.compile(
        keras.optimizers.AdamW(
            keras.optimizers.schedules.CosineDecay(3e-3, epochs * steps),
            weight_decay=0.05,
        ),
        "categorical_crossentropy",
        metrics=["accuracy"],
    )
    model.fit(
        data.training_pipeline(recipe),
        epochs=epochs,
        steps_per_epoch=steps,
        shuffle=False,
        validation_data=data.pipeline("validation"),
        verbose=2,
    )
    model.save(path)


def values(results, student, method, seeds):
    """Accuracies of all seeds, in percent."""
    return 100 * np.array([results[f"{student}/{method}/{seed}"] for seed in seeds])


def print_table(results, seeds):
    """Mean and standard deviation over the seeds."""
    print("\n| student | " + " | ".join(METHODS) + " |")
    print("|---" * (1 + len(METHODS)) + "|")
    for student in STUDENTS:
        cells = [values(results, student, method, seeds) for method in METHODS]
        text = " | ".join(f"{cell.mean():.1f} ± {cell.std():.1f}" for cell in cells)
        print(f"| {student} | {text} |")
    print(f"\nThe teacher has {results['teacher']:.1%}.")


def draw(results, seeds, images, path):
    """A group of bars a student, a line for the teacher."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    places = np.arange(len(STUDENTS))
    for number, method in enumerate(METHODS):
        cells = [values(results, student, method, seeds) for student in STUDENTS]
        axes.bar(
            places + 0.26 * (number - 1),
            [cell.mean() for cell in cells],
            0.24,
            yerr=[cell.std() for cell in cells],
            capsize=3,
            label=method,
        )
    axes.axhline(100 * results["teacher"], color="black", ls="--", label="the teacher")
    axes.set_xticks(places, list(STUDENTS))
    axes.set_ylabel("test accuracy, %")
    axes.set_title(f"A convnet as teacher: CIFAR-10 (JPEG), {images} images a class")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(path, dpi=120, bbox_inches="tight")
    print(f"picture: {path}")


if __name__ == "__main__":
    main()
