"""The app file: a hyperparameter search or a single training run in TOML, validated as a whole before anything starts.

Every error names the rule, the value and the place; all errors of a file are reported together. This module imports
pydantic, which is slow, so that code that rarely needs this module imports it inside a function.
"""

import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ValidationError

from eunomia.errors import InputError, InputErrors
from eunomia.platform.toml_bounds import parse_toml
from eunomia_appmaster.app.app_tables import (
    DISTRIBUTIONS,
    MOST_TRIALS,
    PARAMETER,
    AppTable,
    JobTable,
    Slots,
    TunerTable,
)
from eunomia_appmaster.app.command import PLACEHOLDERS, Command
from eunomia_appmaster.app.space import OPTUNA_SAMPLERS, Distribution, grid_size
from eunomia_appmaster.app.submission import login_name
from eunomia_appmaster.tuner import CONCURRENT_TRIALS, Search, Tuner, load_tuner, takes_more_trials

M = TypeVar("M", bound=BaseModel)

STAND_INS: Mapping[type[BaseModel], Mapping[str, str]] = {AppTable: {"name": "x"}, JobTable: {"command": "x"}}
"""Valid values of required keys, with which the rest of a table is checked if a key is missing or faulty."""


class AppFile:
    """A checked app file.

    Attributes:
        app: the table ``[app]``.
        user: the app's owner.
        job: the table ``[job]``.
        space: the distribution of each parameter.
        tuner: the table ``[tuner]``.
        command: the job's command, with placeholders.
        search: the tuner's inputs in addition to its own options.
        tuner_type: the tuner's class.
        tuner_options: the tuner's own options.
    """

    def __init__(
        self,
        *,
        app: AppTable,
        user: str,
        job: JobTable,
        tuner: TunerTable,
        command: Command,
        search: Search,
        tuner_type: type[Tuner],
        tuner_options: BaseModel,
    ) -> None:
        self.app = app
        self.user = user
        self.job = job
        self.space = search.space
        self.tuner = tuner
        self.command = command
        self.search = search
        self.tuner_type = tuner_type
        self.tuner_options = tuner_options

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        place: str,
        folder: Path,
        tuners: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        more_trials: Sequence[int] = (),
    ) -> Self:
        """Read and check an app file.

        Args:
            text: the file's content, in TOML.
            place: the file's name in errors, such as ``resnet.toml``.
            folder: the working folder of the app's jobs, to which paths of scripts are relative.
            tuners: ``module:class`` by kind; None: the built-in tuners and those of plugins.
            env: the submitter's environment, for ``PATH`` and ``VIRTUAL_ENV``; None: this process's.
            user: the app's owner if the file names none; None: the login name.
            more_trials: sizes of the groups of trials that were added after the search had ended, in order.

        Raises:
            InputErrors: all errors of the file.
        """
        reader = _Reader(place, tuple(more_trials))
        raw = reader.toml(text)
        app = reader.table(AppTable, raw, "app")
        job = reader.table(JobTable, raw, "job")
        space = reader.space(raw)
        tuner = reader.table(TunerTable, raw, "tuner")
        command = reader.command(job, raw.get("space", {}), folder, env)
        found = reader.tuner(raw, tuner, job, space, tuners)
        reader.finish()
        if app is None or job is None or tuner is None or command is None or found is None:
            raise InputErrors([InputError("an app file must have [app] and [job]", place=place)])
        search, tuner_type, options = found
        return cls(
            app=app,
            user=app.user or user or login_name(),
            job=job,
            tuner=tuner,
            command=command,
            search=search,
            tuner_type=tuner_type,
            tuner_options=options,
        )

    def make_tuner(self) -> Tuner:
        """Return a new tuner in its initial state."""
        return self.tuner_type.create(self.search, self.tuner_options)


