"""Jobs that change their batch size: columns of traces, events of the simulator, and what stages see of them."""

from pathlib import Path

import numpy as np
import pytest
from tests.testbed.simulator_lab import AfterStep, check

from eunomia import Cluster, Profile
from eunomia.contract.decisions import Decision
from eunomia.errors import InputError
from eunomia.model.adaptations import Adaptations, Adapts
from eunomia_testbed.simulator import SimulatedRun, SimulationOptions, SimulationState, assemble
from eunomia_testbed.simulator.gavel_rules import gavel_rules, under_rules
from eunomia_testbed.simulator.options import Reports
from eunomia_testbed.traces import read_trace
from eunomia_testbed.workload import Workload

SAMPLES = Path(__file__).parent / "samples"
HEADER = "job,arrival_seconds,most_gpus,iterations,seconds_per_iteration,batch_size,epochs,samples_per_epoch,adaptation"


def shockwave() -> Workload:
    return read_trace(SAMPLES / "shockwave.trace", throughputs=SAMPLES / "throughputs.json")


class Watch:
    """Keeps the last history, declaration and faults of each job."""

    def __init__(self) -> None:
        self.histories: dict[str, Adaptations] = {}
        self.declared: dict[str, tuple[float, float, int]] = {}
        self.rates: set[tuple[str, float]] = set()

    def see(self, sim: SimulationState, decision: Decision) -> None:
        check(sim, decision)
        assert decision.faults == ()
        snapshot = sim.arbiter.snapshot()
        jobs = snapshot.jobs
        for row, known in snapshot.ledger.adaptations.items():
            self.histories[jobs.id[row]] = known
        for row in snapshot.active.tolist():
            self.declared[jobs.id[row]] = jobs.epochs[row], jobs.samples_per_epoch[row], jobs.adapts[row]
            for seen in snapshot.measured.get(row, ()):
                assert seen.batch_size == jobs.batch_size[row]
                self.rates.add((jobs.id[row], seen.batch_size))


def watched(workload: Workload, options: SimulationOptions, profile: Profile) -> tuple[Watch, SimulatedRun]:
    watch = Watch()
    site = Cluster.parse("8x1 V100")
    return watch, assemble(workload, site, profile, options, observers=[AfterStep(watch.see)]).run()


def test_epochs_and_modes_of_a_trace_are_declared() -> None:
    workload = shockwave()
    watch, _ = watched(workload, SimulationOptions(), Profile.load("fifo"))
    jobs = workload.jobs
    assert jobs.epochs is not None and jobs.samples_per_epoch is not None and jobs.adaptation is not None
    for row, name in enumerate(jobs.id):
        mode = Adapts[jobs.adaptation[row].upper()]
        if name not in watch.declared:
            continue  # no machine holds it
        np.testing.assert_equal(watch.declared[name], (jobs.epochs[row], jobs.samples_per_epoch[row], int(mode)))
    assert len(watch.declared) > 1
    assert np.isfinite(jobs.epochs).any()
    for row, life in workload.regimes.items():
        passes = sum(part.iterations * part.batch_size for part in life) / jobs.samples_per_epoch[row]
        assert passes == pytest.approx(jobs.epochs[row])


@pytest.mark.parametrize("know", ["declared", "measured", "oracle"])
@pytest.mark.parametrize("error", [0.0, 0.3])
def test_the_history_of_a_simulated_job_equals_its_regimes(know: str, error: float) -> None:
    workload = shockwave()
    options = SimulationOptions(reports=Reports(know=know, error=error))  # type: ignore[arg-type]
    watch, _ = watched(workload, options, Profile.load("fifo"))
    assert workload.regimes
    for row, life in workload.regimes.items():
        known = watch.histories[workload.jobs.id[row]]
        assert [one.batch_size for one in known.kept] == [part.batch_size for part in life[1:]]
        assert known.first_batch_size == life[0].batch_size
        done = np.array([one.iterations_done for one in known.kept])
        borders = np.cumsum([part.iterations for part in life])[:-1]
        factors = done / borders
        np.testing.assert_allclose(factors, factors[0])
        assert abs(factors[0] - 1.0) <= error + 1e-9
        rates = {batch for job, batch in watch.rates if job == workload.jobs.id[row]}
        later = {part.batch_size for part in life[1:]} - {life[0].batch_size}
        assert rates - {life[0].batch_size} == (set() if know == "declared" else later)


