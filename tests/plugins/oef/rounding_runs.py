"""Rounds of ``rounding`` through an arbiter, with given shares in each round: what users received, and their waits."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from assembling import assemble
from eunomia import Allocation, Claims, Cluster, Contract, DeviceShares, Feature, Seconds, Snapshot, Stage, Unit
from eunomia.arbiter import Arbiter
from eunomia.contract.contracts import Contracts
from eunomia.contract.decisions import Decision
from eunomia.contract.events import AppArrived, Event, JobAdded, MachineBack, MachineLost
from eunomia.platform.registry import default_registry
from eunomia.store.state import State
from eunomia.testing.drive import Drive
from eunomia.units import AppId, Ints, JobId, Reals, UserId

ROUND = 10.0
"""Seconds."""
TYPES = "2x8 K80, 2x8 P100, 2x8 V100"
KINDS = ("fixed", "each round", "every 25")
"""How often shares change."""
Shares = Callable[[int], Reals]
"""By round: [user, type] GPUs."""


def shares(seed: int, users: int, gpus: int, kind: str, *, even: float = 1.0) -> Shares:
    """Random shares of ``gpus`` GPUs of each of three types; the smaller ``even``, the fewer users have most."""
    luck = np.random.default_rng(seed)
    count = {"fixed": 1, "each round": 1001, "every 25": 41}[kind]
    length = {"fixed": 10_000, "each round": 1, "every 25": 25}[kind]
    table = luck.dirichlet(np.full(users, even), size=(count, 3)).transpose(0, 2, 1) * gpus
    return lambda number: table[min(number // length, count - 1)]


def longest_wait_allowed(gang: int, promised: Reals) -> Ints:
    """[user] twice the largest gang over the user's share of the type of which it has most, and one."""
    return np.floor(2 * gang / promised.max(axis=1)).astype(np.int64) + 1


def with_a_loss(rounds: int, *, seed: int = 3) -> tuple[Shares, list[tuple[float, Event]]]:
    """A machine of V100s is lost for the middle third; shares of V100 are then half."""
    first, last = rounds // 3, 2 * rounds // 3
    full = shares(seed, 5, 16, "fixed")(0)
    less = full * [1.0, 1.0, 0.5]
    events: list[tuple[float, Event]] = [
        (first * ROUND, MachineLost(machine="m05")),
        (last * ROUND, MachineBack(machine="m05")),
    ]
    return (lambda number: less if first <= number < last else full), events


class Given:
    """An allocation that gives the shares of the round; users are named by their number."""

    name = "given"
    api = 1
    contracts: ClassVar[Contracts] = {Stage.ALLOCATION: Contract(gives=frozenset({Feature.DEVICE_SHARES}))}

    def __init__(self, shares: Shares) -> None:
        self.shares = shares

    def eunomia_allocation(self, snapshot: Snapshot) -> Allocation:
        """One claim a user."""
        rows = np.unique(snapshot.apps.user[snapshot.jobs.app[snapshot.active]]).astype(np.int32)
        users = np.array([int(str(name)) for name in snapshot.users.id[rows]], np.int64)
        gpus = self.shares(round(float(snapshot.now) / ROUND))[users]
        return Allocation(
            claims=Claims(unit=Unit.USER, rows=rows),
            amount=DeviceShares(gpus=gpus, since=Seconds(0.0)),
            order=np.arange(rows.size, dtype=np.int32),
        )


@dataclasses.dataclass(slots=True)
class Seen:
    """What was seen at the end of each round.

    Attributes:
        ideal: [round, user, type] GPU-rounds promised so far.
        received: [round, user, type] GPU-rounds received so far.
        mixed: job-rounds on GPUs of two types.
        served: job-rounds.
        ignoring: job-rounds on GPUs of two types, if each user's GPUs were dealt to the same jobs in a random order.
    """

    ideal: list[Reals]
    received: list[Reals]
    mixed: int = 0
    served: int = 0
    ignoring: int = 0

    def deviation(self, *, after: int = 0) -> float:
        """The largest distance, in GPU-rounds, between promised and received by any user of any type."""
        return float(np.abs(np.array(self.ideal) - np.array(self.received))[after:].max())

    def waits(self) -> Ints:
        """[user] the most rounds in a row in which it received nothing."""
        gained = np.diff(np.array(self.received).sum(axis=2), axis=0, prepend=0.0) > 1e-6
        longest = np.zeros(gained.shape[1], np.int64)
        now = longest.copy()
        for row in gained:
            now = np.where(row, 0, now + 1)
            longest = np.maximum(longest, now)
        return longest


