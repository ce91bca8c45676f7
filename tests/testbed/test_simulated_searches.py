"""Simulated searches: their times by hand, and Themis' own example out of the running simulator (§4.3.3)."""

import dataclasses
import json
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pytest
from tests.testbed.simulator_lab import AfterStep

from eunomia import (
    Allocation,
    ByBundle,
    Cause,
    Claims,
    Cluster,
    Contract,
    Decision,
    Feature,
    Grants,
    Menus,
    Offer,
    Profile,
    Reason,
    Snapshot,
    Stage,
    Triggers,
    Unit,
    Valuations,
    Verdicts,
    hookimpl,
)
from eunomia.errors import InputError
from eunomia.platform.registry import Found, Registry
from eunomia_testbed.reproduce.themis.table3 import bid_table, example
from eunomia_testbed.simulator import (
    Costs,
    Keep,
    Reports,
    SimulatedRun,
    SimulationOptions,
    SimulationState,
    assemble,
    simulate_one,
)
from eunomia_testbed.workload import AppColumns, JobColumns, SimulatedSearch, UserColumns, Workload

IN_PROCESS: Mapping[str, object] = {"rounds.bid_deadline": "none"}


def search(
    trials: int,
    *,
    most: int = 16,
    iterations: int = 1600,
    kind: str = "successive_halving",
    curves: tuple[tuple[float, float, float], ...] | None = None,
    every: int = 100,
    **options: object,
) -> Workload:
    """One app, alone, whose trials take a second an iteration on one GPU; the lower its number, the better a trial."""
    known = tuple((0.1 * trial, 1.0, 0.5) for trial in range(trials)) if curves is None else curves
    return Workload(
        name="search",
        users=UserColumns(id=["ana"], weight=np.ones(1)),
        apps=AppColumns(id=["a"], user=np.zeros(1, np.int64), weight=np.ones(1), arrival_seconds=np.zeros(1)),
        jobs=JobColumns(
            id=[f"a/{trial}" for trial in range(1, trials + 1)],
            app=np.zeros(trials, np.int64),
            arrival_seconds=np.zeros(trials),
            least=np.ones(trials, np.int64),
            most=np.full(trials, most, np.int64),
            iterations=np.full(trials, float(iterations)),
            seconds_per_iteration=np.full(trials, 1.0 / most),
            model=np.full(trials, -1, np.int64),
        ),
        searches={0: SimulatedSearch(tuner=kind, options=options, curves=known, every=every)},
    )


def simulated(
    workload: Workload, profile: str, *, gpus: int = 16, agents: bool = False, **options: object
) -> SimulatedRun:
    settings = {} if agents or profile != "themis" else IN_PROCESS
    made = SimulationOptions(agents=agents, **options)  # type: ignore[arg-type]
    return simulate_one(
        workload, Cluster.parse(f"1x{gpus} V100"), Profile.load(profile, settings=settings), options=made
    )


# --- one app of 16 trials, alone --------------------------------------------------------------------------------------


@pytest.mark.parametrize("agents", [False, True])
@pytest.mark.parametrize("profile", ["themis", "max_min", "srtf", "tiresias", "gandiva"])
def test_the_time_of_sixteen_trials_is_the_sum_of_their_phases(profile: str, agents: bool) -> None:
    """Rungs at 100, 200, 400, 800, 1600; 16 trials on one GPU each, 8 on two, 4 on four, 2 on eight, 1 on sixteen."""
    run = simulated(search(16), profile, agents=agents)
    phases = [100 / 1, 100 / 2, 200 / 4, 400 / 8, 800 / 16]
    assert run.app_finish_seconds.tolist() == [sum(phases)]
    ends = np.cumsum(phases).tolist()
    by_hand = [ends[4], ends[3]] + 2 * [ends[2]] + 4 * [ends[1]] + 8 * [ends[0]]
    assert run.finish_seconds.tolist() == by_hand
    assert run.state.tolist() == ["finished"] + ["stopped"] * 15
    assert run.iterations_done.tolist() == [1600.0, 800.0] + 2 * [400.0] + 4 * [200.0] + 8 * [100.0]
    assert run.faults == ()


def test_with_eight_gpus_the_first_phase_of_sixteen_trials_takes_two_turns() -> None:
    run = simulated(search(16), "themis", gpus=8)
    # 8 x 100 s twice; 8 on one GPU, 4 on two, 2 on four, 1 on eight.
    assert run.app_finish_seconds.tolist() == [200.0 + 100.0 + 200 / 2 + 400 / 4 + 800 / 8]


def test_rungs_of_equal_budget_use_the_full_demand_from_the_beginning() -> None:
    run = simulated(search(4, most=8, iterations=60, rungs="equal_budget", demand="full"), "themis")
    # 4 x 8 iterations on 4 GPUs each, 2 x 16 on 8 each, 36 on 8.
    assert run.app_finish_seconds.tolist() == [8 / 4 + 16 / 8 + 36 / 8]


COSTS = Costs(start=5.0, checkpoint=2.0, restore=1.0)


