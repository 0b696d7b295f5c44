"""`study`: the same training with several seeds, folds or settings."""

import functools
import gc
import json
import os
import pathlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping

from cct_keras.data.dataset import Dataset
from cct_keras.data.dataset import load_data
from cct_keras.data.folds import Folds
from cct_keras.data.folds import load_folds
from cct_keras.errors import DataError
from cct_keras.errors import DivergedError
from cct_keras.errors import RecipeError
from cct_keras.errors import RunError
from cct_keras.recipes.recipe import FIELDS
from cct_keras.recipes.recipe import Recipe
from cct_keras.recipes.run_settings import recipe_settings
from cct_keras.run_files import SETTINGS
from cct_keras.studies.comparison import Comparison
from cct_keras.studies.finished import FinishedRun
from cct_keras.studies.finished import read_run
from cct_keras.studies.plan import PlannedRun
from cct_keras.studies.plan import make_plan
from cct_keras.studies.plan import value_text
from cct_keras.training.load import load_training_data
from cct_keras.training.load import resolve_recipe
from cct_keras.training.run_folder import RunFolder
from cct_keras.training.train import Run
from cct_keras.training.train import train

# The table and the page of a study, in its folder.
NAME = "study"


def study(
    data,
    variant: str | None = None,
    recipe: str | Recipe | None = None,
    *,
    seeds: int | None = None,
    folds: int | None = None,
    tries: Mapping[str, Iterable] | None = None,
    seed: int = 0,
    split_seed: int = 0,
    out=None,
    data_dir=None,
    restart: bool = False,
    verbose: bool = True,
    log: Callable[[str], None] | None = None,
    command: str | None = None,
    **settings,
) -> Comparison:
    """Trains several times, and tells what the runs have in common and what differs.

    One run tells little: another seed may change its accuracy more than the setting
    that is tried. With `seeds` all runs are tested on the same images. With `folds`
    each image is in the test split of exactly one of them, and every fold cuts a
    validation split of its own off the other images; a test split that the source has
    of its own is left out. With `tries` all of this is done for each combination of
    their values, and each is compared with the first.

    Every run has a folder in `out`, such as `lr=0.001,augment=none/seed=0`, as if
    `train` had written it. The study can be killed at any moment: the same call goes on
    in the epoch in which it was, and trains no finished run again. More seeds or more
    values may be asked for later.

    Args:
        data: What `load_data` takes, or for seeds also what it returned. It is read
            once for all runs that see it in the same size.
        variant: As for `train`.
        recipe: As for `train`.
        seeds: How many seeds; by default 3.
        folds: How many folds, in the place of seeds: from 2 to the number of images of
            the smallest class.
        tries: Lists of values by the name of a field of the recipe or an argument of
            `train`, such as `{"lr": [1e-3, 2e-3], "augment": ["none", "auto"]}`.
        seed: The first of the seeds, or that of all folds.
        split_seed: Seed by which the test and validation splits, or the folds, are cut.
        out: Folder of the study. With `None` nothing is written, and the models are not
            kept.
        data_dir: Where tensorflow-datasets keeps prepared data.
        restart: Whether to throw away the runs that are in `out`.
        verbose: Whether to show the progress.
        log: Called with each line about the study, in place of printing it.
        command: What the reports show as the command.
        **settings: Further arguments of `train`, and fields of the recipe to replace.

    Returns:
        A `Comparison`; printed it is a table. In `out` it is `study.json`, and with the
        curves `study.html`.

    Raises:
        RecipeError: A setting does not exist, or there is nothing to try.
        RunError: A folder holds a run with other settings.

    Example:

    >>> found = study("digits", tries={"lr": [1e-3, 2e-3]})  # trains # doctest: +SKIP
    >>> print(found)  # doctest: +SKIP
    """
    settings = {"variant": variant, "recipe": recipe, **settings}
    settings = {name: value for name, value in settings.items() if value is not None}
    _check_seeds(seed=seed, split_seed=split_seed)
    plan = make_plan(tries, settings, seeds=seeds, folds=folds, first_seed=seed)
    if folds is not None and isinstance(data, Dataset):
        raise DataError(
            "`folds` are cut from all images: give the source of the data, not what "
            "`load_data` returned"
        )
    log = log or functools.partial(print, flush=True)
    trainer = _Trainer(
        data,
        settings,
        folds=folds,
        split_seed=split_seed,
        out=None if out is None else pathlib.Path(out),
        data_dir=data_dir,
        verbose=verbose,
        log=log,
        command=command or "cct_keras.study",
    )
    if out is None:
        return trainer.train_all(plan)
    trainer.check_folder()
    with RunFolder(out):
        if restart:
            trainer.throw_away(plan)
        comparison = trainer.train_all(plan)
        page = comparison.save(out, NAME)
    if verbose:
        for line in (*str(comparison).splitlines(), f"page: {page}"):
            log(line)
    return comparison


