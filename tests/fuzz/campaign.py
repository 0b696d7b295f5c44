"""Starts the processes that read damaged files, and collects what they say."""

import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time

FOLDER = pathlib.Path(__file__).parent
# Of the same place only so many findings are listed.
MOST_LISTED = 40


@dataclasses.dataclass
class Figures:
    """What a campaign found.

    Attributes:
        tried: Files read.
        refused: Those with a `CheckpointError`.
        accepted: Those whose arrays came back.
        seconds: How long it took, by the clock.
        slowest: The longest time of the processor that a file took.
        memory: The most memory that a file took.
        findings: What must not be, by case.
    """

    tried: int = 0
    refused: int = 0
    accepted: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    memory: int = 0
    findings: list[str] = dataclasses.field(default_factory=list)
    kinds: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def __str__(self):
        return (
            f"{self.tried} files tried: {self.refused} refused, {self.accepted} "
            f"accepted, {len(self.findings)} findings; {self.seconds:.0f} s, the "
            f"slowest {self.slowest:.2f} s; peak {self.memory / 2**20:.0f} MiB"
        )

    def add(self, result: dict) -> None:
        """Counts a line of a child."""
        self.tried += 1
        self.refused += result["outcome"] == "refused"
        self.accepted += result["outcome"] == "accepted"
        self.slowest = max(self.slowest, result["seconds"])
        self.memory = max(self.memory, result["memory"])
        self.kinds[result["name"].split(" of ")[0], result["outcome"]] += 1
        if result["problems"]:
            self.findings.append(
                f"case {result['number']}, {result['name']}, {result['size']} bytes: "
                f"{'; '.join(result['problems'])}: {result['message']}"
            )


def run(
    folder: pathlib.Path, seed: int | str, cases: int, processes: int = 1
) -> Figures:
    """Reads so many damaged files.

    Args:
        folder: An empty folder, in which nothing but the case may appear.
        seed: Seed of the cases, or `"bombs"`.
        cases: How many.
        processes: How many at a time.
    """
    figures, start = Figures(), time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(processes) as pool:
        jobs = [
            pool.submit(_run_one, folder / str(i), seed, i, processes, cases, figures)
            for i in range(processes)
        ]
        for job in jobs:
            job.result()
    figures.seconds = time.perf_counter() - start
    return figures


def _run_one(folder, seed, first, step, end, figures):
    """Every so many of the cases, also after one that ended its process."""
    folder.mkdir(parents=True, exist_ok=True)
    while first < end:
        last, error = _start_child(folder, [seed, first, end, step], figures)
        if last is None:
            return
        figures.tried += 1
        figures.findings.append(f"case {last}: the process ended: {error}")
        first = last + step


def _start_child(folder, arguments, figures):
    """The case at which a child ended too early, and what it said; or `None`."""
    environment = {
        **os.environ,
        # No file is read otherwise on another.
        "KERAS_BACKEND": "tensorflow",
        "PYTHONPATH": os.pathsep.join([str(FOLDER.parent.parent), *sys.path]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    child = subprocess.Popen(
        [sys.executable, str(FOLDER / "reading_child.py"), *map(str, arguments)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    running = None
    with child:
        for line in child.stdout:
            result = json.loads(line)
            if "start" in result:
                running = result["start"]
            else:
                figures.add(result)
                running = None
        error = child.stderr.read()
    if running is None and child.returncode:
        raise RuntimeError(f"a child ended between two files: {error[-2000:]}")
    return running, f"{child.returncode} {error[-1500:]}"


if __name__ == "__main__":
    import tempfile

    seed, (cases, processes) = sys.argv[1], map(int, sys.argv[2:4])
    with tempfile.TemporaryDirectory() as folder:
        figures = run(pathlib.Path(folder), seed, cases, processes)
    print(*map(ascii, figures.findings), sep="\n")
    print(figures)
    for key, count in sorted(figures.kinds.items()):
        print(*key, count)
