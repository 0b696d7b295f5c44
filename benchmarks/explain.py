"""How far maps can be trusted, and what they cost.

    python benchmarks/explain.py                            # the images of the tests
    python benchmarks/explain.py --cifar10 FOLDER --count 500
    python benchmarks/explain.py --speed
    python benchmarks/explain.py --maps FILE

The first two judge every method on the shipped models (`judge_explanations`) and print
a table for each; `--figure FILE` draws the last one. `--speed` prints the time that
`explain` takes for 100 pictures over the time of `predict`, the best of several rounds
in which they take turns. `--maps` draws pictures beside their maps.
"""

import argparse
import pathlib
import time

import cct_keras

SAMPLES = pathlib.Path(__file__).parent.parent / "tests" / "samples"
MODELS = {
    "cct_2_3x2_32.digits": "digits",
    "cct_2_3x2_32.mnist": SAMPLES / "mnist",
    "cct_2_3x2_32.cifar10_jpeg": SAMPLES / "cifar10_jpeg",
}
COLUMNS = ("deletion", "insertion", "pointing", "apart", "randomized")


def main():
    """Reads the command line and prints tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cifar10", metavar="FOLDER", help="all test images")
    parser.add_argument("--count", type=int, default=200, help="images to judge on")
    parser.add_argument("--figure", metavar="FILE", help="draw the last table")
    parser.add_argument("--speed", action="store_true", help="measure the time instead")
    parser.add_argument("--maps", metavar="FILE", help="draw maps instead")
    arguments = parser.parse_args()
    if arguments.maps:
        images = sorted((SAMPLES / "cifar10_jpeg").glob("*/0003.png"))[:9]
        explanation = cct_keras.explain("cct_2_3x2_32.cifar10_jpeg", images)
        explanation.plot().savefig(arguments.maps, dpi=100)
        return
    if arguments.speed:
        measure_speed()
        return
    if arguments.cifar10:
        MODELS["cct_2_3x2_32.cifar10_jpeg"] = arguments.cifar10
    for model, data in MODELS.items():
        judgement = cct_keras.judge_explanations(model, data, count=arguments.count)
        print_table(model, judgement)
    if arguments.figure:
        judgement.plot().savefig(arguments.figure, dpi=110)


def print_table(model, judgement):
    """Prints a judgement as Markdown."""
    counts = ", ".join(f"{name} {n}" for name, n in judgement.counts.items())
    print(f"\n{model} ({counts} images); best: {judgement.best}\n")
    print(f"| method | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}")
    for name, row in judgement.rows.items():
        cells = [
            "" if row[c] is None else f"{row[c]:.3f} ± {judgement.errors[name][c]:.3f}"
            for c in COLUMNS
        ]
        print(f"| {name} | {' | '.join(cells)} |")
    for warning in judgement.warnings:
        print(f"- {warning}")


def measure_speed(rounds=7):
    """Prints the time of each fast method over that of `predict`."""
    from cct_keras.explaining.methods import METHODS

    model = cct_keras.load_classifier("cct_2_3x2_32.cifar10_jpeg")
    images = sorted((SAMPLES / "cifar10_jpeg").glob("*/*.png"))[:100]
    jobs = {"predict": lambda: cct_keras.predict(model, images)}
    for method in METHODS:
        if method != "occlusion":
            jobs[method] = lambda method=method: cct_keras.explain(
                model, images, method, verbose=False
            )
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(rounds):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            best[name] = min(best[name], time.perf_counter() - start)
    print("| 100 pictures | ms | over `predict` |\n|---|---|---|")
    for name, seconds in best.items():
        ratio = seconds / best["predict"]
        print(f"| {name} | {1000 * seconds:.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
