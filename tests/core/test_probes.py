"""Jobs are measured at settings that an elasticity asks for: where they run, what they keep, and when they go back."""

import importlib.util
import math
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from assembling import assemble
from eunomia import Allocation, Contract, Feature, Menus, Offer, Probes, Snapshot, Stage, Triggers, hookimpl
from eunomia.arbiter import Arbiter
from eunomia.contract.allocations import Grants
from eunomia.contract.claims import Claims
from eunomia.contract.decisions import Decision
from eunomia.contract.events import AppArrived, Event, JobAdded, JobFinished, MachineLost, RateMeasured
from eunomia.contract.stages import Rounds
from eunomia.explain.measuring import measuring
from eunomia.model.cluster import Cluster
from eunomia.model.leases import Lease, LeaseState
from eunomia.round.answers import PlanError
from eunomia.round.invariants import check_state
from eunomia.round.probes import check_probes
from eunomia.testing.drive import Delays, Drive
from eunomia.units import AppId, Cause, JobId, Locality, Seconds, Unit, UserId

_spec = importlib.util.spec_from_file_location("retuning", Path(__file__).parent / "retuning.py")
assert _spec is not None
assert _spec.loader is not None
lab = sys.modules.setdefault("retuning", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab)

SLOW = Delays(order=0.1, start=1.0, release=0.5)


class Asking:
    """Sizes from least to most; asks for one setting until its rate is known, from a time on."""

    name = "asking"
    api = 1
    contracts: ClassVar[dict[Stage, Contract]] = {
        Stage.ELASTICITY: Contract(gives=frozenset({Feature.RATES, Feature.MANY_SIZES, Feature.PROBES}))
    }

    def __init__(self, gpus: int = 2, *, job: int = 0, limit: float = 60.0, since: float = 5.0, **columns: Any) -> None:
        self._range, self._since, self._job = lab.made("range"), since, job
        columns = {name: np.array([column]) for name, column in columns.items()}
        self._probe = Probes(
            jobs=np.array([job], np.int32),
            gpus=np.array([gpus]),
            iterations=20,
            limit=Seconds(limit),
            again=Seconds(5.0),
            **columns,
        )

    @hookimpl
    def eunomia_elasticity(self, snapshot: Snapshot) -> Menus:
        menus: Menus = self._range.eunomia_elasticity(snapshot)
        if snapshot.now < self._since or snapshot.measured.get(self._job):
            return menus
        return Menus(curve=menus.curve, points=menus.points, probe=self._probe)


class Least:
    """Grants each waiting job its least GPUs, while they are free."""

    name = "least"
    api = 1
    contracts: ClassVar[dict[Stage, Contract]] = {}

    @hookimpl
    def eunomia_triggers(self) -> Triggers:
        return Triggers(on=frozenset({Cause.ARRIVED}))

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Allocation:
        rows = snapshot.active[snapshot.jobs.state[snapshot.active] == 1].astype(np.int32)
        gpus = snapshot.jobs.least[rows].astype(np.int64)
        fit = np.cumsum(gpus) <= offer.free_gpus
        return Allocation(
            claims=Claims(unit=Unit.JOB, rows=rows[fit]),
            amount=Grants(gpus=gpus[fit]),
            order=np.arange(int(fit.sum()), dtype=np.int32),
        )


class Run:
    """Jobs on a small cluster, of which the first is measured; each decision is checked."""

    def __init__(
        self,
        asking: Asking,
        cluster: str = "1x4 V100 24cpu 48GB",
        jobs: tuple[tuple[int, int], ...] = ((1, 4),),
        allocation: Any = None,
        lease: Seconds | None = None,
    ) -> None:
        def stages() -> Any:
            return assemble(
                elasticity=asking, valuation=lab.made("fifo"), allocation=allocation or lab.made("ordered"),
                placement=lab.made("packed"),
                rounds=Rounds(lease=lease, every=Seconds(5.0), on=frozenset({Cause.ARRIVED})),
            )  # fmt: skip

        self.arbiter = Arbiter(Cluster.parse(cluster), stages(), stages())
        self.arbiter.strict = False
        self.seen: list[tuple[float, list[int], list[int] | None]] = []
        """After each step: the time, the GPUs of the first job's lease, and those on which it is measured."""
        self.faults: list[str] = []
        work = {JobId(f"a{number}/0"): 4000.0 for number in range(len(jobs))}
        self.drive = Drive(self.arbiter, work=work, delays=SLOW, watch=self._watch)
        for number, (least, most) in enumerate(jobs):
            app = AppId(f"a{number}")
            self.drive.at(0.0, AppArrived(app=app, user=UserId("u"), divides=False))
            self.drive.at(0.0, JobAdded(job=JobId(f"{app}/0"), app=app, least=least, most=most))

    def _watch(self, drive: Drive, decision: Decision) -> None:
        check_state(self.arbiter.state)
        drive.check_machines()
        self.faults += [fault.what for fault in decision.faults]
        lease = self.lease
        if lease is not None:
            self.seen.append(
                (float(decision.now), lease.gpus, None if lease.probe is None else lease.probe.gpus.tolist())
            )

    @property
    def lease(self) -> Lease | None:
        return self.arbiter.state.leases.get(1)

    def until(self, seconds: float, *events: tuple[float, Event]) -> "Run":
        self.drive.run(events, until=seconds)
        return self

    @property
    def places(self) -> list[tuple[list[int], list[int] | None]]:
        """Where the first job was, one entry a change."""
        places = [(gpus, probe) for _, gpus, probe in self.seen]
        return [place for at, place in enumerate(places) if at == 0 or place != places[at - 1]]