class _Trainer:
    """Trains the runs of a study, on data that are loaded once."""

    def __init__(
        self,
        source,
        settings,
        *,
        folds,
        split_seed,
        out,
        data_dir,
        verbose,
        log,
        command,
    ):
        self.source = source
        self.settings = settings
        self.folds = folds
        self.split_seed = split_seed
        self.out = out
        self.data_dir = data_dir
        self.verbose = verbose
        self.log = log
        self.command = command
        self._said = set()
        self._loaded = None
        self._notes = ()
        self._data = {}

    def say(self, line):
        if self.verbose:
            self.log(line)

    # === The folder ===

    def folder(self, run: PlannedRun) -> pathlib.Path | None:
        return None if self.out is None else self.out / run.name

    def check_folder(self):
        if (self.out / SETTINGS).exists():
            raise RunError(
                f"{self.out} holds a single run: choose another folder for the study, "
                "out=..."
            )

    def throw_away(self, plan):
        """Removes earlier runs at once, so that a kill leaves no mixture."""
        for run in plan:
            weights = {**self.settings, **run.values}.get("weights")
            if isinstance(weights, (str, os.PathLike)):
                RunFolder(self.out).check_weights_remain(weights)
        for run in plan:
            if self.folder(run).is_dir():
                with RunFolder(self.folder(run)) as folder:
                    folder.throw_away()

    # === Training ===

    def train_all(self, plan: list[PlannedRun]) -> Comparison:
        recipes = self._recipes(plan)
        if len(plan) > 1:
            self.say(_plan_text(plan, len(recipes), self.folds))
        done = {}
        # Those that were begun come first: if they have other settings, this is said
        # before anything is trained.
        for number, run in enumerate(sorted(plan, key=self._is_new), 1):
            done[run.name] = self._train(
                run, recipes[run.group], f"run {number} of {len(plan)}: {run.name}"
            )
            comparison = self._compare(plan, done, recipes)
            if self.out is not None:
                comparison.save_table(self.out / f"{NAME}.json")
            # A model and its graphs refer to one another.
            gc.collect()
        return comparison

    def _recipes(self, plan):
        """The recipe of each try; what is impossible is refused before any training."""
        found = {}
        for run in plan:
            if run.group in found:
                continue
            fields = {**self.settings, **run.values}
            fields = {k: v for k, v in fields.items() if k in FIELDS or k == "recipe"}
            fields.pop("image_size", None)
            recorded = {}
            if self.out is not None:
                recorded = RunFolder(self.folder(run)).resumable_settings()
            recipe = fields.pop("recipe", None)
            found[run.group], _ = resolve_recipe(recipe, recorded=recorded, **fields)
        return found

    def _is_new(self, run):
        return self.out is None or not (self.folder(run) / SETTINGS).exists()

    def _train(self, run, recipe, title):
        folder = self.folder(run)
        data = self._load(run, recipe)
        complete = folder is not None and RunFolder(folder).is_complete()
        if not complete:
            self.say(title)
        try:
            result = train(
                data,
                **{**self.settings, **run.values},
                seed=run.seed,
                split_seed=self.split_seed,
                out=folder,
                verbose=self.verbose and not complete,
                log=self._log_once,
                command=self.command,
            )
        except DivergedError as error:
            self.say(f"{run.name} failed: {error}")
            settings = {"seed": run.seed, "fold": run.fold}
            return FinishedRun(run.name, settings, {}, [], None, folder, str(error))
        if complete:
            self.say(f"{title} is complete: {result.metrics['test']['top1']:.2%}")
        if folder is not None:
            return read_run(folder, run.name)
        return self._finished(run, recipe, result)

    def _finished(self, run, recipe, result: Run):
        """A run that has no folder."""
        settings = {
            **recipe_settings(recipe),
            "data": result.data.name,
            "fingerprint": result.data.fingerprint,
            "seed": run.seed,
            "split_seed": self.split_seed,
            "folds": self.folds,
            "fold": run.fold,
        }
        return FinishedRun(
            run.name,
            json.loads(json.dumps(settings)),
            result.metrics,
            result.history,
            result.predictions == result.data.test.labels,
        )

    def _log_once(self, line):
        """The data and what is to be known of them are the same for many runs."""
        if line.startswith(("note: ", f"{self._data['name']}: ")):
            if line in self._said:
                return
            self._said.add(line)
        self.log(line)

    # === Data ===

    def _load(self, run, recipe) -> Dataset:
        size = {**self.settings, **run.values}.get("image_size")
        data = load_training_data(
            self.source,
            recipe,
            image_size=size,
            data_dir=self.data_dir,
            seed=self.split_seed,
            load=self._load_once,
        )
        if isinstance(data, Folds):
            self._notes = data.pool.notes
            data = data.fold(run.fold)
        elif not self._data:
            self._notes = data.notes
        if not self._data:
            self._data = {"name": data.name, "text": data.describe()}
        return data

    def _load_once(self, source, **settings):
        """Loads the data, unless they are loaded already as they are needed."""
        if self._loaded is None or self._loaded[0] != settings:
            self._loaded = None
            if self.folds is None:
                data = load_data(source, **settings)
            else:
                data = load_folds(source, self.folds, **settings)
            self._loaded = settings, data
        return self._loaded[1]

    # === What came out ===

    def _compare(self, plan, done, recipes) -> Comparison:
        from cct_keras import __version__

        groups, settings = {}, {}
        for run in plan:
            name = run.group or recipes[run.group].variant
            groups.setdefault(name, [])
            if run.name in done:
                groups[name].append(done[run.name])
        first_of_each = {run.group: run for run in reversed(plan)}
        for run in reversed(first_of_each.values()):
            for name, value in run.values.items():
                settings.setdefault(name, []).append(value_text(value))
        failures = [run for run in done.values() if run.failure]
        return Comparison(
            f"Study of {self._data['name']}",
            groups,
            settings,
            notes=(
                *self._notes,
                *_protocol_notes(len(groups), self.folds),
                *(f"{run.name} has no result: {run.failure}" for run in failures),
            ),
            facts={
                "command": self.command,
                "data": self._data["text"],
                "runs": _plan_text(plan, len(recipes), self.folds),
                "split seed": str(self.split_seed),
                "version": f"cct_keras {__version__}",
            },
        )


def _check_seeds(**seeds):
    for name, value in seeds.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise RecipeError(
                f"`{name}` must be an integer of 0 or more. Received: {name}={value!r}"
            )


def _plan_text(plan, tries, folds):
    """How many runs there are, and why."""
    each = len(plan) // tries
    kind = ("seed" if folds is None else "fold") + "s" * (each > 1)
    if tries == 1:
        return f"{each} {kind}"
    return f"{len(plan)} runs: {tries} settings with {each} {kind} each"


def _protocol_notes(groups, folds):
    if folds is not None:
        yield (
            f"each image is tested in exactly one of the {folds} folds; they share "
            "training images, so that intervals over folds are a little too narrow"
        )
    if groups > 1:
        yield (
            "choose by the validation accuracy: the test accuracy of what it chose is "
            "then that of new images"
        )
