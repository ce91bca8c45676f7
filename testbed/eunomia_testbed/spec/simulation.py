"""``SimulationSpec``: the settings of a simulation, as given by flags, Python keywords and ``run.json``."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import BaseModel, BeforeValidator, ConfigDict, SkipValidation, ValidationError

from eunomia.errors import InputError
from eunomia.words import did_you_mean, shown
from eunomia_appmaster.commands.model_flags import FlagType, flag_name

if TYPE_CHECKING:
    from eunomia.model.cluster import Cluster
    from eunomia.platform.profiles import Profile
    from eunomia_testbed.performance.speeds import PerformanceModel
    from eunomia_testbed.running.peers import Peer
    from eunomia_testbed.simulator.options import SimulationOptions
    from eunomia_testbed.workload import Workload

    Jobs = str | Workload | Sequence[Workload] | Callable[[int], Workload] | None
    Where = str | Cluster | None
    Policies = tuple[str | Profile, ...] | None
    PeerRules = str | Peer | None
    Options = SimulationOptions | None
    Models = PerformanceModel | None
else:  # `--help` imports no simulator; the planning checks these values
    Jobs = Where = Policies = PeerRules = Options = Models = Any


def _listed(given: object) -> object:
    """Return the items of any iterable as a tuple; None and text are returned unchanged."""
    if given is None or isinstance(given, str | tuple):
        return given
    if not isinstance(given, Iterable):
        raise ValueError("it must be a list")
    return tuple(given)


def _one_or_more(given: object) -> object:
    """Return a single trace as text, several traces as a tuple, and no trace as None."""
    if given is None or isinstance(given, str):
        return given
    several = _listed(given)
    return (several[0] if len(several) == 1 else several or None) if isinstance(several, tuple) else several


def _error(given: object) -> object:
    """Return a number unchanged and texts as a tuple; for None, 0."""
    return 0.0 if given is None else given if isinstance(given, float | int) else _listed(given)


Texts = Annotated[tuple[str, ...], BeforeValidator(lambda given: given or ())]
"""Texts of a repeatable flag; empty: the flag was not given."""


class SimulationSpec(BaseModel):
    """The settings of a simulation: workload, cluster, policies, costs, failures and reports.

    A field contains the text of its flag, or in Python the object itself. ``options`` replaces the fields from ``cost``
    to ``until``, and ``models`` replaces ``speeds``; neither has a command-line flag.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    trace: Annotated[
        str | tuple[str, ...] | None,
        BeforeValidator(_one_or_more),
        FlagType(list[str] | None),
        typer.Argument(
            help="A trace, gzipped or not; - is stdin. Several traces of one cluster count as independent draws.",
            show_default=False,
        ),
    ] = None
    workload: Annotated[
        SkipValidation[Jobs],
        FlagType(str | None),
        typer.Option(help="Generate a workload instead: themis1, gavel, shockwave, ..."),
    ] = None
    cluster: Annotated[
        SkipValidation[Where], FlagType(str | None), typer.Option(help='Such as "4x8 V100", or a cluster file.')
    ] = None
    policies: Annotated[
        SkipValidation[Policies],
        BeforeValidator(_listed),
        FlagType(list[str] | None),
        typer.Option(
            "--policy",
            help="A preset, a profile file or plugins (A, A+B); may be given several times. "
            "By default EUNOMIA_POLICY, else themis.",
        ),
    ] = None
    settings: Annotated[
        Texts,
        FlagType(list[str] | None),
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Another value in each profile; trace.KEY is the reader's, WORKLOAD.KEY the generator's.",
        ),
    ] = ()
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="All randomness follows from it.")] = 0
    seeds: Annotated[
        str | tuple[int, ...] | None,
        BeforeValidator(_listed),
        FlagType(str | None),
        typer.Option(metavar="0-4", help="Several seeds, such as 0-4 or 0,3."),
    ] = None
    resample: Annotated[
        int | None,
        typer.Option(
            metavar="100",
            help="Simulate so many resamples of the trace too, which show what is chance; at least 39.",
        ),
    ] = None
    windows: Annotated[
        int | None,
        typer.Option(
            metavar="5",
            help="Simulate so many consecutive parts of the trace too, of at least 200 apps each: batch means.",
        ),
    ] = None
    block: Annotated[
        str | None,
        typer.Option(
            metavar="50|1d",
            help="Apps in a block of a resample, or a time that begins at the same time of day. By default automatic.",
        ),
    ] = None
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="10m",
            help="CPU time within which resamples are simulated: fewer of them, and none of the slowest policies.",
        ),
    ] = None
    loads: Annotated[
        str | tuple[float, ...],
        BeforeValidator(lambda given: (1.0,) if given == "1" else _listed(given)),
        FlagType(str, "1"),
        typer.Option("--load", metavar="1,2", help="How many times as fast jobs arrive."),
    ] = (1.0,)
    format: Annotated[str | None, typer.Option("--format", help="Of the trace, if not seen from its name.")] = None
    throughputs: Annotated[
        str | None, typer.Option(help="Measured throughputs, which Gavel's and Shockwave's traces need.")
    ] = None
    speeds: Annotated[
        str | None,
        typer.Option(
            help="How fast jobs really are: a file or folder of measured speeds, analytic, or equal (on all types)."
        ),
    ] = None
    models: SkipValidation[Models] = None
    unknown_models: Annotated[
        tuple[str, ...],
        BeforeValidator(lambda given: (given,) if isinstance(given, str) else given or ()),
        FlagType(list[str] | None),
        typer.Option(
            "--unknown-models",
            metavar="NAME",
            help="What models that the speeds lack take: that model's speeds, equal (the same on all GPU types), "
            "drop (their jobs are left out), or MODEL=NAME,...",
        ),
    ] = ()
    rules: Annotated[
        SkipValidation[PeerRules], FlagType(str | None), typer.Option(help="A peer's round rules: gavel.")
    ] = None
    rule: Annotated[
        Texts,
        FlagType(list[str] | None),
        typer.Option("--rule", metavar="KEY=VALUE", help="One of these rules, set otherwise."),
    ] = ()
    options: SkipValidation[Options] = None
    cost: Annotated[
        Texts,
        FlagType(list[str] | None),
        typer.Option(
            "--cost",
            metavar="start=20s",
            help="What start, checkpoint, restore, migrate, ... take; or a replay's profiles.toml with them.",
        ),
    ] = ()
    failures: Annotated[
        str | None, typer.Option(help="between=30d,repair=1h for machines that fail, or a CSV file.")
    ] = None
    machines_plan: Annotated[
        str | None, typer.Option(help="A CSV file of machines that join the cluster, drain and leave it.")
    ] = None
    know: Annotated[
        str | None,
        typer.Option(
            help="What app masters know: declared, measured or oracle, or what is known on top of what is measured, "
            "of work,sizes,types,regimes,amounts. By default declared, with --rules oracle."
        ),
    ] = None
    error: Annotated[
        float | tuple[str, ...],
        BeforeValidator(_error),
        FlagType(list[str] | None),
        typer.Option(
            "--error",
            metavar="0.2",
            help="Relative error of what app masters report: of work and rates, or work=0.2,types=0.1,sizes=0.1,...",
        ),
    ] = 0.0
    lie: Annotated[
        Texts,
        FlagType(list[str] | None),
        typer.Option(
            "--lie",
            metavar="APP=2.0",
            help="A factor on the work that an app reports; APP.V100=2.0: on its rates on that GPU type.",
        ),
    ] = ()
    agents: Annotated[bool, typer.Option("--agents", help="App masters answer offers with bids of their own.")] = False
    until: Annotated[str | None, typer.Option(metavar="30d", help="Cut off after this much simulated time.")] = None
    rho: Annotated[str | None, typer.Option(help="The ρ to judge by: themis, static, contention or exclusive.")] = None
    unfair_above: Annotated[
        float, typer.Option("--unfair", help="The ρ above which an app counts as treated unfairly.")
    ] = 1.05
    csv: Annotated[bool, typer.Option("--csv", help="Write tables as CSV too.")] = False
    strict: Annotated[bool, typer.Option("--strict", help="Rows that are not used, apps left over: an error.")] = False
    elastic: Annotated[
        str | None,
        typer.Option(metavar="1..8", help="Let every job of a trace of fixed gangs run on any of these sizes."),
    ] = None
    skip_unfit: Annotated[
        bool, typer.Option("--skip-unfit", help="Leave out policies that do not suit the cluster, and say which.")
    ] = False
    call_cpu: Annotated[
        str, typer.Option(metavar="60s", help="CPU time that a call of a plugin may take before its runs are ended.")
    ] = "60s"
    call_wall: Annotated[
        str, typer.Option(metavar="600s", help="Time that a call of a plugin may take, also one that sleeps.")
    ] = "600s"
    plain: Annotated[
        bool, typer.Option("--plain", help="Every stage takes its plain way: slower, with the same tables.")
    ] = False
    tolerate_faults: Annotated[
        bool,
        typer.Option("--tolerate-faults", help="Go on after a plugin's fault; after several the fallback decides."),
    ] = False

    @property
    def owner(self) -> str:
        """Return the prefix of settings of the trace reader or the generator, such as ``trace.`` or ``gavel.``."""
        return f"{self.workload if isinstance(self.workload, str) else 'trace'}."

    def place(self, field: str) -> str:
        """Return the keyword of a field as its place in errors."""
        return field

    def command(self) -> tuple[str, ...]:
        """Return the command recorded in ``run.json``."""
        return ("simulate",)

    def given(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as JSON values.

        Objects are represented by their names if they have one, or else by their types.
        """
        names = SimulationSpec.model_fields
        changed = {name: getattr(self, name) for name, field in names.items() if getattr(self, name) != field.default}
        return {name: _plain(value) for name, value in changed.items()}


def spec_of(given: Mapping[str, Any]) -> SimulationSpec:
    """Return the spec for a script's keywords.

    Raises:
        TypeError: a name is not a field.
        InputError: a value does not have the field's type.
    """
    for name in given:
        if name not in SimulationSpec.model_fields:
            hint = did_you_mean(name, SimulationSpec.model_fields)
            raise TypeError(f"simulate() got an unexpected keyword argument {name!r}{hint}")
    try:
        return SimulationSpec(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        why = str(first["msg"]).removeprefix("Value error, ")
        raise InputError(
            f"{name} must be valid: {why[:1].lower()}{why[1:]}", value=shown(first["input"]), place=name
        ) from error


def _plain(value: object) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else f"a {type(value).__name__}"


class SimulateFlags(SimulationSpec):
    """The flags of ``eunomia simulate``: the spec, how to run it, and the output."""

    out: Annotated[Path | None, typer.Option(help="The folder to leave; a new one in ./eunomia-out by default.")] = None
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder of an earlier run.")] = False
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the folder of an interrupted run.")] = False
    processes: Annotated[
        int | None, typer.Option("-j", min=1, help="Processes; by default as many as are worth it.", show_default=False)
    ] = None
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write report.html.")] = True
    progress: Annotated[bool, typer.Option("--progress/--no-progress", help="Show what happens.")] = True
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON object.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the folder's path alone.")] = False

    def place(self, field: str) -> str:
        """Return the flag of a field as its place in errors."""
        return flag_name(type(self), field)

    def command(self) -> tuple[str, ...]:
        """Return the words of the command line, for ``run.json``."""
        return ("eunomia", *sys.argv[1:]) if len(sys.argv) > 1 else ("eunomia", "simulate")
