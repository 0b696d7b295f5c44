"""The folder of a run: its settings, its snapshots, its results.

A snapshot holds everything that the next epoch depends on. Files are written beside
the old ones and then take their place, so that neither a kill nor a full disk leaves
less than there was.
"""

import contextlib
import csv
import json
import pathlib
import shutil
import zipfile

import numpy as np

from cct_keras.atomic_file import TEMPORARY
from cct_keras.atomic_file import atomic_file

SETTINGS = "run.json"
METRICS = "metrics.json"
MODEL = "model.keras"
LAST_MODEL = "last.keras"
REPORT = "report.html"
SNAPSHOTS = "snapshots"
TENSORBOARD = "tensorboard"
HISTORY = "history.csv"
OWN_FILES = (METRICS, MODEL, LAST_MODEL, REPORT, HISTORY, SNAPSHOTS, TENSORBOARD)
KEPT_SNAPSHOTS = 2


class RunError(RuntimeError):
    """A run that cannot go on; one line says why."""


class RunFolder:
    """The files of one run.

    Args:
        path: The folder; it is made if it is not there.
    """

    def __init__(self, path):
        self.path = pathlib.Path(path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot make {path}: {error.strerror}") from error
        self._lock = None

    def __enter__(self):
        """Keeps other processes out."""
        self._lock = (self.path / ".lock").open("w")
        with contextlib.suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._lock.close()
                raise RunError(
                    f"another process trains in {self.path}; give this run its own "
                    "folder with --out"
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
            settings: What makes this run another one; plain JSON values.
            restart: Whether to throw an earlier run away.

        Returns:
            Whether the run that is there is complete.
        """
        # As they come back from the file.
        settings = json.loads(json.dumps(settings))
        try:
            return self._begin(settings, restart)
        except OSError as error:
            raise RunError(f"cannot write to {self.path}: {error}") from error

    def _begin(self, settings, restart):
        record = self.path / SETTINGS
        if restart:
            self._clear()
        earlier = self._read_json(record)
        if earlier is not None and differing_settings(earlier, settings):
            raise RunError(
                f"{self.path} holds a run with other settings "
                f"({differing_settings(earlier, settings)}): choose another folder "
                "with --out, or throw that run away with --restart"
            )
        if earlier is None:
            found = [name for name in OWN_FILES if (self.path / name).exists()]
            if found:
                raise RunError(
                    f"{self.path} holds files of something else ({', '.join(found)}): "
                    "choose another folder with --out, or remove them with --restart"
                )
            self.write_json(SETTINGS, settings)
        return (self.path / METRICS).is_file() and (self.path / MODEL).is_file()

    def _clear(self):
        """Removes what an earlier run wrote, and nothing else."""
        for name in (SETTINGS, *OWN_FILES):
            path = self.path / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    # === Snapshots ===

    def save_snapshot(self, epoch: int, arrays: dict, state: dict) -> None:
        """Writes the state after an epoch and removes the oldest.

        Args:
            epoch: Epochs that are complete.
            arrays: NumPy arrays by name.
            state: Plain JSON values.
        """
        folder = self.path / SNAPSHOTS
        folder.mkdir(exist_ok=True)
        target = folder / f"epoch_{epoch:06d}.npz"
        with atomic_file(target) as temporary, temporary.open("wb") as file:
            write_snapshot(file, arrays, state)
        for old in self._snapshots()[KEPT_SNAPSHOTS:]:
            old.unlink(missing_ok=True)

    def load_snapshot(self) -> tuple[dict, dict, list[str]] | None:
        """The newest snapshot that is whole.

        Returns:
            Its arrays, its state, and a line about each broken one; or `None`.
        """
        remarks = []
        for path in self._snapshots():
            try:
                # NumPy leaves a file open that it cannot read.
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
                f"no snapshot in {self.path} can be read; --restart begins anew"
            )
        return None

    def has_snapshot(self) -> bool:
        """Whether there is one, be it whole or not."""
        return bool(self._snapshots())

    def _snapshots(self):
        """Newest first."""
        return sorted((self.path / SNAPSHOTS).glob("epoch_*.npz"), reverse=True)

    # === Other files ===

    def write_json(self, name: str, values: dict) -> None:
        """Writes a JSON file at once."""
        with atomic_file(self.path / name) as temporary:
            temporary.write_text(json.dumps(values, indent=2) + "\n")

    def write_history(self, history: list[dict]) -> None:
        """Writes `history.csv`, a row an epoch."""
        columns = list(dict.fromkeys(name for row in history for name in row))
        lines = [",".join(columns)] + [
            ",".join(str(row.get(name, "")) for name in columns) for row in history
        ]
        with atomic_file(self.path / HISTORY) as temporary:
            temporary.write_text("\n".join(lines) + "\n")

    def read_history(self) -> list[dict]:
        """What `write_history` wrote."""
        with (self.path / HISTORY).open(newline="") as file:
            return [
                {
                    name: int(value) if name == "epoch" else float(value)
                    for name, value in row.items()
                    if value
                }
                for row in csv.DictReader(file)
            ]

    def save_model(self, model, name: str) -> None:
        """Saves a model file at once."""
        with atomic_file(self.path / name) as temporary:
            model.save(temporary)

    @staticmethod
    def _read_json(path):
        try:
            return json.loads(path.read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise RunError(
                f"{path} cannot be read ({error}); --restart throws the run away"
            ) from error

    @classmethod
    def read_settings(cls, path) -> dict:
        """The settings of the run in a folder, if there is one."""
        return cls._read_json(pathlib.Path(path) / SETTINGS) or {}

    def read_metrics(self) -> dict:
        """The results of a complete run."""
        return self._read_json(self.path / METRICS)


def write_snapshot(file, arrays: dict, state: dict) -> None:
    """Writes arrays and plain JSON values into an open file."""
    text = np.frombuffer(json.dumps(state).encode(), "uint8")
    np.savez(file, state=text, **arrays)


def read_snapshot(file) -> tuple[dict, dict]:
    """What `write_snapshot` wrote."""
    entries = np.load(file, allow_pickle=False)
    # Reading an entry compares its checksum.
    arrays = {name: entries[name] for name in entries.files}
    return arrays, json.loads(arrays.pop("state").tobytes())


def differing_settings(before: dict, after: dict, length: int = 300) -> str:
    """What differs between two settings, in words; empty if nothing does."""
    text = "; ".join(
        f"{name} {before.get(name)} -> {after.get(name)}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    )
    return text if len(text) <= length else text[: length - 3] + "..."
