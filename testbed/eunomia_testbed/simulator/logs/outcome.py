"""The results of a run, as columns."""

import math

import numpy as np

from eunomia.units import Ints, Reals
from eunomia_testbed.simulator.executing.job_runs import JobRuns
from eunomia_testbed.simulator.logs.logs import (
    LeaseLogger,
    QueueLogger,
    RoundLogger,
    SegmentLogger,
    WaitLogger,
    ints,
    reals,
    words,
)
from eunomia_testbed.simulator.logs.run import SimulatedRun, Words
from eunomia_testbed.simulator.logs.step_log import StepLog
from eunomia_testbed.simulator.progress.states import (
    AWAITED,
    FAILED,
    FINISHED,
    PAUSED,
    REJECTED,
    RUNNING,
    STOPPED,
    WAITING,
)
from eunomia_testbed.simulator.simulation_state import SimulationState


def outcome(sim: SimulationState, runs: JobRuns, log: StepLog) -> SimulatedRun:
    """Return the results of a run that has ended."""
    work, logs, jobs = sim.work, sim.logs, sim.jobs
    ideal = sim.speeds.ideal_seconds()
    declared = sim.workload.exclusive_seconds
    states = words(jobs.state)
    return SimulatedRun(
        policy=sim.profile.name,
        seed=sim.seed,
        end_seconds=sim.now,
        start_seconds=reals(jobs.start),
        finish_seconds=reals(jobs.finish),
        state=states,
        run_seconds=reals(work.run_seconds),
        wait_seconds=reals(jobs.wait_seconds),
        slot_seconds=reals(sim.gpus.slot_seconds),
        iterations_done=reals(work.done),
        iterations_lost=reals(work.lost),
        restarts=ints(runs.restarts),
        migrations=ints(runs.migrations),
        resizes=ints(runs.resizes),
        probes=ints(runs.probes.reported),
        ideal_seconds=ideal,
        exclusive_seconds=ideal if declared is None else np.where(np.isnan(declared), ideal, declared),
        app_finish_seconds=reals(sim.apps.finish),
        app_state=_app_states(sim, states),
        leases=(logs.leases or LeaseLogger()).columns(),
        rounds=(logs.rounds or RoundLogger()).columns(),
        waits=(logs.waits or WaitLogger(0)).columns(sim.now),
        queue=(logs.queue or QueueLogger()).columns(),
        segments=(logs.segments or SegmentLogger(sim.cluster, {})).columns(),
        draws=_draws(sim),
        records={name: tuple(kept) for name, kept in sorted(log.records.items())},
        faults=tuple(log.faults),
        fallback_round=log.fallback_round,
        dropped=tuple(log.dropped),
        steps=log.steps,
        events=log.events,
        round_count=log.rounds,
        quiet_rounds=log.quiet,
        stage_calls=sim.arbiter.calls,
        timings=log.timings.seconds() if log.timings is not None else {},
    )


def _draws(sim: SimulationState) -> bool:
    """Return whether the run may depend on chance; False only if no part of it draws random numbers."""
    options = sim.options
    reports = options.reports
    off = reports.error > 0.0 or any(error > 0.0 for error in reports.errors.values())
    fails = options.failures is not None and math.isfinite(options.failures.between_seconds)
    more = options.agents or options.rules is not None or bool(sim.workload.searches)
    return sim.arbiter.view.draws > 0 or options.delays.any or off or fails or more


def _app_states(sim: SimulationState, states: Words) -> Words:
    """Return the state of each app: ``finished`` if it has an end, or else the highest state of its jobs by rank."""
    apps: Ints = sim.workload.jobs.app
    finish: Reals = reals(sim.apps.finish)
    rank = {FINISHED: 0, STOPPED: 0, REJECTED: 1, FAILED: 2, AWAITED: 3, PAUSED: 4, WAITING: 5, RUNNING: 6}
    worst = np.zeros(finish.size, dtype=np.int64)
    np.maximum.at(worst, apps, [rank[state] for state in states.tolist()])
    name = [FINISHED, REJECTED, FAILED, AWAITED, PAUSED, WAITING, RUNNING]
    made = [
        FINISHED if not math.isnan(ended) else name[code]
        for ended, code in zip(finish.tolist(), worst.tolist(), strict=True)
    ]
    return words(made)