def test_under_rules_of_peers_adaptations_are_announced_in_order() -> None:
    workload = shockwave()
    site = Cluster.parse("8x1 V100")
    options = SimulationOptions(rules=gavel_rules(workload, site), reports=Reports(know="measured"))
    watch, _ = watched(workload, options, under_rules(Profile.load("fifo")))
    assert watch.histories
    for known in watch.histories.values():
        done = [one.iterations_done for one in known.kept]
        assert done == sorted(done)


def test_unknown_facts_are_not_declared(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("job,arrival_seconds,most_gpus,iterations,seconds_per_iteration\na,0,1,9,1\n")
    watch, _ = watched(read_trace(tmp_path / "t.csv"), SimulationOptions(), Profile.load("fifo"))
    (declared,) = watch.declared.values()
    np.testing.assert_equal(declared, (np.nan, np.nan, int(Adapts.UNKNOWN)))


@pytest.mark.parametrize(
    ("row", "more", "rule"),
    [
        ("a,0,1,100,1,0,10,100,gns", "", "batch_size must be above 0"),
        ("a,0,1,100,1,-8,10,100,gns", "", "batch_size must be at least 0"),
        ("a,0,1,100,1,nan,10,100,gns", "", "batch_size must be a number"),
        ("a,0,1,100,1,10,0,100,gns", "", "epochs must be above 0"),
        ("a,0,1,100,1,10,10,0,gns", "", "samples_per_epoch must be above 0"),
        ("a,0,1,100,1,10,10,100,gnss", "", "adaptation must be one of static, accordion, gns, other"),
        ('a,0,1,100,1,10,9,100,gns,"[[50,10,1],[25,20,1]]"', ",regimes", "regimes must have at most the job's epochs"),
        ('a,0,1,100,1,10,9,100,gns,"[[50,0,1],[25,20,1]]"', ",regimes", "regimes must be JSON as the reference says"),
        ('a,0,1,100,1,10,9,100,gns,"[[50,10,1],[-5,20,1]]"', ",regimes", "regimes must be JSON as the reference says"),
        ('a,0,1,100,1,10,9,100,gns,"[[50,10,1],[25,20,0]]"', ",regimes", "regimes must be JSON as the reference says"),
        ('a,0,1,100,1,10,9,100,gns,"[[50,10,1],[25,20,-1]]"', ",regimes", "regimes must be JSON as the reference says"),
        ('a,0,1,60,1,10,9,100,gns,"[[50,10,1],[25,20,1]]"', ",regimes", 'the job\'s iterations, but got "75 of 60"'),
        ('a,0,1,75,1,10,9,100,gns,"[[50,20,1],[25,40,1]]"', ",regimes", "the job's batch_size, but got \"20 where the"),
    ],
)
def test_a_trace_with_impossible_regimes_is_refused(tmp_path: Path, row: str, more: str, rule: str) -> None:
    (tmp_path / "t.csv").write_text(f"{HEADER}{more}\n{row}\n")
    with pytest.raises(InputError) as failed:
        read_trace(tmp_path / "t.csv", strict=True)
    assert rule in str(failed.value)


def test_regimes_that_sum_to_exactly_the_epochs_of_the_job_are_accepted(tmp_path: Path) -> None:
    row = 'a,0,1,75,1,10,10,100,other,"[[50,10,1],[25,20,1]]"'
    (tmp_path / "t.csv").write_text(f"{HEADER},regimes\n{row}\n")
    read = read_trace(tmp_path / "t.csv", strict=True)
    assert read.jobs.adaptation == ["other"]
    assert len(read.regimes[0]) == 2
