"""The folder of a run: its settings, its snapshots, its results.

A snapshot holds everything that the next epoch depends on. Every file is first written
beside the old one and then takes its place, so that neither a kill nor a full disk can
spoil what was there before.
"""

import contextlib
import json
import os
import pathlib
import shutil
import zipfile

import numpy as np

from cct_keras.atomic_file import TEMPORARY
from cct_keras.atomic_file import atomic_file
from cct_keras.distributed.devices import Devices
from cct_keras.errors import RunError
from cct_keras.pretrained.source import RUN_MODEL
from cct_keras.recipes.run_settings import SPLIT_SEED
from cct_keras.recipes.run_settings import differing_settings
from cct_keras.recipes.run_settings import recorded_split_seed
from cct_keras.report.mistakes_page import MISTAKES_PAGE
from cct_keras.run_files import HISTORY
from cct_keras.run_files import METRICS
from cct_keras.run_files import PLAN
from cct_keras.run_files import PREDICTIONS
from cct_keras.run_files import REPORT
from cct_keras.run_files import SETTINGS
from cct_keras.run_files import read_history
from cct_keras.run_files import read_json
from cct_keras.run_files import read_predictions

LAST_MODEL = "last.keras"
SNAPSHOTS = "snapshots"
TENSORBOARD = "tensorboard"
# Of a teacher that is trained for the run: the folder of its own run, and its model.
TEACHER = "teacher"
TEACHER_MODEL = "teacher.keras"
# Seconds that a run with a time limit has taken.
CLOCK = "clock.json"
OWN_FILES = (
    METRICS,
    RUN_MODEL,
    LAST_MODEL,
    REPORT,
    MISTAKES_PAGE,
    HISTORY,
    PREDICTIONS,
    CLOCK,
    SNAPSHOTS,
    TENSORBOARD,
    TEACHER,
    TEACHER_MODEL,
)
KEPT_SNAPSHOTS = 2

# What the first machine finds in its folder, as it tells the others.
NEW, RESUMED, COMPLETE, FAILED = b"new", b"resumed", b"complete", b"failed: "


