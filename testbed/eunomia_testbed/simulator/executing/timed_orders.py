"""Carries out orders that take time, with delays, saves, releases, starts, and lost answers.

The GPUs' fences decide which order is valid: an order older than the newest one at a GPU has no effect there.
"""

from eunomia.contract.decisions import Charge, Decision, Transition, TransitionKind
from eunomia.model.leases import LeaseState
from eunomia.units import NONE, Epoch, LeaseId, Seconds
from eunomia_testbed.simulator.executing.answers import Answers
from eunomia_testbed.simulator.executing.drawn_delays import DrawnDelays
from eunomia_testbed.simulator.executing.gpu_amounts import GpuAmounts
from eunomia_testbed.simulator.executing.gpu_table import NO_HOLDER
from eunomia_testbed.simulator.executing.job_runs import JobRuns
from eunomia_testbed.simulator.executing.live_shrinks import LiveShrinks
from eunomia_testbed.simulator.simulation_state import SimulationState

_RETUNE, _PROBE = TransitionKind.RETUNE, TransitionKind.PROBE
_PROCESS = (Charge.START, Charge.MIGRATE)
_RESIZE = (Charge.JOIN, Charge.PAUSE)


class TimedOrders:
    """An executor of orders that take time: it moves processes off and onto GPUs.

    Args:
        sim: the state of the simulation.
        runs: starts and stops jobs.
        answers: sends answers to the arbiter.
        delays: delays of orders and costs.
        amounts: the CPUs and memory with which jobs run.

    Attributes:
        awaiting: the kind of the order that starts each lease that waits for its GPUs.
    """

    def __init__(
        self, sim: SimulationState, runs: JobRuns, answers: Answers, delays: DrawnDelays, amounts: GpuAmounts
    ) -> None:
        self._sim, self._gpus, self._costs = sim, sim.gpus, sim.options.costs
        self._view = sim.arbiter.view
        self._runs, self._answers, self._delays, self._amounts = runs, answers, delays, amounts
        self._restarts = sim.options.resizes == "restart"
        self._shrinks = LiveShrinks(sim, runs, delays) if sim.options.resizes == "live" else None
        self.awaiting: dict[int, TransitionKind] = {}
        self._handed: dict[int, int] = {}
        """The epoch of the last start of each lease that was sent to its machines."""

    def carry_out(self, decision: Decision, now: Seconds) -> None:
        """Order processes to leave, and start the leases that are ready."""
        awaiting = self.awaiting
        for order in decision.orders:
            if order.listed["leaving"]:
                self._send_leave(order, now, "probed" if order.kind is _PROBE else "released")
            if order.listed["gpus"] and order.kind is not _RETUNE:
                awaiting.setdefault(order.lease, order.kind)
        for order in decision.transitions:
            if order.listed["leaving"]:
                self._send_leave(order, now, "expired" if order.ends_at <= now else "preempted")
            self._runs.probes.note(order)
        if self._view.amounts.tuning:
            self._amounts.hand_out(now)
        for order in decision.transitions:
            if order.listed["gpus"] and order.kind is not _RETUNE:
                awaiting[order.lease] = order.kind
        if awaiting:
            self.hand_out(now)

    # --- leaving ---------------------------------------------------------------------------------------------------

    def _send_leave(self, order: Transition, now: Seconds, why: str) -> None:
        """Send the order to leave GPUs to their machines."""
        if self._delays.orders_are_late:
            then = now + self._delays.order_seconds()
            self._sim.agenda.call(then, lambda then: self.leave(order, then, why))
        else:
            self.leave(order, now, why)

    def leave(self, order: Transition, now: Seconds, why: str) -> None:
        """Stop the processes on the GPUs that an order takes away; the GPUs become free after the release time."""
        gpus, sim, runs = order.listed["leaving"], self._sim, self._runs
        self._gpus.raise_fence(gpus, order.fence)
        stopped = self._stopped_by(order, gpus)
        seconds = 0.0
        for job in stopped:
            seconds = max(seconds, self._stop_for(order, job, now))
        if order.job is not None and not stopped:
            if self._shrinks is not None:
                self._shrinks.forget(sim.rows.jobs[order.job])
            seconds = max(0.0, runs.saved_at[sim.rows.jobs[order.job]] - now)
        if order.job is None:
            sim.leases.lose(sim.rows.apps[order.app], order.lease, gpus, self._put_on(order, gpus), now)
        seconds += self._delays.cost_seconds(self._costs.release)
        if seconds > 0.0:
            sim.agenda.call(now + seconds, lambda then: self._vacate(order, gpus, then, why))
        else:
            self._vacate(order, gpus, now, why)

    def _stop_for(self, order: Transition, job: int, now: Seconds) -> float:
        """Stop a job that loses GPUs; return the seconds until they are free, apart from their release."""
        shrinks = self._shrinks
        if shrinks is None:
            return self._runs.save(job, now)
        shrinks.forget(job)
        return shrinks.shrink(order, job, now) if shrinks.may(order, job) else self._runs.save(job, now)

    def _stopped_by(self, order: Transition, gpus: list[int]) -> list[int]:
        """Return the running jobs from which an order takes GPUs."""
        on = self._sim.work.on
        if order.job is not None:
            job = self._sim.rows.jobs[order.job]
            return [job] if on[job] and self._runs.epoch[job] < order.fence else []
        return [job for job in self._put_on(order, gpus) if on[job]]

    def _put_on(self, order: Transition, gpus: list[int]) -> list[int]:
        """Return the jobs that an app's master assigned to GPUs of the lease, including those that are starting."""
        return sorted({self._gpus.job_on[gpu] for gpu in gpus if self._gpus.holder[gpu] == order.lease} - {NO_HOLDER})

    def _vacate(self, order: Transition, gpus: list[int], now: Seconds, why: str) -> None:
        sim, runs = self._sim, self._runs
        job = NO_HOLDER if order.job is None else sim.rows.jobs[order.job]
        self._gpus.vacate(order.lease, gpus, now, why)
        if job != NO_HOLDER and not order.listed["gpus"] and not sim.work.on[job] and runs.epoch[job] <= order.fence:
            sim.jobs.left_gpus(job, now)  # unless it has begun elsewhere meanwhile
        self._answers.released(order, tuple(gpus), now)

    # --- beginning -------------------------------------------------------------------------------------------------

    def hand_out(self, now: Seconds) -> None:
        """Start the leases that the state shows to be ready, as the live service does."""
        view = self._view
        for number in list(self.awaiting):
            lease = view.lease(number)
            if lease is None or lease.state in (LeaseState.ACTIVE, LeaseState.LEAVING):
                del self.awaiting[number]
            elif lease.state is LeaseState.ORDERED and self._handed.get(number) != lease.epoch:
                self._handed[number] = lease.epoch
                kind = self.awaiting[number]
                job = NO_HOLDER if lease.job == NONE else self._sim.rows.jobs[view.job_id(lease.job)]
                self._send_begin(LeaseId(number), Epoch(lease.epoch), job, tuple(lease.gpus.tolist()), kind, now)

    def _send_begin(
        self, lease: LeaseId, epoch: Epoch, job: int, gpus: tuple[int, ...], kind: TransitionKind, now: Seconds
    ) -> None:
        if self._delays.orders_are_late:
            then = now + self._delays.order_seconds()
            self._sim.agenda.call(then, lambda then: self.begin(lease, epoch, job, gpus, kind, then))
        else:
            self.begin(lease, epoch, job, gpus, kind, now)

    def begin(
        self, lease: LeaseId, epoch: Epoch, job: int, gpus: tuple[int, ...], kind: TransitionKind, now: Seconds
    ) -> None:
        """Start a job, unless a newer order has reached one of its GPUs; an app starts on the GPUs without one."""
        fence = self._gpus.fence
        left = tuple([gpu for gpu in gpus if fence[gpu] <= epoch])
        if not left or (job != NO_HOLDER and len(left) < len(gpus)):
            return
        app = self._sim.rows.app_of[job] if job != NO_HOLDER else self._app_of_lease(lease)
        if app == NO_HOLDER:
            return
        self._gpus.occupy(left, lease, epoch, app, job, now)
        if job == NO_HOLDER:
            self._answers.started(lease, epoch, now)
            self._sim.leases.started(app, lease, left)
            return
        self._runs.epoch[job] = epoch
        self._sim.jobs.got_gpus(job, now)
        self._get_ready(lease, epoch, job, left, kind, now)

    def _app_of_lease(self, lease: int) -> int:
        held = self._view.lease(lease)
        return NO_HOLDER if held is None else self._sim.rows.apps[self._view.app_id(held.app)]

    def _get_ready(
        self, lease: LeaseId, epoch: Epoch, job: int, gpus: tuple[int, ...], kind: TransitionKind, now: Seconds
    ) -> None:
        """Schedule the start of the job's steps for the end of the time that the change costs."""
        runs, costs, takes = self._runs, self._costs, self._delays.cost_seconds
        on, live, measures = self._sim.work.on[job], self._shrinks is not None, kind is _PROBE
        if measures:
            kind = runs.probes.change(lease, epoch, job)
        charge, keeps = kind.effect.charge, kind.effect.keeps_running
        if self._restarts and charge in _RESIZE:
            charge, keeps = Charge.START, False
        keeps |= live and charge is not Charge.START
        runs_on = bool(on) and keeps and set(on) <= set(gpus)
        if on and not runs_on:  # this order has overtaken the order to leave
            runs.save(job, now)
        if runs_on:
            has_shrunk = live and not measures and len(on) == len(gpus)
            ready = now + (takes(costs.join) if charge in (Charge.JOIN, Charge.MIGRATE) and not has_shrunk else 0.0)
            pause = 0.0 if charge is Charge.NOTHING or has_shrunk else takes(costs.pause)
            if pause > 0.0:
                self._sim.agenda.call(ready, lambda then: self._pause(job, epoch, then))
            at = ready + pause
        elif charge in _PROCESS or not runs.has_run[job]:
            at = max(now, runs.saved_at[job]) + runs.start_seconds(job, moves=charge is Charge.MIGRATE)
        else:
            pause = 0.0 if charge is Charge.NOTHING else takes(costs.pause)
            at = max(now, runs.saved_at[job]) + pause
        if at > now:
            self._sim.agenda.call(at, lambda then: self._begin_steps(lease, epoch, job, gpus, kind, then))
        else:
            self._begin_steps(lease, epoch, job, gpus, kind, now)

    def _pause(self, job: int, epoch: int, now: Seconds) -> None:
        if self._runs.epoch[job] == epoch and self._sim.work.on[job]:
            self._sim.work.stop(job, now)

    def _begin_steps(
        self, lease: LeaseId, epoch: Epoch, job: int, gpus: tuple[int, ...], kind: TransitionKind, now: Seconds
    ) -> None:
        """Start a job's steps, unless a newer order has reached one of its GPUs in the meantime."""
        holder, fence, runs = self._gpus.holder, self._gpus.fence, self._runs
        for gpu in gpus:
            if holder[gpu] != lease or fence[gpu] != epoch:
                return
        if runs.epoch[job] == epoch:
            probe = runs.begin(lease, epoch, job, gpus, kind, now)
            self._answers.started(lease, epoch, now)
            if probe is None:
                runs.report_start(job, now)
            else:
                runs.probes.measure(job, probe, now)
