"""Reads damaged files, one after the other, in a process of its own; prints findings.

`campaign.py` starts it. By hand, `python reading_child.py SEED NUMBER FILE` writes a
case to a file.
"""

import ctypes
import faulthandler
import json
import os
import pathlib
import resource
import sys
import time
import warnings

import bombs
import mutators
import seed_files

LIBC = ctypes.CDLL(None)
# What a file of n bytes may take above what the imports hold, and how long.
MEMORY, MEMORY_A_BYTE = 64 * 2**20, 12
SECONDS, BYTES_A_SECOND = 5, 10**7
# Beyond these the process ends.
ADDRESS_SPACE, WALL_SECONDS = 3 * 2**30, 60
LONGEST_MESSAGE = 500
# Of so many cases one is made a model.
BUILD_EVERY = 250
WARM_UP = 40
HARMLESS = ("compile", "builtins.id", "object.__getattr__", "os.listdir", "os.scandir")


class Watch:
    """Collects what runs, writes, connects or imports while it is armed."""

    def __init__(self):
        self.armed, self.events = False, []
        sys.addaudithook(self.hear)

    def hear(self, event, arguments):
        if not self.armed or event in HARMLESS:
            return
        if event == "open" and arguments[2] & os.O_ACCMODE == os.O_RDONLY:
            return
        # Modules of Python itself and of NumPy, such as an encoding.
        if event in ("import", "exec", "marshal.loads", "sys._getframe"):
            name = getattr(arguments[0], "co_filename", "") if arguments else ""
            if event != "exec" or not name.startswith("<string"):
                return
        self.events.append(f"{event} {arguments!r}"[:200])


def read(path):
    """All that `convert` does with a file before it builds a model."""
    from cct_keras.converter.conversion import arrays_by_path
    from cct_keras.converter.formats import open_checkpoint
    from cct_keras.converter.infer import check_complete
    from cct_keras.converter.infer import infer
    from cct_keras.converter.infer import to_torch_shape
    from cct_keras.converter.infer import weight_shapes
    from cct_keras.models.transfer import POSITIONS

    checkpoint = open_checkpoint(path)
    architecture = infer(checkpoint, None, {"num_heads": 2})
    arrays = arrays_by_path(checkpoint, architecture)
    check_complete(architecture)
    str(architecture), architecture.variant, architecture.nearest_variant()
    shapes = weight_shapes(architecture)
    for name, array in arrays.items():
        assert array.dtype.kind in "fiub", (name, array.dtype)
        if name in shapes and name != POSITIONS:
            assert array.shape == shapes[name], (name, array.shape, shapes[name])
    assert to_torch_shape(()) == ()


def build(path):
    """A model."""
    import cct_keras

    cct_keras.convert(path, num_heads=2)


def measure(function, path, watch):
    """What came of a file: the outcome, and problems if there are any."""
    from cct_keras.errors import CheckpointError

    size = path.stat().st_size
    start_memory = _reset_peak()
    problems, message = [], ""
    watch.events, watch.armed = [], True
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            # Warnings of NumPy would be lines on stderr; of a model that is made of
            # numbers that are none, they are in place.
            if function is read:
                warnings.simplefilter("error", RuntimeWarning)
            function(path)
        outcome = "accepted"
    except CheckpointError as error:
        outcome, message = "refused", str(error)
    except BaseException as error:
        outcome, message = "raised", f"{type(error).__name__}: {str(error)[:400]}"
        problems.append(f"raised {_trace(error)}")
    seconds = time.process_time() - start
    watch.armed = False
    memory = _peak() - start_memory
    if watch.events:
        problems.append(f"did {watch.events[:3]}")
    if outcome == "refused":
        if len(message) > LONGEST_MESSAGE:
            problems.append(f"a message of {len(message)} characters")
        if not message.isprintable():
            problems.append("a message that is not one printable line")
        if "MemoryError" in message or "RecursionError" in message:
            problems.append("memory or stack were the limit")
        if "a broken file: " in message:
            problems.append("the last resort caught it")
    if memory > MEMORY + MEMORY_A_BYTE * size:
        problems.append(f"took {memory >> 20} MiB")
    if seconds > SECONDS + size / BYTES_A_SECOND:
        problems.append(f"took {seconds:.1f} s")
    return {
        "outcome": outcome,
        "problems": problems,
        "message": message[:300],
        "seconds": seconds,
        "memory": memory,
        "size": size,
    }


def _trace(error):
    import traceback

    frames = traceback.extract_tb(error.__traceback__)[-3:]
    where = " < ".join(
        f"{pathlib.Path(frame.filename).name}:{frame.lineno}" for frame in frames[::-1]
    )
    return f"{type(error).__name__} at {where}: {str(error)[:100]!r}"


def _reset_peak():
    """Starts the kernel's count of the peak anew; what the process holds now."""
    # What was freed before would be taken again, and not be counted.
    LIBC.malloc_trim(0)
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak():
    return _status("VmHWM")


def _status(name):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    found = next(line for line in lines if line.startswith(name + ":"))
    return int(found.split()[1]) * 1024


def _limit():
    """A hard end for what a limit of this file misses."""
    used = _status("VmSize")
    resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_SPACE,) * 2)


def main():
    """Reads the cases of a range of numbers, or the bombs, of seed `bombs`."""
    seed, numbers = sys.argv[1], range(*map(int, sys.argv[2:5]))
    if seed == "bombs":
        report((x, bombs.BOMBS[x].__name__, bombs.BOMBS[x]()) for x in numbers)
    else:
        report((x, *mutators.make_case(int(seed), x)) for x in numbers)


def report(cases):
    """Reads cases of a number, a name and bytes, and prints a line of JSON for each."""
    watch, path = Watch(), pathlib.Path("case.bin").absolute()
    for number in range(WARM_UP):
        _, content = mutators.make_case(-1, number)
        path.write_bytes(content)
        measure(read, path, watch)
    _limit()
    builds = 0
    before = sorted(os.listdir())
    for number, name, content in cases:
        print(json.dumps({"start": number, "name": name}), flush=True)
        path.write_bytes(content)
        del content
        faulthandler.dump_traceback_later(WALL_SECONDS, exit=True)
        function = build if number % BUILD_EVERY == BUILD_EVERY - 1 else read
        if function is build and not builds:
            # The first model imports what Keras needs to make one.
            builds += 1
            build(seed_files.GOLDEN / "checkpoints" / "zip.pth")
        result = measure(function, path, watch)
        faulthandler.cancel_dump_traceback_later()
        if sorted(os.listdir()) != before:
            result["problems"].append(f"left {sorted(os.listdir())}")
        print(json.dumps({"number": number, "name": name, **result}), flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        _, content = mutators.make_case(int(sys.argv[1]), int(sys.argv[2]))
        pathlib.Path(sys.argv[3]).write_bytes(content)
    else:
        main()
