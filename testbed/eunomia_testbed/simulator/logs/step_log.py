"""Counts and logs every step of a run, passes it to observers, and ends the run at a plugin's fault."""

from collections.abc import Callable, Sequence

from eunomia.contract.decisions import Decision, RecordTable
from eunomia.contract.event_order import count_of
from eunomia.contract.events import Event
from eunomia_testbed.simulator.faults import PluginFailedError
from eunomia_testbed.simulator.livelock_guard import LivelockGuard
from eunomia_testbed.simulator.logs.observers import Observers
from eunomia_testbed.simulator.logs.run import Unfit
from eunomia_testbed.simulator.logs.timing import Timings
from eunomia_testbed.simulator.simulation_state import SimulationState

Before = tuple[int, int, int, int]
"""The state before a decision: number of free GPUs, running and waiting jobs, and stage calls so far."""


class StepLog:
    """The logs and counts of a run.

    Args:
        sim: the state of the simulation.
        unfit: the jobs that cannot run on the cluster.
        timings: CPU times of the arbiter; None: not measured.
        observers: called after every step, and at the end.
    """

    def __init__(self, sim: SimulationState, unfit: list[Unfit], timings: Timings | None, observers: Observers) -> None:
        self._sim, self._logs, self.timings = sim, sim.logs, timings
        self.steps = self.events = self.rounds = self.quiet = 0
        self.records: dict[str, list[tuple[float, int, RecordTable]]] = {}
        """Records of each plugin, with their time and round."""
        self.faults: list[str] = []
        self.fallback_round: int | None = None
        """The first round that the fallback decided; None: the profile has decided all rounds."""
        self.dropped: list[Unfit] = unfit
        self.guard = LivelockGuard(sim.profile.name)
        self._observers, self._of_profile = observers, sim.profile.observers()

    def add(self, decision: Decision, events: Sequence[Event], before: Before) -> None:
        """Count and log a step, and pass it to the observers.

        Args:
            decision: the arbiter's decision.
            events: the events of the step.
            before: the state before the decision.

        Raises:
            PluginFailedError: a plugin failed, and faults are not tolerated.
            EunomiaError: the policy makes no progress.
        """
        sim, rounds, queue = self._sim, self._logs.rounds, self._logs.queue
        jobs, now = sim.jobs, sim.now
        self.steps += 1
        self.events += count_of(events)
        if decision.causes:
            free, running, waiting, calls = before
            quiet = sim.arbiter.calls == calls
            self.rounds += 1
            self.quiet += quiet
            if rounds is not None:
                rounds.add(decision, now, free, running, waiting, quiet=quiet)
            if decision.waiting or decision.records or self._of_profile:
                self._add_details(decision)
        if decision.faults:
            self._fault(decision)
        if queue is not None:
            queue.add(now, jobs.waiting, jobs.waiting_gpus, sim.gpus.busy)
        self.guard.watch(now, decision, events, jobs.moves)
        for observer in self._observers:
            observer.stepped(sim, decision)

    def end(self) -> None:
        """Notify the observers of the end of the run."""
        for observer in self._observers:
            observer.ended(self._sim)

    def _add_details(self, decision: Decision) -> None:
        """Log the verdicts and records of a round, and pass the round to the profile's observers."""
        sim, logs = self._sim, self._logs
        if decision.waiting and logs.waits is not None:
            logs.waits.hear(decision, sim.rows.jobs, sim.now)
        if decision.records and sim.options.keep.records:
            for record in decision.records:
                self.records.setdefault(record.plugin, []).append((sim.now, decision.round, record))
        for name, observe in self._of_profile:
            self._observe(name, observe, decision)

    def _observe(self, name: str, observe: Callable[[Decision], None], decision: Decision) -> None:
        try:
            with self._sim.notes.asking(name, "observer"):
                observe(decision)
        except Exception as error:
            self.faults.append(f"round {decision.round}: observer {name}: {type(error).__name__}: {error}")
            if self._sim.arbiter.strict:
                raise

    def _fault(self, decision: Decision) -> None:
        sim = self._sim
        for fault in decision.faults:
            if fault.stage is not None and not sim.options.tolerate_faults:
                raise PluginFailedError(fault, f"{sim.profile.name}, seed {sim.seed}, round {decision.round}")
            source = f"{fault.plugin} ({fault.stage.value})" if fault.stage is not None else "an event"
            self.faults.append(f"round {decision.round}: {source}: {fault.what}")

        if self.fallback_round is None and sim.arbiter.view.fallen_back:
            self.fallback_round = decision.round + 1
