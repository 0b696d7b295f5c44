"""`compare`: finished runs of any origin side by side."""

import json
import os
import pathlib
import re
from collections.abc import Iterable

from cct_keras.errors import RunError
from cct_keras.recipes.run_settings import EARLIER
from cct_keras.run_files import METRICS
from cct_keras.run_files import SETTINGS
from cct_keras.studies.comparison import Comparison
from cct_keras.studies.finished import FinishedRun
from cct_keras.studies.finished import read_run
from cct_keras.studies.plan import value_text

# What differs between runs of several seeds or folds, beside the seed itself.
OF_SPLITS = ("seed", "split_seed", "folds", "fold", "fingerprint", "mean", "std")
# A group is called by its settings if it differs from the others in no more than these.
MOST_NAMED = 3
# Runs that are left out are named up to this number.
MOST_LEFT_OUT = 5


def compare(runs) -> Comparison:
    """Compares finished runs, whoever trained them.

    Runs that differ in the seed alone, or in the fold, are a group: what is compared is
    their mean. The first group is the one that the others are compared with.

    Args:
        runs: The folder of a run or of a study, a folder of such folders, or a list of
            these.

    Returns:
        A `Comparison`. Its `settings` say what differs between the groups, and its
        `warnings` whether they were measured on different images. Its `save` writes
        the table and a page with the curves side by side.

    Raises:
        RunError: There is no such folder, or no finished run in any of them.

    Example:

    >>> print(cct_keras.compare(["runs/a", "runs/b"]))  # doctest: +SKIP
    """
    if isinstance(runs, (str, os.PathLike)):
        runs = [runs]
    found, notes = _read_all(runs)
    groups = _group(found)
    settings = _differing(groups)
    names = _group_names(groups, settings)
    named = dict(zip(names, groups, strict=True))
    return Comparison(
        f"Comparison of {len(found)} {'run' if len(found) == 1 else 'runs'}",
        named,
        settings,
        notes=(*notes, *_note_settings(settings)),
        warnings=tuple(_warnings(found, named)),
        facts={
            "runs": ", ".join(run.name for run in found),
            "data": ", ".join(dict.fromkeys(_data_of(run) for run in found)),
        },
    )


# === Reading ===


def _read_all(sources: Iterable):
    """All finished runs, and a note about what holds none."""
    runs, left_out = {}, []
    for source in sources:
        if isinstance(source, FinishedRun):
            runs[id(source)] = source
            continue
        path = pathlib.Path(source)
        if not path.exists():
            raise RunError(f"no such run: {path}")
        folders = _run_folders(path)
        if not folders:
            left_out.append(path.as_posix())
        for folder in folders:
            # A study, and its runs, may both be given.
            runs.setdefault(folder.resolve(), folder)
    found = [x if isinstance(x, FinishedRun) else read_run(x) for x in runs.values()]
    notes = []
    if left_out:
        more = len(left_out) - MOST_LEFT_OUT
        names = ", ".join(left_out[:MOST_LEFT_OUT])
        names += f" and {more} more" if more > 0 else ""
        if not found:
            raise RunError(f"there is no finished run in {names}")
        notes.append(f"left out, as there is no finished run in it: {names}")
    if not found:
        raise RunError("give one run or more to compare. Received: none")
    return found, notes


def _run_folders(path):
    """The folders of finished runs at or below a path."""
    if not path.is_dir():
        return []
    if (path / METRICS).is_file():
        return [path]
    found = (file.parent for file in path.rglob(METRICS))
    # A teacher's own run is in the folder of its student's, which may be unfinished.
    return sorted(
        (x for x in found if not (x.parent / SETTINGS).is_file()), key=_natural
    )


def _natural(path):
    """So that seed=10 comes after seed=2."""
    return [
        [(int(x), "") if x.isdigit() else (-1, x) for x in re.split(r"(\d+)", part)]
        for part in path.parts
    ]


