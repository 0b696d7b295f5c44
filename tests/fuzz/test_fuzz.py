"""Damaged and hostile files are read or refused; nothing runs, hangs or fills memory.

150 files in the default tier. By hand, with figures at the end:

    pytest -n 0 -m fuzz --fuzz-cases 20000 --fuzz-seed 1
"""

import os
import pathlib
import sys

import bombs
import campaign
import mutators
import pytest

pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.skipif(
        not pathlib.Path("/proc/self/clear_refs").exists(),
        reason="the peak of the memory is measured with Linux",
    ),
]
FEW = 150


def run(folder, seed, cases, record_property):
    processes = 1 if cases <= FEW else os.cpu_count()
    figures = campaign.run(folder, seed, cases, processes)
    record_property("fuzz", str(figures))
    assert figures.tried == cases
    # With the name of the process's own file.
    listed = figures.findings[: campaign.MOST_LISTED]
    assert not listed, "\n".join([str(figures), *map(ascii, listed)])
    return figures


def test_damaged_files(tmp_path, request, record_property):
    """Each comes back as arrays, or as one line of a `CheckpointError`."""
    cases = request.config.getoption("--fuzz-cases")
    seed = request.config.getoption("--fuzz-seed")
    figures = run(tmp_path, seed, cases, record_property)
    if cases >= FEW:
        assert figures.refused > figures.accepted > 0
        kinds = {kind for kind, _ in figures.kinds}
        assert kinds == {kind.__name__[1:] for kind in mutators.KINDS}


@pytest.mark.integration
def test_bombs(tmp_path, record_property):
    """Files that ask for as much as they can stay within what a file may take."""
    run(tmp_path, "bombs", len(bombs.BOMBS), record_property)


def test_a_case_is_the_same_bytes_again():
    assert mutators.make_case(3, 14) == mutators.make_case(3, 14)
    assert mutators.make_case(3, 14) != mutators.make_case(4, 14)


CANARY = """
import os, pathlib, sys
sys.path[:0] = {path!r}
import reading_child
reading_child._limit()
watch, path = reading_child.Watch(), pathlib.Path("case.bin")
path.write_bytes(b"x")
def system(path): os.system("touch CANARY")
def evaluate(path): eval("1 + 1")
def write(path): pathlib.Path("CANARY").write_text("x")
def memory(path): b"x" * (100 * 2**20)
def type_error(path): len(3)
for function in (system, evaluate, write, memory, type_error):
    assert reading_child.measure(function, path, watch)["problems"], function
assert not reading_child.measure(lambda path: None, path, watch)["problems"]
"""


def test_the_watch_hears_what_runs(tmp_path):
    """The oracle itself: each of these would be a finding."""
    import subprocess

    code = CANARY.format(path=sys.path)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