def test_costs_of_starts_and_saves_are_paid_once_per_phase() -> None:
    run = simulated(search(4, most=4, iterations=400), "themis", gpus=4, costs=COSTS)
    # Three phases of 100, 50 and 50 s: 5 to start; then twice 2 to save, 5 to start and 1 to restore.
    assert run.app_finish_seconds.tolist() == [100 + 100 / 2 + 200 / 4 + 5 + 2 * (2 + 5 + 1)]


@pytest.mark.parametrize("profile", ["themis", "srtf", "fifo", "tiresias", "gandiva", "optimus"])
def test_the_gpus_that_a_trial_can_use_grow_by_phase_under_every_policy(profile: str) -> None:
    run = simulated(search(4, most=4, iterations=400), profile, keep=Keep(segments=True))
    # Phases of 100, 100 and 200 iterations, on 1, 2 and 4 GPUs at most, though there are 16 from the beginning.
    assert run.app_finish_seconds.tolist() == [100 + 100 / 2 + 200 / 4]
    widest = {}
    for job, gpus, start in zip(run.segments.job, run.segments.gpus, run.segments.start_seconds, strict=True):
        phase = int(np.searchsorted([100.0, 150.0], start, side="right"))
        widest.setdefault(phase, set()).add(int(gpus))
        assert phase < 2 or int(job) == 0
    assert widest == {0: {1}, 1: {2}, 2: {4}}


def test_trials_that_run_one_after_the_other_each_pay_for_their_start() -> None:
    """SRTF gives each trial all four GPUs; the last of a phase is not saved where it is out."""
    run = simulated(search(4, most=4, iterations=400, demand="full"), "srtf", gpus=4, costs=COSTS)
    work = 4 * 100 / 4 + 2 * 100 / 4 + 200 / 4
    assert run.app_finish_seconds.tolist() == [work + 4 * 5 + 3 * (5 + 1) + (3 + 1) * 2]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_brackets_of_hyperband_run_concurrently(asynchronous: bool) -> None:
    """4 trials to 400, the best 2 to 800 and the best to 1600; 3 to 800 and the best to 1600; 3 to 1600."""
    made = search(10, most=1, kind="hyperband", min_iterations=400, reduction_factor=2, asynchronous=asynchronous)
    run = simulated(made, "themis", gpus=10)
    assert run.app_finish_seconds.tolist() == [1600.0]
    assert sorted(run.iterations_done.tolist()) == [400.0] * 2 + [800.0] * 3 + [1600.0] * 5
    assert run.state.tolist() == ["finished"] + ["stopped"] * 3 + ["finished"] + ["stopped"] * 2 + ["finished"] * 3


def test_asynchronous_halving_promotes_without_waiting() -> None:
    """Eight trials on three GPUs: waiting takes 3 turns, 2 turns, 1 and 1; without, the best goes on meanwhile."""
    run = simulated(search(8, most=1, asynchronous=True), "themis", gpus=3)
    assert run.state.tolist() == ["finished"] + ["stopped"] * 7
    waiting = simulated(search(8, most=1), "themis", gpus=3)
    assert waiting.app_finish_seconds.tolist() == [3 * 200 + 2 * 200 + 400 + 800]
    assert run.app_finish_seconds[0] < waiting.app_finish_seconds[0]


def test_without_early_stopping_every_trial_runs_to_its_end() -> None:
    run = simulated(search(4, most=1, iterations=100, kind="none"), "themis", gpus=2)
    assert run.app_finish_seconds.tolist() == [200.0]
    assert run.state.tolist() == ["finished"] * 4


def test_curve_stopping_stops_hopeless_trials_at_a_milestone() -> None:
    curves = ((0.1, 2.0, 0.6), (0.9, 2.0, 0.6), (0.12, 2.0, 0.6), (1.5, 1.0, 0.6))
    made = search(4, most=1, iterations=100, kind="curve_stopping", curves=curves, every=5)
    run = simulated(made, "themis", gpus=4)
    assert run.state.tolist() == ["finished", "stopped", "finished", "stopped"]
    assert set(run.finish_seconds[[1, 3]].tolist()) <= {25.0, 50.0, 75.0}
    assert run.finish_seconds[[0, 2]].tolist() == [100.0, 100.0]


def test_two_searches_share_the_cluster_and_both_finish() -> None:
    one = search(8, most=4, iterations=80)
    both = dataclasses.replace(
        one,
        apps=AppColumns(
            id=["a", "b"], user=np.zeros(2, np.int64), weight=np.ones(2), arrival_seconds=np.array([0.0, 5.0])
        ),
        jobs=dataclasses.replace(
            one.jobs,
            id=[*one.jobs.id, *(f"b/{trial}" for trial in range(1, 9))],
            app=np.repeat([0, 1], 8),
            arrival_seconds=np.repeat([0.0, 5.0], 8),
            **{
                name: np.tile(getattr(one.jobs, name), 2)
                for name in ("least", "most", "iterations", "seconds_per_iteration", "model")
            },
        ),
        searches={0: one.searches[0], 1: one.searches[0]},
    )
    for agents in (False, True):
        run = simulated(both, "themis", gpus=4, agents=agents)
        assert run.state.tolist().count("finished") == 2 and run.faults == ()
        # 8 x 10, 4 x 10, 2 x 20, 1 x 40 serial seconds an app; at most four GPUs all the time.
        assert run.iterations_done.sum() == 2 * (80 + 40 + 40 + 40)
        assert run.end_seconds >= 2 * 200 / 4


