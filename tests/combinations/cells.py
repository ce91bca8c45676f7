"""All combinations of stages: each runs a small crowded world, or is refused at load with its reason.

If more than some hundred combinations load, a sample of them runs; refusals are always found for all.
"""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property
from multiprocessing import get_context
from typing import Any, Final

from combinations.cell_sampling import sampled
from combinations.contended import TWO_TYPES, contended
from eunomia.arbiter import Arbiter
from eunomia.contract.contracts import Contract, Feature
from eunomia.contract.decisions import Decision
from eunomia.errors import EunomiaError
from eunomia.model.cluster import Cluster
from eunomia.platform.contract_check import Step, check_chain, check_cluster, contract_of
from eunomia.platform.profile_resolver import FALLBACK
from eunomia.platform.profiles import Profile
from eunomia.platform.registry import Registry
from eunomia.testing.drive import Drive
from eunomia.testing.scenes import Scene
from eunomia.units import Seconds, Stage

AXES: Final = ("elasticity", "valuation", "allocation", "refiners", "placement")
"""The five choices of a cell; two cells are neighbours if they differ in one of them."""
BY_TYPE: Final = frozenset({Feature.BY_TYPE, Feature.TIME_SHARES, Feature.DEVICE_SHARES})
"""A cell whose stages need or give one of these runs on two GPU types too."""
PLACE: Final = "[stages]"
MOST_RUN: Final = 750
"""Number of cells of the table that run; where more load, a sample does."""
UNREAD: Final = FALLBACK[Stage.VALUATION.value]


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Combination:
    """A plugin for each stage."""

    elasticity: str
    valuation: str
    allocation: str
    refiners: tuple[str, ...]
    placement: str

    @property
    def steps(self) -> list[tuple[Stage, str]]:
        """Return stages and plugins in calling order."""
        refiners = [(Stage.REFINE, name) for name in self.refiners]
        first = [
            (Stage.ELASTICITY, self.elasticity),
            (Stage.VALUATION, self.valuation),
            (Stage.ALLOCATION, self.allocation),
        ]
        return [*first, *refiners, (Stage.PLACEMENT, self.placement)]

    @property
    def choices(self) -> tuple[object, ...]:
        """Return its choice on each axis."""
        return tuple(getattr(self, axis) for axis in AXES)

    def but(self, axis: str, other: Any) -> "Combination":
        """Return the combination with another choice on one axis."""
        return dataclasses.replace(self, **{axis: other})


@dataclasses.dataclass(frozen=True, slots=True)
class CombinationResult:
    """The result of a cell.

    Attributes:
        refused: the first error of its profile; None: it loads.
        refused_on: clusters that it does not suit, with the error.
        decisions: a digest of each run's transitions: time, kind, job, GPUs, CPUs and memory.
        faults: faults after it was loaded; there must be none.
        started: number of started jobs.
    """

    refused: str | None = None
    refused_on: tuple[tuple[str, str], ...] = ()
    decisions: str = ""
    faults: tuple[str, ...] = ()
    started: int = 0

    @property
    def ran(self) -> bool:
        """Return whether its profile loads and suits at least one cluster."""
        return bool(self.decisions)


