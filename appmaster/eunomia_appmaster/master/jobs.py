"""The jobs of an app as plain values that survive a restart of its master."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from eunomia_appmaster.app.space import Parameter
from eunomia_appmaster.master.changes import Membership
from eunomia_appmaster.node.own_ends_limit import DEFAULT_LIMIT


class JobState(StrEnum):
    """The state of a job."""

    WAITING = "waiting"
    """The job waits for slots."""
    RUNNING = "running"
    """The job's gang is starting or running."""
    STOPPING = "stopping"
    """The job's gang was ordered to suspend, or part of it has ended."""
    PAUSED = "paused"
    """The tuner does not request the job to run now."""
    BACKING_OFF = "backing_off"
    """The job failed and waits for its retry."""
    FINISHED = "finished"
    STOPPED = "stopped"
    """The tuner ended the job."""
    FAILED = "failed"

    @property
    def over(self) -> bool:
        """Return whether the job has ended."""
        return self in (JobState.FINISHED, JobState.STOPPED, JobState.FAILED)

    @property
    def has_gang(self) -> bool:
        """Return whether processes of the job may still be running."""
        return self in (JobState.RUNNING, JobState.STOPPING)


@dataclasses.dataclass(slots=True, kw_only=True)
class Gang:
    """The workers of one incarnation of a job."""

    attempt: int = 0
    """Attempt of the app master that formed the gang; 0: an earlier version did not record it."""
    incarnation: int
    gpus: tuple[int, ...]
    """GPUs in order of ranks; of a gang that changes live also those of newcomers and leavers, in any order."""
    containers: tuple[str, ...]
    """Ids of the containers on these GPUs."""
    nodes: tuple[str, ...] = ()
    """Nodes of the containers in order of ranks; the ranks of one node are consecutive."""
    stop_at: int | None
    began_at: float
    """Start of the gang in Unix seconds."""
    from_step: int
    """Number of iterations in the checkpoint that the gang starts from; 0: it starts from the beginning."""
    checkpoint: str = ""
    """Name of that checkpoint, such as ``a2-i5-g1/000110``; empty: there is none, or an earlier version wrote it."""
    confirmed: bool = False
    """Whether the runtime has accepted the start."""
    start_seconds: float = 0.0
    """Seconds from the start of the gang to its first step; 0: it has made none."""
    running: bool = False
    """Whether the gang has made a step or, if the script lacks the helper, has a process."""
    ordered: str = ""
    """The reason of the order to suspend; empty: no order was given."""
    by_logs: bool = False
    """Whether the gang's steps are known only from its logs although its script uses the helper, since the script
    prepared nothing with which the helper counts steps."""
    membership: Membership | None = None
    """The generations of a gang that changes its size live; None: it changes by a restart."""
    made: int = 0
    """Number of containers created so far for the incarnation, if it changes live."""
    newcomers: dict[str, float] = dataclasses.field(default_factory=dict)
    """Unix time at which a newcomer was added, by container."""
    changed_at: float | None = None
    """Unix time by the arbiter's clock of the last live change; None: there was none."""
    changed_step: int = 0
    """Number of iterations at the last live change."""
    join_seconds: float = 0.0
    """Seconds from the order of the last live change to the step boundary at which it took effect."""
    pause_seconds: float = 0.0
    """Seconds from the end of the last step before that boundary to the start of the first step after it."""

    @property
    def members(self) -> tuple[str, ...]:
        """The ids of the workers that train together, by rank, according to the last order."""
        return self.containers if self.membership is None else self.membership.ordered.members

    @property
    def member_gpus(self) -> tuple[int, ...]:
        """The GPUs of the members, by rank."""
        return self._places(self.members)

    @property
    def trained_on(self) -> tuple[int, ...]:
        """The GPUs of the workers that train now, by rank; an ordered change has no effect before it is entered."""
        return self._places(self.containers if self.membership is None else self.membership.current.members)

    def _places(self, containers: Sequence[str]) -> tuple[int, ...]:
        places = dict(zip(self.containers, self.gpus, strict=True))
        return tuple(places[each] for each in containers if each in places)

    def add(self, container: str, gpu: int, node: str) -> None:
        """Add a container on a GPU."""
        self.containers, self.gpus, self.nodes = (
            (*self.containers, container),
            (*self.gpus, gpu),
            (*self.nodes, node),
        )

    def remove(self, container: str) -> None:
        """Remove a container that has ended."""
        kept = [each for each in zip(self.containers, self.gpus, self.nodes, strict=True) if each[0] != container]
        self.containers = tuple(each[0] for each in kept)
        self.gpus = tuple(each[1] for each in kept)
        self.nodes = tuple(each[2] for each in kept)
        self.newcomers.pop(container, None)

    def by_node(self) -> dict[str, tuple[str, ...]]:
        """Return the ids of the containers by node, starting with the node of rank 0."""
        found: dict[str, tuple[str, ...]] = {}
        for container, node in zip(self.containers, self.nodes, strict=True):
            found[node] = (*found.get(node, ()), container)
        return found

    @property
    def crosses(self) -> bool:
        """Return whether the gang has workers on several nodes."""
        return len(set(self.nodes)) > 1

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values |= {name: list(values[name]) for name in _OF_RANKS} | {"newcomers": dict(self.newcomers)}
        return values | {"membership": None if self.membership is None else self.membership.to_json()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Gang":
        """Read the values of ``to_json``; values that earlier versions saved may lack keys."""
        plain = dict(values) | {name: tuple(values.get(name, ())) for name in _OF_RANKS}
        membership = values.get("membership")
        plain["membership"] = None if membership is None else Membership.from_json(membership)
        return cls(**plain)


_OF_RANKS = ("gpus", "containers", "nodes")


@dataclasses.dataclass(slots=True, kw_only=True)
class Job:
    """A trial, or the only job of a single training run."""

    observer: Callable[["Job", str], None] | None = dataclasses.field(
        default=None, init=False, repr=False, compare=False
    )
    """Called after each assignment to an attribute, with its name; see ``JobIndex``."""
    number: int
    parameters: Mapping[str, Parameter]
    seed: int
    state: JobState = JobState.WAITING
    gang: Gang | None = None
    attempt: int = 0
    """Attempt of the app master that started the last gang."""
    incarnation: int = 0
    """Number of the last incarnation, that is of the last gang started; 0: none yet."""
    step: int = 0
    """Iterations done, as last reported."""
    signs: int = 0
    """Number of times that its workers showed progress: a step, a checkpoint, or a log entry."""
    saved_step: int = 0
    lost: int = 0
    """Number of iterations that were repeated after a loss."""
    failures: int = 0
    """Consecutive failures without a new checkpoint."""
    failed_at_save: int = -1
    """Number of iterations in the newest checkpoint at the last failure; -1: the job has not failed."""
    interruptions: list[float] = dataclasses.field(default_factory=list)
    """Unix times of the last ends that the machine or a signal from outside caused."""
    odd_exits: int = 0
    """Number of exits with code 75 without an order."""
    retry_at: float = 0.0
    """Unix time of the next retry."""
    rung: int | None = None
    metric: float | None = None
    metric_step: int = -1
    """The last step whose metric was reported to the tuner."""
    best: float | None = None
    """The best finite metric so far."""
    best_step: int = -1
    """The first step at which the best metric was logged; -1: not known."""
    has_helper: bool = False
    sizes: dict[int, tuple[int, int]] = dataclasses.field(default_factory=dict)
    """Number of GPUs and locality of each incarnation, by its number."""
    seconds_per_step: float | None = None
    """Seconds per step at the present size, as the workers last reported."""
    batch_size: float | None = None
    """Global batch size last announced; None: none was announced."""
    adapted_at: float | None = None
    """Unix time of the last announced batch size, by the arbiter's clock."""
    clocks: dict[int, float] = dataclasses.field(default_factory=dict)
    """Seconds by which the clock of an incarnation's logs is ahead of the arbiter's, by incarnation; only if not 0."""
    stalls: int = 0
    """Number of stalls of the job; each ended a gang, or workers without which the gang went on."""
    last_stall: str = ""
    suspensions: int = 0
    why: str = ""
    restarts_only: str = ""
    """Why the job cannot change its size live although its app file asks for it; empty: it can."""
    notice: str = ""
    """Notice for users on the last loss of the job's checkpoints; empty: none was lost."""

    def __setattr__(self, name: str, given: Any) -> None:
        """Assign an attribute, and call the observer."""
        object.__setattr__(self, name, given)
        if self.observer is not None and name != "observer":
            self.observer(self, name)

    def interrupt(self, now: float) -> int:
        """Record an end by the machine or an outside signal; returns their number in ``DEFAULT_LIMIT.seconds``."""
        recent = [time for time in self.interruptions if now - DEFAULT_LIMIT.seconds < time <= now]
        self.interruptions = [*recent, now]
        return len(self.interruptions)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON; metrics become text, since JSON has no NaN and no infinity."""
        values: dict[str, Any] = {name: getattr(self, name) for name in _KEPT}
        values |= {"parameters": dict(self.parameters), "interruptions": list(self.interruptions)}
        values |= {"sizes": {str(number): list(size) for number, size in self.sizes.items()}}
        values |= {"clocks": {str(number): ahead for number, ahead in self.clocks.items()}}
        values |= {"gang": None if self.gang is None else self.gang.to_json()}
        values["metric"], values["best"] = _text(self.metric), _text(self.best)
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Job":
        """Read the values of ``to_json``."""
        plain = dict(values)
        gang = plain.pop("gang")
        plain["state"] = JobState(plain["state"])
        plain["metric"], plain["best"] = _number(plain["metric"]), _number(plain["best"])
        plain["sizes"] = {int(number): (size[0], size[1]) for number, size in plain["sizes"].items()}
        plain["clocks"] = {int(number): float(ahead) for number, ahead in plain.get("clocks", {}).items()}
        if gang is not None:
            gang = Gang.from_json(gang)
        return cls(gang=gang, **plain)


_KEPT = tuple(field.name for field in dataclasses.fields(Job) if field.name != "observer")


def _text(number: float | None) -> str | None:
    return None if number is None else repr(number)


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)