class RunFolder:
    """The files of one run.

    As a context it keeps other processes out of the folder.

    Args:
        path: The folder. Entering the context makes it if it does not exist.
        model: File of the trained model, seen from the folder.

    Example:

    >>> with RunFolder("runs/mine") as folder:  # it writes # doctest: +SKIP
    ...     folder.begin({"lr": 0.1}, restart=False)
    False
    """

    def __init__(self, path, model: str = RUN_MODEL):
        self.path = pathlib.Path(path)
        self.model = model
        self._lock = None

    def __enter__(self):
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot make {self.path}: {error.strerror}") from error
        self._lock = (self.path / ".lock").open("w")
        with contextlib.suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._lock.close()
                raise RunError(
                    f"another process trains in {self.path}; give this run a folder "
                    "of its own, out=..."
                ) from None
            except OSError:
                pass  # Some network file systems have no locks.
        for folder in (self.path, self.path / SNAPSHOTS):
            for leftover in folder.glob(f"{TEMPORARY}*"):
                leftover.unlink(missing_ok=True)
        return self

    def __exit__(self, *exception):
        self._lock.close()

    # === Settings ===

    def begin(self, settings: dict, restart: bool) -> bool:
        """Records the settings of a run.

        Args:
            settings: What makes this run different from others; plain JSON values.
            restart: Whether to throw an earlier run away.

        Returns:
            Whether the run in the folder is complete.
        """
        # In the form in which they come back from the file.
        settings = json.loads(json.dumps(settings))
        try:
            return self._begin(settings, restart)
        except OSError as error:
            raise RunError(f"cannot write to {self.path}: {error}") from error

    def _begin(self, settings, restart):
        if restart:
            self.throw_away(settings.get("weights"))
        recorded = read_json(self.path / SETTINGS)
        if recorded is not None:
            recorded.pop(PLAN, None)
        if recorded is not None and differing_settings(recorded, settings):
            raise RunError(
                f"{self.path} holds a run with other settings "
                f"({differing_settings(recorded, settings)}): choose another folder, "
                "out=..., or throw that run away with restart=True"
            )
        if recorded is None:
            found = [name for name in OWN_FILES if (self.path / name).exists()]
            if found:
                raise RunError(
                    f"{self.path} holds files of something else ({', '.join(found)}): "
                    "choose another folder, out=..., or remove them with restart=True"
                )
            self.write_json(SETTINGS, settings)
        return self.is_complete()

    def check_weights_remain(self, weights) -> None:
        """Refuses to throw away the weights from which the run starts.

        Args:
            weights: What the run starts from, or `None`.
        """
        if weights is None:
            return
        file = pathlib.Path(weights)
        if file.is_dir():
            file = file / RUN_MODEL
        if file.is_file() and self.path.resolve() in file.resolve().parents:
            raise RunError(
                f"restart=True would throw {weights} away, from which this run starts: "
                "choose another folder, out=..."
            )

    def is_complete(self) -> bool:
        """Whether the folder holds the results of a run."""
        return (self.path / METRICS).is_file() and (self.path / self.model).is_file()

    def recorded_settings(self) -> dict | None:
        """The settings of the run in the folder, or `None` if there is none."""
        return read_json(self.path / SETTINGS)

    def resumable_settings(self) -> dict:
        """The settings of a run that does not need the weights it started from.

        Returns:
            The settings of the run in the folder, if it is complete or has a snapshot
            to go on from, and else an empty dictionary.
        """
        settings = self.recorded_settings()
        goes_on = self.is_complete() or self.has_snapshot()
        return settings if settings is not None and goes_on else {}

    def split_seed(self, given: int) -> int:
        """The seed of the splits with which a run in the folder began.

        Args:
            given: The seed that is asked for, which counts if there is no run, or if
                its splits have a seed on record.

        Returns:
            The seed of the run, if an earlier version recorded it, whose runs had one
            seed for everything; and else the one that is given.
        """
        settings = read_json(self.path / SETTINGS) or {}
        if given or SPLIT_SEED in settings:
            return given
        return recorded_split_seed(settings)

    def throw_away(self, weights=None) -> None:
        """Removes the files of an earlier run, and nothing else.

        Args:
            weights: Weights from which the next run starts. If they are in the folder,
                an error says so.
        """
        self.check_weights_remain(weights)
        for name in (SETTINGS, *OWN_FILES):
            path = self.path / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    # === Snapshots ===

    def save_snapshot(self, epoch: int, arrays: dict, state: dict) -> None:
        """Writes the state after an epoch, and removes all but the newest snapshots.

        Args:
            epoch: Number of complete epochs.
            arrays: NumPy arrays by name.
            state: Plain JSON values.
        """
        folder = self.path / SNAPSHOTS
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"epoch_{epoch:06d}.npz"
        with atomic_file(target) as temporary, temporary.open("wb") as file:
            write_snapshot(file, arrays, state)
        for old in self._snapshots()[KEPT_SNAPSHOTS:]:
            old.unlink(missing_ok=True)

    def load_snapshot(self) -> tuple[dict, dict, list[str]] | None:
        """Reads the newest snapshot that is not broken.

        Returns:
            Its arrays, its state, and a line about each newer one that is broken; or
            `None` if there are no snapshots.
        """
        remarks = []
        for path in self._snapshots():
            try:
                # Opened here, because NumPy leaves a file open that it cannot read.
                with path.open("rb") as file:
                    arrays, state = read_snapshot(file)
            except (
                OSError,
                ValueError,
                KeyError,
                EOFError,
                AttributeError,
                zipfile.BadZipFile,
            ):
                remarks.append(f"{path.name} is broken; going back to the one before")
                continue
            return arrays, state, remarks
        if remarks:
            raise RunError(
                f"no snapshot in {self.path} can be read; restart=True begins anew"
            )
        return None

    def has_snapshot(self) -> bool:
        """Whether there is a snapshot, broken or not."""
        return bool(self._snapshots())

    def _snapshots(self):
        """Paths of the snapshots, the newest first."""
        return sorted((self.path / SNAPSHOTS).glob("epoch_*.npz"), reverse=True)

    # === Plan and time ===

    def read_plan(self) -> dict:
        """What a run decided at its beginning; empty if it has not yet."""
        return (read_json(self.path / SETTINGS) or {}).get(PLAN, {})

    def record_plan(self, **decisions) -> None:
        """Records what a run decided at its beginning, beside its settings.

        Args:
            **decisions: Plain JSON values, which are added to those on record.
        """
        settings = read_json(self.path / SETTINGS) or {}
        plan = {**settings.get(PLAN, {}), **decisions}
        try:
            self.write_json(SETTINGS, {**settings, PLAN: plan})
        except OSError as error:
            raise RunError(f"cannot write to {self.path}: {error}") from error

    def read_seconds(self) -> float:
        """Seconds that earlier sessions of a run with a time limit have taken."""
        try:
            return float(json.loads((self.path / CLOCK).read_text())["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            # The snapshots know the time as well.
            return 0.0

    def write_seconds(self, seconds: float) -> None:
        """Writes the seconds that a run has taken, if that is possible.

        Args:
            seconds: The seconds.
        """
        temporary = self.path / f"{TEMPORARY}{CLOCK}"
        # Without waiting for the disk, as it is written again and again.
        with contextlib.suppress(OSError):
            temporary.write_text(json.dumps({"seconds": round(seconds, 3)}) + "\n")
            os.replace(temporary, self.path / CLOCK)

    def forget(self) -> None:
        """Removes what a run has written that could not begin."""
        for name in (SETTINGS, CLOCK):
            (self.path / name).unlink(missing_ok=True)

    # === Other files ===

    def write_json(self, name: str, values: dict) -> None:
        """Writes a JSON file, which appears complete or not at all.

        Args:
            name: Name of the file.
            values: Plain JSON values.
        """
        with atomic_file(self.path / name) as temporary:
            temporary.write_text(json.dumps(values, indent=2) + "\n")

    def write_history(self, history: list[dict]) -> None:
        """Writes `history.csv`, with one row for each epoch.

        Args:
            history: A dictionary for each epoch.
        """
        columns = list(dict.fromkeys(name for row in history for name in row))
        lines = [",".join(columns)] + [
            ",".join(str(row.get(name, "")) for name in columns) for row in history
        ]
        with atomic_file(self.path / HISTORY) as temporary:
            temporary.write_text("\n".join(lines) + "\n")

    def read_history(self) -> list[dict]:
        """Reads what `write_history` wrote."""
        return read_history(self.path)

    def save_model(self, model, name: str) -> None:
        """Saves a model; its file appears complete or not at all.

        Args:
            model: The model.
            name: Name of the file.
        """
        with atomic_file(self.path / name) as temporary:
            model.save(temporary)

    def write_predictions(self, labels: np.ndarray, predictions: np.ndarray) -> None:
        """Writes which classes were predicted for the test images.

        Args:
            labels: Their classes.
            predictions: The predicted classes.
        """
        with (
            atomic_file(self.path / PREDICTIONS) as temporary,
            temporary.open("wb") as file,
        ):
            np.savez(file, labels=labels, predictions=predictions)

    def read_predictions(self) -> np.ndarray | None:
        """The predicted classes of the test images, if they were kept."""
        found = read_predictions(self.path)
        return None if found is None else found[1]

    def read_metrics(self) -> dict:
        """Reads the results of a complete run."""
        return read_json(self.path / METRICS)


def begin_run(
    folder: RunFolder | None, settings: dict, *, restart: bool, devices: Devices
) -> bytes:
    """Begins a run on all machines in the same state.

    Args:
        folder: The folder of the run; `None` if nothing is written, and on all
            machines but the first.
        settings: What makes this run different from others; plain JSON values.
        restart: Whether to throw an earlier run away.
        devices: The devices of the run.

    Returns:
        `NEW`, `RESUMED` if there is a snapshot to go on from, or `COMPLETE`.

    Raises:
        RunError: The folder cannot be used, on this machine or on the first.

    Example:

    >>> begin_run(None, {}, restart=False, devices=Devices())
    b'new'
    """
    state = NEW
    if folder is not None:
        try:
            if folder.begin(settings, restart):
                state = COMPLETE
            elif folder.has_snapshot():
                state = RESUMED
        except RunError as error:
            devices.broadcast(FAILED + str(error).encode())
            raise
    state = devices.broadcast(state)
    if state.startswith(FAILED):
        raise RunError(f"host 0: {state.removeprefix(FAILED).decode()}")
    return state


def write_snapshot(file, arrays: dict, state: dict) -> None:
    """Writes arrays and plain JSON values into an open file.

    Args:
        file: The file.
        arrays: NumPy arrays by name.
        state: Plain JSON values.

    Example:

    >>> import io
    >>> file = io.BytesIO()
    >>> write_snapshot(file, {"x": np.ones(2)}, {"epoch": 1})
    >>> _ = file.seek(0)
    >>> read_snapshot(file)
    ({'x': array([1., 1.])}, {'epoch': 1})
    """
    text = np.frombuffer(json.dumps(state).encode(), "uint8")
    np.savez(file, state=text, **arrays)


def read_snapshot(file) -> tuple[dict, dict]:
    """Reads what `write_snapshot` wrote.

    Args:
        file: An open file.

    Returns:
        The arrays by name, and the plain JSON values.
    """
    entries = np.load(file, allow_pickle=False)
    # Reading an entry also compares its checksum.
    arrays = {name: entries[name] for name in entries.files}
    return arrays, json.loads(arrays.pop("state").tobytes())