OWN = ([0, 1, 2, 3], None)


def test_a_smaller_size_is_measured_on_some_of_the_gpus_of_the_job() -> None:
    run = Run(Asking(2)).until(40.0)
    assert run.faults == []
    assert run.places == [OWN, ([0, 1, 2, 3], [0, 1]), OWN]
    (seen,) = run.arbiter.state.reports.measured[0]
    assert (seen.gpus, seen.gpu_type, seen.locality, seen.rate) == (2, "V100", Locality.ISLAND, 2.0)


def test_a_larger_size_is_measured_on_free_gpus_which_are_released_afterwards() -> None:
    ended = (14.0, JobFinished(job=JobId("a1/0")))
    run = Run(Asking(4), jobs=((2, 4), (2, 2)), allocation=Least()).until(60.0, ended)
    assert run.faults == []
    assert run.places == [([0, 1], None), ([0, 1, 2, 3], [0, 1, 2, 3]), ([0, 1], None)]
    began = next(now for now, _, probe in run.seen if probe is not None)
    assert began >= 14.5  # the other job's GPUs were not free before
    assert run.drive.holders == {0: 1, 1: 1}


def test_a_job_keeps_its_own_gpus_while_another_type_is_measured() -> None:
    run = Run(Asking(2, gpu_type=1), cluster="1x2 P100, 1x2 V100", jobs=((2, 2),)).until(60.0)
    assert run.faults == []
    (own, _), (both, there), (back, gone) = run.places
    assert own != there
    assert sorted([*own, *(there or [])]) == both
    assert (back, gone) == (own, None)
    assert [seen.gpu_type for seen in run.arbiter.state.reports.measured[0]] == ["V100"]
    assert run.drive.holders == dict.fromkeys(own, 1)


def test_a_measurement_uses_the_requested_amounts_and_restores_the_earlier_ones() -> None:
    run = Run(Asking(2, cpus=3.0, memory_gib=10.0)).until(60.0)
    assert run.faults == []
    (seen,) = run.arbiter.state.reports.measured[0]
    assert (seen.cpus, seen.memory_gib) == (3.0, 10.0)
    assert run.arbiter.state.holdings.live.cpus.tolist() == [6.0] * 4


def test_a_measurement_does_not_overcommit_a_machine_without_spare_cpus() -> None:
    run = Run(Asking(2, cpus=30.0)).until(60.0)
    assert run.faults == []
    assert run.places == [OWN]


def test_a_job_that_is_not_measured_within_the_limit_returns_to_its_size() -> None:
    run = Run(Asking(2, limit=3.0)).until(20.0)
    began = next(now for now, _, probe in run.seen if probe is not None)
    back = next(now for now, _, probe in run.seen if probe is None and now > began)
    assert back == began + 3.0
    assert not run.arbiter.state.reports.measured


def test_a_job_that_finishes_during_a_measurement_releases_its_gpus() -> None:
    run = Run(Asking(2)).until(30.0, (8.0, JobFinished(job=JobId("a0/0"))))
    assert run.lease is None
    assert not run.drive.holders
    assert not run.arbiter.state.owners.probing


def test_a_machine_lost_during_a_measurement_ends_it() -> None:
    run = Run(Asking(2), cluster="2x4 V100", jobs=((1, 4),)).until(30.0, (8.0, MachineLost(machine="m01")))
    assert run.faults == []
    assert run.arbiter.state.leases[2].gpus == [4, 5, 6, 7]


def test_a_lease_renewed_together_with_a_probe_is_protected_until_the_limit() -> None:
    run = Run(Asking(2, since=10.0), lease=Seconds(10.0)).until(12.0)
    lease = run.lease
    assert lease is not None
    assert lease.probe is not None
    assert lease.ends_at > 12.0
    assert lease.protected_until == lease.probe.until
    held = run.arbiter.state.holdings.live
    assert held.protected_until[:4].tolist() == [lease.probe.until] * 4