class Combinations:
    """All cells of a registry, and the result of each.

    Args:
        registry: the plugins.
        processes: number of processes that share the work.
        most_run: most cells that run, unless more are needed for each pair of plugins to run together.

    Attributes:
        one_type: the scene that all cells run.
        two_types: the additional scene of cells with stages that distinguish GPU types.
    """

    def __init__(self, registry: Registry, *, processes: int = 1, most_run: int = MOST_RUN) -> None:
        self.registry = registry
        self.processes = processes
        self.most_run = most_run
        self.one_type = contended()
        self.two_types = contended(TWO_TYPES)

    @cached_property
    def plugins(self) -> dict[Stage, tuple[str, ...]]:
        """Return by stage the plugins that need no options."""
        made = {name for name in self.registry.names if self._made(name) is not None}
        return {stage: tuple(name for name in self.registry.answering(stage) if name in made) for stage in Stage}

    @cached_property
    def contracts(self) -> dict[tuple[Stage, str], Contract]:
        """Return contracts by stage and plugin."""
        return {
            (stage, name): contract_of(self._made(name), stage)
            for stage, names in self.plugins.items()
            for name in names
        }

    @cached_property
    def chains(self) -> tuple[tuple[str, ...], ...]:
        """Return chains of refiners: none, each one, and each two of which the second takes what the first gives."""
        refiners = self.plugins[Stage.REFINE]
        alone = [(), *((name,) for name in refiners)]
        return (*alone, *(pair for pair in itertools.permutations(refiners, 2) if self._follows(*pair)))

    def cells(self) -> Iterator[Combination]:
        """Yield every combination."""
        by = self.plugins
        for choice in itertools.product(
            by[Stage.ELASTICITY], by[Stage.VALUATION], by[Stage.ALLOCATION], self.chains, by[Stage.PLACEMENT]
        ):
            yield Combination(*choice)

    @cached_property
    def refused(self) -> dict[Combination, str | None]:
        """Return by cell the first error of its profile; None: it loads."""
        return {cell: self.walked(cell) for cell in self.cells()}

    @cached_property
    def suited(self) -> tuple[Combination, ...]:
        """Return cells that load and suit the cluster of a scene."""
        clusters = [Cluster.parse(scene.cluster) for scene in (self.one_type, self.two_types)]
        loading = (cell for cell, refused in self.refused.items() if refused is None)
        return tuple(
            cell for cell in loading if not all(check_cluster(self._steps(cell), cluster) for cluster in clusters)
        )

    @cached_property
    def outcomes(self) -> dict[Combination, CombinationResult]:
        """Return the result of every cell, without cells that suit a cluster and are not in the sample."""
        chosen = set(sampled(self.suited, self.most_run, lambda cell: cell.choices, self._near))
        resting = set(self.suited) - chosen
        cells = [cell for cell in self.refused if cell not in resting]
        if self.processes == 1:
            return {cell: self.outcome(cell) for cell in cells}
        parts = [cells[start :: self.processes] for start in range(self.processes)]
        with ProcessPoolExecutor(self.processes, mp_context=get_context("spawn")) as pool:
            done = pool.map(_part, [self.registry] * len(parts), parts)
            return {cell: outcome for part in done for cell, outcome in part}

    def outcome(self, cell: Combination) -> CombinationResult:
        """Load a cell, and run it if it loads."""
        refused = self.walked(cell)
        if refused is not None:
            return CombinationResult(refused=refused)
        profile = self.load(cell)
        refusals, ran = [], []
        for scene in (self.one_type, self.two_types):
            cluster = Cluster.parse(scene.cluster)
            errors = check_cluster(self._steps(cell), cluster)
            if errors:
                refusals.append((scene.cluster, str(errors[0])))
            elif scene is self.one_type or self.tells_types(cell):
                ran.append(_Run().drive(profile, cluster, scene))
        return CombinationResult(
            refused_on=tuple(refusals),
            decisions=" ".join(run.digest.hexdigest() for run in ran),
            faults=tuple(fault for run in ran for fault in run.faults),
            started=sum(len(run.started) for run in ran),
        )

    def walked(self, cell: Combination) -> str | None:
        """Return the first error of the contract check on a cell's stages, as its profile would raise it."""
        errors = check_chain(
            self._steps(cell), bids=False, others=self._suiting, unread=UNREAD, place=PLACE, bids_place=""
        )
        return str(errors[0]) if errors else None

    def load(self, cell: Combination) -> Profile:
        """Return the cell as a profile.

        Raises:
            InputErrors: it is refused.
        """
        settings: dict[str, object] = {f"stages.{axis}": getattr(cell, axis) for axis in AXES}
        settings["stages.refiners"] = list(cell.refiners)
        return Profile.load("default", settings=settings, registry=self.registry)

    def tells_types(self, cell: Combination) -> bool:
        """Return whether one of its stages distinguishes GPU types."""
        contracts = [self.contracts[step] for step in cell.steps]
        return any(BY_TYPE & (contract.needs | contract.gives) for contract in contracts)

    # --- neighbours -------------------------------------------------------------------------------------------------

    @cached_property
    def running(self) -> tuple[Combination, ...]:
        """Return the cells that run."""
        return tuple(cell for cell, outcome in self.outcomes.items() if outcome.ran)

    def neighbours(self, cell: Combination) -> Iterator[Combination]:
        """Yield cells that ran and differ from it in one stage."""
        return (near for near in self._near(cell) if near in self.outcomes and self.outcomes[near].ran)

    def _near(self, cell: Combination) -> Iterator[Combination]:
        """Yield cells that differ from it in one stage."""
        for axis in AXES:
            choices: Iterable[Any] = self.chains if axis == "refiners" else self.plugins[Stage(axis)]
            for other in choices:
                near = cell.but(axis, other)
                if near != cell:
                    yield near

    def twins(self, cell: Combination) -> list[Combination]:
        """Return neighbours with equal decisions; empty: the cell differs from every neighbour.

        An elasticity that gives coming regimes is not compared with one that gives none: no job of the scenes adapts.
        """
        mine = self.outcomes[cell].decisions
        alike = (near for near in self.neighbours(cell) if self.outcomes[near].decisions == mine)
        return [near for near in alike if self._forecasts(near) == self._forecasts(cell)]

    def _forecasts(self, cell: Combination) -> bool:
        return Feature.REGIMES in self.contracts[Stage.ELASTICITY, cell.elasticity].gives

    def _follows(self, first: str, second: str) -> bool:
        gives = self.contracts[Stage.REFINE, first].gives
        return bool(gives & self.contracts[Stage.REFINE, second].needs)

    def _made(self, name: str) -> Any:
        try:
            return self.registry.make(name, {}, alias=name, place=".".join)
        except EunomiaError:
            return None

    def _steps(self, cell: Combination) -> list[Step]:
        return [Step(stage, name, self.contracts[stage, name]) for stage, name in cell.steps]

    def _suiting(self, stage: Stage, suits: Callable[[Contract], bool]) -> list[str]:
        return [name for name in self.plugins[stage] if suits(self.contracts[stage, name])]


