"""An arbiter under Shockwave whose orders are obeyed at once, with or without a journal."""

import math
from collections.abc import Sequence
from pathlib import Path

from eunomia import Cluster, Profile, Reason, Seconds
from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Decision
from eunomia.contract.events import AppArrived, Event, JobAdded, Released, Started
from eunomia.journal.journal import Journal
from eunomia.model.leases import LeaseState
from eunomia.units import AppId, Epoch, JobId, LeaseId, Stage, UserId
from eunomia_plugins.shockwave.plan import RoundPlan

ROUND = 120.0


class Lab:
    """Jobs on a cluster; a job named ``a`` is the one of app ``a``."""

    def __init__(self, cluster: str, journal: Path | None = None, **settings: object) -> None:
        self.cluster = Cluster.parse(cluster)
        window = {"plugins.shockwave_utility.window": 4, "plugins.shockwave_utility.contention": 1.0}
        given = {key.replace("__", "."): value for key, value in settings.items()}
        self.profile = Profile.load("shockwave_linear", settings={**window, **given})
        self.journal = journal
        self.arbiter = self.fresh()
        self.now = 0.0
        self.wake_at = math.inf

    def fresh(self) -> Arbiter:
        """An arbiter as it is made."""
        return Arbiter(self.cluster, self.profile.stages(self.cluster), Profile.fallback().stages(self.cluster))

    def step(self, *events: Event, at: float | None = None) -> Decision:
        """Step; every order is obeyed within the same moment."""
        self.now = self.now if at is None else at
        decision = self._step(events)
        while news := self._news():
            self._step(news)
        return decision

    def _step(self, events: Sequence[Event]) -> Decision:
        decision = self.arbiter.step(Seconds(self.now), events)
        assert decision.faults == ()
        self.wake_at = float(decision.wake_at)
        if self.journal is not None:
            with Journal.open(self.journal) as journal:
                journal.append(self.now, events, decision)
        return decision

    def _news(self) -> list[Event]:
        state = self.arbiter.state
        epoch = Epoch(state.counters.last_epoch)
        left: list[Event] = [
            Released(lease=LeaseId(lease), epoch=epoch, gpus=tuple(gpus))
            for lease, gpus in state.owners.leaving.items()
            if gpus
        ]
        return left or [
            Started(lease=LeaseId(lease.id), epoch=Epoch(lease.epoch))
            for lease in state.leases.values()
            if lease.state is LeaseState.ORDERED
        ]

    def submit(self, *jobs: tuple[str, int, float], at: float | None = None, **columns: object) -> Decision:
        """Jobs arrive: names, GPUs, and seconds of work at one iteration a second."""
        events: list[Event] = []
        for name, gpus, seconds in jobs:
            events.append(AppArrived(app=AppId(name), user=UserId(name)))
            pace = float(gpus)  # of one GPU
            events.append(
                JobAdded(
                    job=JobId(name),
                    app=AppId(name),
                    least=gpus,
                    most=gpus,
                    iterations=seconds,
                    seconds_per_iteration=pace,
                    **columns,  # type: ignore[arg-type]
                )
            )
        return self.step(*events, at=at)

    def pass_to(self, at: float) -> None:
        """Step at each time that the arbiter asks for."""
        while self.wake_at <= at + 1e-9:
            self.step(at=self.wake_at)
        self.now = at

    @property
    def running(self) -> set[str]:
        """Jobs that hold GPUs."""
        return {str(self.arbiter.state.job_id(lease.job)) for lease in self.arbiter.state.leases.values()}

    @property
    def reasons(self) -> dict[str, Reason | None]:
        """Why jobs wait."""
        state = self.arbiter.state
        return {str(state.job_id(row)): state.reason(row) for row in state.waiting_jobs.rows}

    @property
    def plan(self) -> RoundPlan:
        """The memo."""
        memo = self.arbiter.snapshot().memos.of("shockwave", Stage.ALLOCATION)
        assert isinstance(memo, RoundPlan)
        return memo