class _Reader:
    """Collects the errors of one file.

    A key with an error is treated as if it had its default, so that the other keys can be checked; checks that depend
    on the key are skipped.
    """

    def __init__(self, place: str, more_trials: tuple[int, ...]) -> None:
        self.place = place
        self.more_trials = more_trials
        self.errors: list[InputError] = []
        self.faulty: set[str] = set()
        """Keys with an error, such as ``[tuner].mode``."""

    def finish(self) -> None:
        if self.errors:
            raise InputErrors(self.errors)

    def note(self, rule: str, *, key: str, value: str | None = None) -> None:
        if key in self.faulty:
            return
        self.errors.append(InputError(rule, value=value, place=f"{self.place}, {key}"))

    def toml(self, text: str) -> dict[str, Any]:
        try:
            raw = parse_toml(text, "an app file", place=self.place)
        except InputError as error:
            raise InputErrors([error]) from error
        known = ("app", "job", "space", "tuner")
        for key in raw:
            if key not in known:
                self.note(
                    "an app file must hold [app], [job], [space] and [tuner] only", key=key, value=_quote(key, known)
                )
        return raw

    def table(self, model: type[M], raw: dict[str, Any], name: str) -> M | None:
        return self.model(model, raw.get(name, {}), f"[{name}]")

    def model(self, model: type[M], content: object, key: str) -> M | None:
        if not isinstance(content, dict):
            self.note(f"{key} must be a table", key=key, value=_show(content))
            return None
        try:
            return model.model_validate(content)
        except ValidationError as error:
            self.errors += _explain(error, model, f"{self.place}, {key}")
            wrong = {str(found["loc"][0]) for found in error.errors(include_url=False) if found["loc"]}
        self.faulty |= {f"{key}.{name}" for name in wrong}
        rest = {name: given for name, given in content.items() if name not in wrong}
        try:
            return model.model_validate({**STAND_INS.get(model, {}), **rest})
        except ValidationError:
            return None

    def space(self, raw: dict[str, Any]) -> dict[str, Distribution] | None:
        """Return the distribution of each parameter of the search space; None if any is invalid."""
        before = len(self.errors)
        tables = raw.get("space", {})
        if not isinstance(tables, dict):
            self.note("[space] must be a table", key="[space]", value=_show(tables))
            return None
        space = {name: self.distribution(name, content) for name, content in tables.items()}
        return (
            None if len(self.errors) > before else {name: found for name, found in space.items() if found is not None}
        )

    def distribution(self, name: str, content: object) -> Distribution | None:
        key = f"[space].{name}"
        if not PARAMETER.fullmatch(name) or name in PLACEHOLDERS:
            rule = "a parameter must be named with letters, digits, dashes and underscores, and not " + ", ".join(
                PLACEHOLDERS
            )
            self.note(rule, key="[space]", value=_show(name))
            return None
        kind = content.get("type") if isinstance(content, dict) else None
        model = DISTRIBUTIONS.get(kind) if isinstance(kind, str) else None
        if model is None:
            self.note(
                'type must be "float", "int" or "categorical"', key=f"{key}.type", value=_quote(kind, DISTRIBUTIONS)
            )
            return None
        before = len(self.errors)
        table = self.model(model, content, key)
        try:
            return None if table is None or len(self.errors) > before else table.distribution()
        except ValueError as error:
            self.note(str(error), key=key, value=_show(content))
            return None

    def command(
        self, job: JobTable | None, space: object, folder: Path, env: Mapping[str, str] | None
    ) -> Command | None:
        if job is None or "[job].command" in self.faulty or not isinstance(space, dict):
            return None
        place = f"{self.place}, [job].command"
        try:
            command = Command.parse(job.command, parameters=tuple(space), place=place)
            command.check(folder, env=env, place=place)
        except InputErrors as several:
            self.errors += several.errors
            return None
        except InputError as error:
            self.errors.append(error)
            return None
        return command

    def tuner(
        self,
        raw: dict[str, Any],
        tuner: TunerTable | None,
        job: JobTable | None,
        space: dict[str, Distribution] | None,
        kinds: Mapping[str, str] | None,
    ) -> tuple[Search, type[Tuner], BaseModel] | None:
        """Return the search, the tuner's class and its options, checked across tables; None if any is invalid."""
        if tuner is None or "[tuner].kind" in self.faulty:
            return None
        try:
            found = load_tuner(tuner.kind, kinds, place=f"{self.place}, [tuner].kind")
        except InputError as error:
            self.errors.append(error)
            return None
        own = {key: content for key, content in raw.get("tuner", {}).items() if key not in TunerTable.model_fields}
        before = len(self.errors)
        options = self.model(found.options_type, own, "[tuner]")
        options = None if len(self.errors) > before else options
        self._check_sampler(tuner)
        if found.needs_metric and tuner.metric is None:
            self.note(
                f'metric must name a TensorBoard tag for tuner "{tuner.kind}"', key="[tuner].metric", value="none"
            )
        if job is not None and found.needs_max_iterations and job.max_iterations is None:
            rule = f'max_iterations must be given for tuner "{tuner.kind}"'
            self.note(rule, key="[job].max_iterations", value="none")
        if job is None or space is None:
            return None
        self._check_elastic(job)
        trials = self.trials(tuner, space, found, options, job)
        self._check_more(tuner, found, space, trials)
        if self.errors or options is None or trials is None:
            return None
        search = _search(tuner, job, space, trials, self.more_trials)
        try:
            found.create(search, options)
        except InputError as error:
            self.note(error.rule, key="[tuner]", value=error.value)
            return None
        return search, found, options

    def _check_elastic(self, job: JobTable) -> None:
        """Check that a job that changes its size live has several sizes, and a batch with a sample for each worker."""
        if job.elastic != "live" or "[job].slots" in self.faulty:
            return
        if job.slots.min == job.slots.max:
            rule = 'slots must have a min below its max where elastic is "live"'
            self.note(rule, key="[job].slots", value=str(job.slots.min))
        elif job.batch_size is not None and job.batch_size < job.slots.max:
            rule = f'batch_size must be at least the {job.slots.max} of slots where elastic is "live"'
            self.note(rule, key="[job].batch_size", value=str(job.batch_size))

    def _check_sampler(self, tuner: TunerTable) -> None:
        for key in ("max_concurrent_trials", "startup_trials"):
            given = getattr(tuner, key)
            if given is not None and tuner.sampler not in OPTUNA_SAMPLERS and "[tuner].sampler" not in self.faulty:
                rule = f"{key} must go with a sampler of Optuna: " + ", ".join(OPTUNA_SAMPLERS)
                self.note(rule, key=f"[tuner].{key}", value=f'{given} with sampler "{tuner.sampler}"')

    def _check_more(
        self, tuner: TunerTable, found: type[Tuner], space: dict[str, Distribution], trials: int | None
    ) -> None:
        """Check that the tuner can continue its search with the added trials."""
        if not self.more_trials or trials is None:
            return
        if not space and trials == 1:
            rule = "an app must be a search to get more trials ([space] of its file names what is drawn)"
            self.note(rule, key="[space]", value="a single job")
        elif not takes_more_trials(found):
            rule = "a tuner must be able to go on after its end to get more trials"
            self.note(rule, key="[tuner].kind", value=f'"{tuner.kind}"')
        elif trials + sum(self.more_trials) > MOST_TRIALS:
            rule = f"a search must have at most {MOST_TRIALS} trials in all"
            self.note(rule, key="[tuner].trials", value=str(trials + sum(self.more_trials)))

    def _by_default(self, found: type[Tuner], options: BaseModel | None, job: JobTable) -> int | None:
        """Return a tuner's default number of trials; None: unknown."""
        by_default = getattr(found, "trials_by_default", None)
        if by_default is None or options is None or job.max_iterations is None:
            return None
        return min(int(by_default(options, job.max_iterations)), MOST_TRIALS)

    def trials(
        self,
        tuner: TunerTable,
        space: dict[str, Distribution],
        found: type[Tuner],
        options: BaseModel | None,
        job: JobTable,
    ) -> int | None:
        """Return the number of trials: as given, else the tuner's default, else the size of a grid, else 1."""
        if tuner.trials is not None or not space:
            return tuner.trials or 1
        by_default = self._by_default(found, options, job)
        if by_default is not None:
            return by_default
        unknown = options is None or (job.max_iterations is None and found.needs_max_iterations)
        if "[tuner].sampler" in self.faulty or (hasattr(found, "trials_by_default") and unknown):
            return None  # the number depends on a key with an error
        if tuner.sampler == "grid":
            return self.grid(space)
        self.note("trials must be given where there is a [space]", key="[tuner].trials", value="none")
        return None

    def grid(self, space: dict[str, Distribution]) -> int | None:
        """Return the number of points in the grid, if the search tries all of them."""
        try:
            points = grid_size(space)
        except InputError as error:
            self.note(error.rule, key="[space]", value=error.value)
            return None
        if points > MOST_TRIALS:
            # Python does not print a number of thousands of digits
            shown = str(points) if points < 10**15 else f"about 1e{math.log10(points):.0f}"
            self.note(f"a grid must have at most {MOST_TRIALS} points, or trials be given", key="[space]", value=shown)
            return None
        return points