def _part(registry: Registry, cells: Sequence[Combination]) -> list[tuple[Combination, CombinationResult]]:
    table = Combinations(registry)
    return [(cell, table.outcome(cell)) for cell in cells]


class _Run:
    """A run of one cell through a scene."""

    def __init__(self) -> None:
        self.digest = hashlib.blake2b(digest_size=16)
        self.faults: list[str] = []
        self.started: set[str] = set()

    def drive(self, profile: Profile, cluster: Cluster, scene: Scene) -> "_Run":
        """Run to the end of the scene."""
        made = profile.stages(cluster)
        lease = None if scene.lease is None else Seconds(scene.lease)
        rounds = dataclasses.replace(made.rounds, lease=lease, bid_deadline=None, faults_allowed=1_000_000)
        stages = dataclasses.replace(made, rounds=rounds)
        drive = Drive(
            Arbiter(cluster, stages, made, seed=11),
            work=dict(scene.work),
            delays=scene.delays,
            seed=5,
            watch=self._watch,
            keep=False,
        )
        try:
            drive.run(scene.script, until=scene.until, steps=5_000)
        except EunomiaError as error:
            self.faults.append(str(error))
        return self

    def _watch(self, drive: Drive, decision: Decision) -> None:
        self.faults += [f"{fault.plugin}: {fault.what}" for fault in decision.faults]
        for order in decision.transitions:
            summary = (
                decision.now,
                order.kind.value,
                order.app,
                order.job,
                order.gpus.tolist(),
                order.leaving.tolist(),
                order.cpus.round(6).tolist(),
                order.memory_gib.round(6).tolist(),
            )
            self.digest.update(repr(summary).encode())
            self.started.add(f"{order.app} {order.job}")