def test_a_rate_of_another_setting_does_not_end_the_measurement() -> None:
    other = RateMeasured(job=JobId("a0/0"), gpus=3, locality=Locality.ISLAND, rate=1.0, gpu_type="V100")
    run = Run(Asking(2)).until(9.0, (8.5, other))
    lease = run.lease
    assert lease is not None
    assert lease.probe is not None
    assert lease.state is LeaseState.ACTIVE


def test_a_measurement_outlives_a_checkpoint_of_the_arbiter() -> None:
    run = Run(Asking(2, cpus=math.nan)).until(8.0)
    saved = run.arbiter.save()
    run.arbiter.load(saved)
    assert run.arbiter.save() == saved
    assert run.arbiter.state.owners.probing == {1: 65.0} or run.arbiter.state.owners.probing


def test_explain_names_the_gpus_on_which_a_job_is_measured() -> None:
    run = Run(Asking(2)).until(8.0)
    said = measuring(run.arbiter.view, 0, Seconds(8.0))
    assert said.startswith(
        "It measures its rate over 20 iterations on 2 slots of V100, and goes back to its 4 slots then"
    )
    assert measuring(Run(Asking(2)).until(3.0).arbiter.view, 0, Seconds(3.0)) == ""


def test_a_probe_of_a_finished_job_is_refused_and_other_jobs_keep_their_gpus() -> None:
    run = Run(Asking(2), jobs=((1, 2), (1, 2))).until(12.0, (2.0, JobFinished(job=JobId("a0/0"))))
    assert "a probe must be of a job that has not ended, but got row 0" in run.faults[0]
    leases = run.arbiter.state.leases
    assert [(lease.gpus, lease.probe) for lease in leases.values()] == [([2, 3], None)]


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"gpus": 5}, "a probe must be of a size that the job can have, 1 to 4 GPUs", "5 (a0/0)"),
    ({"gpus": 0}, "a probe must be of a size that the job can have, 1 to 4 GPUs", "0 (a0/0)"),
    ({"job": 7}, "a probe must be of a job that has not ended", "row 7"),
    ({"gpu_type": 2}, "a probe must be of a GPU type of the cluster, P100, V100", "number 2 (a0/0)"),
    ({"gpu_type": 0, "gpus": 3}, "a probe must be of at most the 1 GPUs of its type", "3 (a0/0)"),
    ({"locality": 4}, "the locality of a probe must be from 0 to 3", "4 (a0/0)"),
    ({"cpus": 0.0}, "CPUs of a probe must be above 0", "0.0 (a0/0)"),
    ({"memory_gib": math.inf}, "memory of a probe must be above 0", "inf (a0/0)"),
]


@pytest.mark.parametrize(("wrong", "rule", "value"), BAD)
def test_a_setting_that_the_job_cannot_have_is_refused(wrong: dict[str, Any], rule: str, value: str) -> None:
    run = Run(Asking(**({"gpus": 2} | wrong)), cluster="1x4 V100, 1x1 P100").until(7.0)
    assert f"{rule}, but got {value}" in run.faults[0]
    assert len(run.places) == 1
    assert run.places[0][1] is None


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"iterations": math.nan}, "iterations, limit and again of probes must be above 0, but got nan"),
        ({"gpus": np.array([1.5])}, "gpus of probes must be an array of whole numbers, but got float64"),
        ({"gpu_type": "V100"}, "gpu_type of probes must be an array of whole numbers, but got str"),
        ({"cpus": np.array(["4"])}, "cpus of probes must be an array of numbers, but got <U1"),
    ],
)
def test_the_error_for_an_invalid_column_names_the_column(columns: dict[str, Any], said: str) -> None:
    run = Run(Asking(2))
    given = {"jobs": np.array([0], np.int32), "gpus": np.array([2])} | columns
    with pytest.raises(PlanError) as refused:
        check_probes(run.arbiter.state, Probes(**given))
    assert said in str(refused.value)


def test_a_type_that_the_job_does_not_allow_is_refused() -> None:
    run = Run(Asking(2, gpu_type=0), cluster="1x4 V100, 1x4 P100", jobs=())
    app = AppId("v")
    for event in (
        AppArrived(app=app, user=UserId("u"), divides=False),
        JobAdded(job=JobId("v/0"), app=app, least=1, most=2, gpu_type="V100"),
    ):
        run.drive.at(0.0, event)
    run.until(7.0)
    assert "a probe must be of the GPU type that the job asks for, V100, but got P100 (v/0)" in run.faults[0]


class Undeclared(Asking):
    """Asks for measurements without a word in its contract."""

    contracts: ClassVar[dict[Stage, Contract]] = {
        Stage.ELASTICITY: Contract(gives=frozenset({Feature.RATES, Feature.MANY_SIZES}))
    }


def test_probes_without_the_declared_feature_are_a_fault_of_the_elasticity() -> None:
    run = Run(Undeclared(since=0.0)).until(30.0)
    assert run.faults
    assert "an elasticity that probes must declare Feature.PROBES" in run.faults[0]
    assert Run(Asking()).until(30.0).faults == []