def test_the_same_seed_gives_the_same_run() -> None:
    one, two = (simulated(search(16), "themis", agents=True) for _ in range(2))
    assert one.same_as(two)


def test_bad_searches_are_refused() -> None:
    with pytest.raises(InputError, match="trials must be at least 2 for successive_halving"):
        simulated(search(1), "themis")
    with pytest.raises(InputError, match=r"a search must have a curve for each trial, but got \"?1"):
        simulated(search(2, curves=((0.0, 1.0, 1.0),)), "themis")
    with pytest.raises(InputError, match="tuner option rungs must be valid"):
        simulated(search(4, rungs="cubic"), "themis")
    with pytest.raises(InputError, match='did you mean "successive_halving"'):
        simulated(search(4, kind="sucessive_halving"), "themis")


# --- the example of §4.3.3 --------------------------------------------------------------------------------------------


def test_the_running_auction_reproduces_the_bid_of_the_example() -> None:
    """10000, 5000, 2660, 1330 and 863.3 s over T_id = 2500 s (GOLDEN; Table 3 takes work as divisible)."""
    bids = bid_table()
    assert list(bids) == ["1 GPUs", "2 GPUs", "4 GPUs", "8 GPUs", "16 GPUs"]
    assert list(bids.values()) == pytest.approx([4.0, 2.0, 1.064, 0.532, 0.34533], rel=1e-4)


class Shares:
    """Gives each app a fixed number of GPUs, as the example supposes: two to the first, the rest to the others."""

    name = "shares"
    api = 1
    contracts: ClassVar[dict[Stage, Contract]] = {
        Stage.ALLOCATION: Contract(
            needs=frozenset({Feature.BY_BUNDLE}),  # or the valuation would be refused as chosen in vain
            gives=frozenset({Feature.GRANTS, Feature.APP_CLAIMS}),
        )
    }

    @hookimpl
    def eunomia_triggers(self) -> Triggers:
        return Triggers(on=frozenset({Cause.ARRIVED, Cause.FREED}))

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Allocation:
        rows = snapshot.active_apps
        held = np.array([(snapshot.holdings.app == row).sum() for row in rows])
        wanted = np.array([2 if snapshot.apps.id[row] == "example" else 4 for row in rows])
        return Allocation(
            claims=Claims(unit=Unit.APP, rows=rows),
            amount=Grants(gpus=np.maximum(wanted - held, 0).astype(np.int64)),
            order=np.flatnonzero(wanted > held).astype(np.int32),
            verdicts=Verdicts(
                rows=rows[wanted <= held], reasons=np.full((wanted <= held).sum(), int(Reason.OUTRANKED))
            ),
        )


def test_the_estimate_of_the_example_is_revised_when_the_slower_trials_are_promoted() -> None:
    """On two GPUs phase one takes 1600 s; then 120 and 100 s an iteration go on: 1920 and 2160 s more, 5680 in all."""
    found = Registry.find(installed=False)
    ours = {name: found.listed(name).found for name in found.names}
    ours["shares"] = Found(name="shares", target=f"{__name__}:Shares", version="1")
    profile = Profile.load(
        "themis", settings={**IN_PROCESS, "stages.allocation": "shares", "rounds.lease": "10d"}, registry=Registry(ours)
    )
    rho: dict[float, float] = {}

    def watch(sim: SimulationState, decision: Decision) -> None:
        spent = dict(sim.arbiter.spent)
        standings: Valuations = sim.arbiter.standings()
        assert sim.arbiter.spent == spent, "screens take none of the rounds' time"
        names = [str(sim.arbiter.snapshot().apps.id[row]) for row in standings.claims.rows]
        rho[float(decision.now)] = float(standings.form(ByBundle).now[names.index("example")])

    options = SimulationOptions(reports=Reports(know="oracle"), until=1601.0)
    assemble(example(), Cluster.parse("1x16 V100"), profile, options, observers=[AfterStep(watch)]).run()
    assert rho[0.0] == pytest.approx(5000.0 / 2500.0)
    assert rho[1600.0] == pytest.approx(5680.0 / 2500.0) == pytest.approx(2.272)


def test_the_state_of_a_search_is_plain_json_at_any_time() -> None:
    states = []

    def watch(sim: SimulationState, decision: Decision) -> None:
        states.extend(json.dumps(master.tuner.state()) for master in sim.apps.masters.values())  # type: ignore[attr-defined]

    workload, profile = search(8, iterations=800), Profile.load("themis", settings=IN_PROCESS)
    assemble(workload, Cluster.parse("1x8 V100"), profile, SimulationOptions(), observers=[AfterStep(watch)]).run()
    assert len(set(states)) > 3
