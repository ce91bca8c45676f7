"""The results of a run, as columns."""

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from eunomia.units import Ints, Reals
from eunomia_testbed.simulator.logs import (
    LeaseLogger,
    QueueLogger,
    RoundLogger,
    SegmentLogger,
    WaitLogger,
    ints,
    reals,
    words,
)
from eunomia_testbed.simulator.run import SimulatedRun, Words
from eunomia_testbed.simulator.states import AWAITED, FAILED, FINISHED, PAUSED, REJECTED, RUNNING, STOPPED, WAITING

if TYPE_CHECKING:
    from eunomia_testbed.simulator.engine import Engine


@dataclasses.dataclass(slots=True)
class Counts:
    """Sums over a run."""

    steps: int = 0
    events: int = 0
    rounds: int = 0
    quiet: int = 0


def outcome(engine: "Engine") -> SimulatedRun:
    """The columns of a run that is over."""
    work, logs, counts = engine.work, engine.logs, engine.counts
    ideal = engine.speeds.ideal_seconds()
    declared = engine.workload.exclusive_seconds
    states = words(engine.jobs.state)
    return SimulatedRun(
        policy=engine.profile.name,
        seed=engine.seed,
        end_seconds=engine.now,
        start_seconds=reals(engine.jobs.start),
        finish_seconds=reals(engine.jobs.finish),
        state=states,
        run_seconds=reals(work.run_seconds),
        wait_seconds=reals(engine.jobs.wait_seconds),
        slot_seconds=reals(engine.executor.slot_seconds),
        iterations_done=reals(work.done),
        iterations_lost=reals(work.lost),
        restarts=ints(engine.executor.restarts),
        migrations=ints(engine.executor.migrations),
        ideal_seconds=ideal,
        exclusive_seconds=ideal if declared is None else np.where(np.isnan(declared), ideal, declared),
        app_finish_seconds=reals(engine.app_finish),
        app_state=_app_states(engine, states),
        leases=(logs.leases or LeaseLogger()).columns(),
        rounds=(logs.rounds or RoundLogger()).columns(),
        waits=(logs.waits or WaitLogger(0)).columns(engine.now),
        queue=(logs.queue or QueueLogger()).columns(),
        segments=(logs.segments or SegmentLogger(engine.cluster, {})).columns(),
        records={name: tuple(kept) for name, kept in sorted(engine.records.items())},
        faults=tuple(engine.faults),
        fallback_round=engine.fallback_round,
        dropped=tuple(engine.dropped),
        steps=counts.steps,
        events=counts.events,
        round_count=counts.rounds,
        quiet_rounds=counts.quiet,
        stage_calls=engine.arbiter.calls,
        timings=engine.timings.seconds() if engine.timings is not None else {},
    )


def _app_states(engine: "Engine", states: Words) -> Words:
    """An app is finished when all its jobs have ended and at least one of them finished."""
    apps: Ints = engine.workload.jobs.app
    finish: Reals = reals(engine.app_finish)
    rank = {FINISHED: 0, STOPPED: 0, REJECTED: 1, FAILED: 2, AWAITED: 3, PAUSED: 4, WAITING: 5, RUNNING: 6}
    worst = np.zeros(finish.size, dtype=np.int64)
    np.maximum.at(worst, apps, [rank[state] for state in states.tolist()])
    name = [FINISHED, REJECTED, FAILED, AWAITED, PAUSED, WAITING, RUNNING]
    made = [
        FINISHED if not math.isnan(ended) else name[code]
        for ended, code in zip(finish.tolist(), worst.tolist(), strict=True)
    ]
    return words(made)