def _search(
    tuner: TunerTable, job: JobTable, space: dict[str, Distribution], trials: int, more_trials: tuple[int, ...]
) -> Search:
    return Search(
        space=space,
        metric=tuner.metric,
        mode=tuner.mode,
        trials=trials + sum(more_trials),
        more_trials=more_trials,
        sampler=tuner.sampler,
        seed=tuner.seed,
        milestones=job.milestones,
        least=job.slots.min,
        most=job.slots.max,
        max_iterations=job.max_iterations,
        max_concurrent_trials=tuner.max_concurrent_trials or CONCURRENT_TRIALS,
        startup_trials=tuner.startup_trials,
    )


# -- pydantic's errors, converted to errors of this project


def _explain(error: ValidationError, model: type[BaseModel], place: str) -> list[InputError]:
    return [_one(dict(found), model, place) for found in error.errors(include_url=False)]


def _one(found: dict[str, Any], model: type[BaseModel], place: str) -> InputError:
    path = [str(part) for part in found["loc"]]
    key = ".".join(path)
    where = f"{place}.{key}" if key else place
    kind, given = found["type"], found["input"]
    if kind == "extra_forbidden":
        return InputError(
            f"{place.rpartition(', ')[2]} must hold known keys only", value=_quote(path[-1], _keys(model)), place=where
        )
    if kind == "missing":
        return InputError(f"{path[-1]} must be given", value="none", place=where)
    if kind == "value_error":
        return InputError(str(found["ctx"]["error"]), value=_show(given), place=where)
    message = str(found["msg"]).removeprefix("Input should be ").removeprefix("a valid ")
    return InputError(f"{path[0] if path else key} must be {message}", value=_show(given), place=where)


def _keys(model: type[BaseModel]) -> list[str]:
    shared = list(TunerTable.model_fields) if model not in (AppTable, JobTable, Slots) else []
    return [*model.model_fields, *shared]


def _quote(word: object, known: "Mapping[str, Any] | tuple[str, ...] | list[str]") -> str:
    if not isinstance(word, str):
        return _show(word)
    close = get_close_matches(word, list(known), n=1)
    return _show(word) + (f'; did you mean "{close[0]}"?' if close else "")


def _show(given: object) -> str:
    """Return a value as text, shortened to one line and without terminal control characters."""
    if given is None:
        return "none"
    text = f'"{given}"' if isinstance(given, str) else repr(given)
    text = "".join(letter if letter.isprintable() else "�" for letter in text)
    return text if len(text) <= 200 else text[:197] + "..."