# === Groups ===


def _group(runs):
    """Runs that differ in the seed or the fold alone, as lists."""
    groups = {}
    for run in runs:
        groups.setdefault(_key(run), []).append(run)
    return [part for group in groups.values() for part in _by_data(group)]


def _key(run):
    settings = {k: v for k, v in _settings_of(run).items() if k not in OF_SPLITS}
    settings = {k: v for k, v in settings.items() if v is not None}
    return json.dumps(settings, sort_keys=True)


def _settings_of(run):
    """Its settings, and what it had that was recorded only later."""
    return {**EARLIER, **run.settings}


def _by_data(group):
    """Parts of a group that saw other images, although they cut the same splits."""
    seen = {}
    for run in group:
        seen.setdefault(run.splits, set()).add(run.settings.get("fingerprint"))
    if all(len(fingerprints) == 1 for fingerprints in seen.values()):
        return [group]
    parts = {}
    for run in group:
        parts.setdefault(run.settings.get("fingerprint"), []).append(run)
    return list(parts.values())


def _differing(groups):
    """By the name of each setting that differs between the groups, their values."""
    if len(groups) == 1:
        return {}
    firsts = [_settings_of(group[0]) for group in groups]
    names = dict.fromkeys(
        name for first in firsts for name in first if name not in OF_SPLITS
    )
    rows = {name: [first.get(name) for first in firsts] for name in names}
    rows["data"] = [_data_of(group[0]) for group in groups]
    return {
        name: [value_text(value) for value in values]
        for name, values in rows.items()
        if any(value != values[0] for value in values)
    }


def _data_of(run):
    """The data in words; those of one name may be other images."""
    fingerprint = str(run.settings.get("fingerprint", ""))[:8]
    folds = run.settings.get("folds")
    name = run.settings.get("data", "?")
    if folds:
        return f"{name} in {folds} folds"
    return f"{name} ({fingerprint})" if fingerprint else name


def _group_names(groups, settings):
    """By its few differing settings, or else by the folders of its runs."""
    if 0 < len(settings) <= MOST_NAMED:
        names = [
            ", ".join(f"{name}={values[i]}" for name, values in settings.items())
            for i in range(len(groups))
        ]
        if len(set(names)) == len(names):
            return names
    names = [_common_name([run.name for run in group]) for group in groups]
    if len(set(names)) == len(names):
        return names
    return [f"{name} ({number})" for number, name in enumerate(names, 1)]


def _common_name(names):
    if len(names) == 1:
        return names[0]
    start = names[0]
    while not all(name.startswith(start) for name in names):
        start = start[:-1]
    return f"{start}*" if start else f"{names[0]} and {len(names) - 1} more"


# === What to know ===


def _note_settings(settings):
    if settings:
        texts = [f"{name} {' / '.join(v)}" for name, v in settings.items()]
        more = len(texts) - 12
        text = "; ".join(texts[:12]) + (f"; and {more} more" if more > 0 else "")
        yield f"what differs: {text}"


def _warnings(runs, groups):
    names = sorted({str(run.settings.get("data")) for run in runs})
    if len(names) > 1:
        yield f"these runs were trained on different data: {', '.join(names)}"
        return
    key = "test_fingerprint"
    if not all(run.metrics.get(key) for run in runs):
        key = "fingerprint"
    tested = {
        name: {run.metrics.get(key) for run in group} for name, group in groups.items()
    }
    first = next(iter(tested.values()))
    mixed = any(
        len(tested[name]) > 1 and not all(run.settings.get("fold") for run in group)
        for name, group in groups.items()
    )
    if mixed or any(images != first for images in tested.values()):
        seeds = sorted({run.splits[0] for run in runs})
        why = f" (split seeds {', '.join(map(str, seeds))})" if len(seeds) > 1 else ""
        yield (
            f"not all of these runs were measured on the same test images{why}: only "
            "pairs that were are compared"
        )
