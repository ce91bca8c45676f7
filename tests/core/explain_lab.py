"""A virtual arbiter whose orders are obeyed at once, and which explains: for tests of explanations."""

import math
from collections.abc import Callable, Sequence

from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Decision
from eunomia.contract.events import (
    AppArrived,
    Event,
    GpusReturned,
    JobAdded,
    JobFinished,
    JobPaused,
    JobResumed,
    JobsDivided,
    MachineBack,
    ProfileChanged,
    RateMeasured,
    Released,
    Started,
)
from eunomia.contract.stages import Stages
from eunomia.explain.explaining import Why, explain
from eunomia.explain.remedies import Remedy
from eunomia.model.cluster import Cluster
from eunomia.model.leases import LeaseState
from eunomia.model.workload import JobState
from eunomia.units import NONE, AppId, Epoch, JobId, LeaseId, Locality, Seconds, UserId

Make = Callable[[Cluster], Stages]


class Lab:
    """An arbiter in virtual time.

    Args:
        cluster: such as ``"1x4 V100"``, or a cluster.
        make: makes the stages, as often as it is called.
        fallback: makes the fallback's.
        obeys: whether holders leave and jobs start at once.
    """

    def __init__(self, cluster: str | Cluster, make: Make, *, fallback: Make | None = None, obeys: bool = True) -> None:
        self.cluster = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
        self.make, self.fallback = make, fallback or make
        self.arbiter = Arbiter(self.cluster, make(self.cluster), self.fallback(self.cluster), seed=7)
        self.obeys = obeys
        self.divides = True
        self.held: dict[int, int] = {}
        self.now = 0.0
        self.wake_at = math.inf
        self.rounds: list[Decision] = []

    def step(self, *events: Event, at: float | None = None) -> Decision:
        """Step, and have what follows obeyed within the same moment."""
        self.now = self.now if at is None else at
        decision = self._step(events)
        while self.obeys and (news := self._news()):
            self._step(news)
        return decision

    def _step(self, events: Sequence[Event]) -> Decision:
        decision = self.arbiter.step(Seconds(self.now), events)
        self.wake_at = float(decision.wake_at)
        if decision.causes:
            self.rounds.append(decision)
        return decision

    def _news(self) -> list[Event]:
        state = self.arbiter.state
        epoch = Epoch(state.counters.last_epoch)
        left: list[Event] = [
            Released(lease=LeaseId(lease), epoch=epoch, gpus=tuple(gpus))
            for lease, gpus in state.owners.leaving.items()
            if gpus
        ]
        started: list[Event] = [
            Started(lease=LeaseId(lease.id), epoch=Epoch(lease.epoch))
            for lease in state.leases.values()
            if lease.state is LeaseState.ORDERED
        ]
        return left or started or (self._divisions() if self.divides else [])

    def _divisions(self) -> list[Event]:
        """Tuners put waiting jobs on slots of their apps, by number, a slot each."""
        state, held = self.arbiter.state, self.arbiter.state.holdings.live
        events: list[Event] = []
        for app in {lease.app for lease in state.leases.values() if lease.job == NONE}:
            gpus = [gpu for gpu in range(self.cluster.gpus) if held.app[gpu] == app and held.state[gpu] in (1, 2)]
            given = {int(held.job[gpu]): gpu for gpu in gpus if held.job[gpu] != NONE}
            idle = [gpu for gpu in gpus if held.job[gpu] == NONE]
            fresh = [row for row in sorted(state.waiting_jobs.rows) if state.jobs.live.app[row] == app][: len(idle)]
            given |= dict(zip(fresh, idle, strict=False))
            if fresh:
                jobs = tuple(state.job_id(row) for row in given)
                events.append(
                    JobsDivided(app=state.app_id(app), jobs=jobs, gpus=tuple((gpu,) for gpu in given.values()))
                )
        return events

    def pass_to(self, at: float) -> None:
        """Let time pass, with every step that falls due, and every job done whose work is known."""
        while min(self.wake_at, soonest := self._next_done()) <= at + 1e-9:
            over = [JobFinished(job=job) for job, end in self._ends().items() if end <= self.wake_at and end == soonest]
            self.step(*over, at=min(self.wake_at, soonest))
        self.now = max(self.now, at)

    def _next_done(self) -> float:
        return min(self._ends().values(), default=math.inf)

    def _ends(self) -> dict[JobId, float]:
        jobs = self.arbiter.state.jobs.live
        running = [row for row in self.arbiter.state.names.jobs.values() if jobs.state[row] == JobState.RUNNING]
        ends = {
            self.arbiter.state.job_id(row): float(
                jobs.since[row] + (jobs.iterations[row] - jobs.done[row]) / jobs.rate[row]
            )
            for row in running
            if jobs.rate[row] > 0.0 and jobs.iterations[row] > 0.0
        }
        return {job: max(self.now, end) for job, end in ends.items()}

    def submit(
        self, name: str, gpus: int | tuple[int, int] = 1, *, jobs: int = 1, divides: bool = False, **job: object
    ) -> None:
        """An app and its jobs come."""
        least, most = gpus if isinstance(gpus, tuple) else (gpus, gpus)
        added = [
            JobAdded(job=JobId(f"{name}/{number}"), app=AppId(name), least=least, most=most, **job)  # type: ignore[arg-type]
            for number in range(jobs)
        ]
        self.step(AppArrived(app=AppId(name), user=UserId("ana"), divides=divides), *added)

    def divide(self, app: str, **jobs: tuple[int, ...]) -> None:
        """An app's tuner divides: ``divide("b", _0=(0, 1))`` puts ``b/0`` on two slots."""
        names = tuple(JobId(f"{app}/{name[1:]}") for name in jobs)
        self.step(JobsDivided(app=AppId(app), jobs=names, gpus=tuple(jobs.values())))

    def row(self, job: str) -> int:
        """Row of a job."""
        return self.arbiter.state.job_row(JobId(job))

    def explain(self, job: str) -> Why:
        """Explain, and hold that nothing of the arbiter has changed by it."""
        before, calls = self.arbiter.save(), self.arbiter.calls
        why = explain(
            self.arbiter,
            JobId(job),
            stages=self.make(self.cluster),
            fallback=self.fallback(self.cluster),
            rounds=self.rounds,
            now=Seconds(self.now),
        )
        assert self.arbiter.save() == before
        assert self.arbiter.calls == calls
        return why

    def freed(self, job: str) -> bool:
        """Say whether the job runs, or its app, which divides, has got slots since it was asked about."""
        state = self.arbiter.state
        row = self.row(job)
        if state.jobs.live.state[row] == JobState.RUNNING:
            return True
        app = int(state.jobs.live.app[row])
        return bool(self.held) and self._slots(app) > self.held[app]

    def _slots(self, app: int) -> int:
        leases = self.arbiter.state.leases.values()
        return sum(len(lease.gpus) for lease in leases if lease.app == app and lease.job == NONE)

    def do(self, why: Why, remedy: Remedy) -> None:
        """Do what is said to free the job."""
        state, job = self.arbiter.state, why.job
        self.held = {int(app): self._slots(int(app)) for app in state.names.apps.values()}
        match remedy.what:
            case "lease_end" | "protection_end" | "round" | "pause_end" | "offer_end" | "plan" | "fallback":
                self.pass_to(self.now + (remedy.in_seconds if remedy.in_seconds is not None else 3600.0))
            case "release" if remedy.in_seconds is not None and why.reason is not None and not self.obeys:
                self.obeys = True
                self.step()
            case "release":
                self.finish(remedy.slots)
            case "gpus":
                held = [gpu for gpu in range(self.cluster.gpus) if state.holdings.live.app[gpu] != NONE]
                self.finish(next(other.slots for other in why.frees if other.what == "release") or tuple(held))
            case "order":
                others = [state.job_id(row) for row in sorted(state.waiting_jobs.rows) if state.job_id(row) != job]
                self.step(*[JobPaused(job=other) for other in others])
            case "resume":
                self.step(JobResumed(job=job))
            case "measured":
                kind = self.cluster.gpu_types[0]
                self.step(RateMeasured(job=job, gpus=1, gpu_type=kind, locality=Locality.ISLAND, rate=1.0))
            case "machine_back":
                self.step(*[MachineBack(machine=machine.name) for machine in self.cluster.machines])
            case "division":
                self.step(JobsDivided(app=why.app, jobs=(job,), gpus=(remedy.slots[:1],)))
            case other:
                raise AssertionError(other)
        if not self.freed(job):
            self.pass_to(self.wake_at if math.isfinite(self.wake_at) else self.now)
        if remedy.text.endswith("at the next round"):
            self.submit("someone", 1)

    def finish(self, slots: Sequence[int]) -> None:
        """The work on these slots is done."""
        state, held = self.arbiter.state, self.arbiter.state.holdings.live
        events: dict[str, Event] = {}
        for gpu in slots:
            lease = state.leases[int(held.lease[gpu])]
            if held.job[gpu] != NONE:
                job = state.job_id(int(held.job[gpu]))
                events[job] = JobFinished(job=job)
            elif lease.job != NONE:
                job = state.job_id(lease.job)
                events[job] = JobFinished(job=job)
        for app in {int(held.app[gpu]) for gpu in slots}:
            mine = tuple(
                gpu for gpu in slots if held.app[gpu] == app and state.leases[int(held.lease[gpu])].job == NONE
            )
            if mine:
                events[f"{app} returns"] = GpusReturned(app=state.app_id(app), gpus=mine)
        self.step(*events.values())

    def use(self, make: Make) -> None:
        """Serve by other stages."""
        self.make = make
        self.arbiter.use(make(self.cluster))
        self.step(ProfileChanged(profile="other"))