def run(
    cluster: str,
    gangs: Mapping[int, Iterable[int]],
    shares: Shares,
    rounds: int,
    *,
    events: Iterable[tuple[float, Event]] = (),
    restarts: frozenset[int] = frozenset(),
    **options: object,
) -> Seen:
    """Run users with gangs of these sizes, whose jobs never end, for some rounds.

    Args:
        cluster: as in a profile.
        gangs: by user, the sizes of its jobs.
        shares: GPUs promised by round.
        rounds: how many.
        events: more of the script, such as lost machines.
        restarts: rounds after which the arbiter is killed, and another goes on from what it saved.
        **options: of ``rounding``.
    """
    site = Cluster.parse(cluster)
    stages = assemble(
        elasticity=made("fixed"),
        valuation=made("fifo"),
        allocation=Given(shares),
        refiners=(made("rounding", round_length=f"{ROUND}s", **options),),
        placement=made("packed"),
    )
    script: list[tuple[float, Event]] = []
    work: dict[JobId, float] = {}
    for user, sizes in gangs.items():
        script.append((0.0, AppArrived(app=AppId(f"{user}"), user=UserId(f"{user}"), divides=False)))
        for number, size in enumerate(sizes):
            job = JobId(f"{user}/{number}")
            script.append((0.0, JobAdded(job=job, app=AppId(f"{user}"), least=size, most=size)))
            work[job] = 1e12
    seen = Seen([], [])
    note = _noting(seen, shares, len(gangs))

    def watch(drive: Drive, decision: Decision) -> None:
        assert decision.faults == (), decision.faults
        ended = note(drive.arbiter.state)
        if ended in restarts:
            saved = drive.arbiter.save()
            drive.arbiter = Arbiter(site, stages, stages)
            drive.arbiter.load(saved)

    drive = Drive(Arbiter(site, stages, stages), work=work, watch=watch, keep=False)
    drive.run([*script, *events], until=(rounds + 0.5) * ROUND)
    return seen


def made(name: str, **options: object) -> Any:
    """A plugin with options."""
    return default_registry().make(name, options, alias=name, place=str)


def _noting(seen: Seen, shares: Shares, users: int) -> Callable[[State], int]:
    """A function that notes the end of a round, and returns the number of that round; 0: none ended just now."""
    luck = np.random.default_rng(0)

    def note(state: State) -> int:
        ended = len(seen.ideal) + 1
        if round(float(state.now) / ROUND, 9) != ended:
            return 0
        seen.ideal.append((seen.ideal[-1] if seen.ideal else 0.0) + shares(ended - 1))
        received = np.zeros((users, len(state.cluster.gpu_types)))
        for row in np.flatnonzero(state.jobs.live.app >= 0).tolist():
            received[user_of(state, row)] += state.job_ledger.received[row] / ROUND
        seen.received.append(received)
        _note_mixed(seen, state, luck)
        return ended

    return note


def user_of(state: State, job: int) -> int:
    """The number of a job's user."""
    return int(str(state.job_id(job)).partition("/")[0])


def _note_mixed(seen: Seen, state: State, luck: np.random.Generator) -> None:
    of_user: dict[int, list[Ints]] = {}
    for lease in state.leases.values():
        of_user.setdefault(user_of(state, lease.job), []).append(state.cluster.gpu_type[lease.gpus].astype(np.int64))
    for kinds in of_user.values():
        dealt = luck.permutation(np.concatenate(kinds))
        ends = np.cumsum([part.size for part in kinds])[:-1]
        seen.served += len(kinds)
        seen.mixed += sum(np.unique(part).size > 1 for part in kinds)
        seen.ignoring += sum(np.unique(part).size > 1 for part in np.split(dealt, ends))
