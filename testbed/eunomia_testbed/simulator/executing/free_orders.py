"""Carries out decisions whose orders take effect at once: no saving or release takes time, and nothing is delayed."""

from eunomia.contract.decisions import Decision, Transition, TransitionKind
from eunomia.contract.events import Released
from eunomia.units import Seconds
from eunomia_testbed.simulator.executing.answers import Answers
from eunomia_testbed.simulator.executing.gpu_amounts import GpuAmounts
from eunomia_testbed.simulator.executing.gpu_table import NO_HOLDER
from eunomia_testbed.simulator.executing.job_runs import JobRuns
from eunomia_testbed.simulator.executing.timed_orders import TimedOrders
from eunomia_testbed.simulator.simulation_state import SimulationState

_RETUNE, _PROBE = TransitionKind.RETUNE, TransitionKind.PROBE


class FreeOrders:
    """An executor of orders that take effect at once: it stops and starts jobs at the moment of their orders.

    Whatever takes time is left to ``TimedOrders``: starts with a cost, measurements, leases held by apps, and leases
    that wait for their GPUs.

    Args:
        sim: the state of the simulation.
        runs: the runs of jobs.
        answers: sends answers to the arbiter.
        timed: carries out whatever takes time.
        amounts: the CPUs and memory with which jobs run.
    """

    def __init__(
        self, sim: SimulationState, runs: JobRuns, answers: Answers, timed: TimedOrders, amounts: GpuAmounts
    ) -> None:
        costs = sim.options.costs
        self._sim, self._runs, self._answers, self._timed, self._amounts = sim, runs, answers, timed, amounts
        self._of_leases = sim.arbiter.view.amounts
        self._amounts_known = self._of_leases.are_known
        self._starts_at_once = not any((costs.start, costs.restore, costs.migrate, costs.join, costs.pause))
        self._follows_up = sim.reporter.follows_up
        self._tight: tuple[float, frozenset[int]] = (-1.0, frozenset())
        """Time of the last step, and the leases that still waited for CPUs or memory after it."""

    def carry_out(self, decision: Decision, now: Seconds) -> None:
        """Stop the jobs that leave GPUs, then start the leases whose GPUs are free."""
        sim, timed, runs, awaiting = self._sim, self._timed, self._runs, self._timed.awaiting
        for order in decision.orders:
            if order.listed["leaving"]:
                self._leave(order, now, "probed" if order.kind is _PROBE else "released")
            if order.listed["gpus"] and order.kind is not _RETUNE:
                awaiting.setdefault(order.lease, order.kind)
        for order in decision.transitions:
            if order.listed["leaving"]:
                self._leave(order, now, "expired" if order.ends_at <= now else "preempted")
            if order.probe is not None:
                runs.probes.note(order)
        known = self._amounts_known
        if known and self._of_leases.tuning:
            self._amounts.hand_out(now)
        is_plain = self._starts_at_once and not (runs.probes.ordered or runs.probes.leased)
        table, rows, holder, app_of = sim.gpus, sim.rows.jobs, sim.gpus.holder, sim.rows.app_of
        for order in decision.transitions:
            if not order.listed["gpus"] or order.kind is _RETUNE:
                continue
            lease, epoch, kind = order.lease, order.epoch, order.kind
            # A lease begins at once where no other holds its GPUs; else when the arbiter knows that they are free.
            if order.listed["after"] and [1 for gpu in order.listed["after"] if holder[gpu] not in (NO_HOLDER, lease)]:
                awaiting[lease] = kind
                continue
            if awaiting:
                awaiting.pop(lease, None)
            gpus, job = tuple(order.listed["gpus"]), NO_HOLDER if order.job is None else rows[order.job]
            if job == NO_HOLDER or not is_plain:
                timed.begin(lease, epoch, job, gpus, kind, now)
            elif table.occupy(gpus, lease, epoch, app_of[job], job, now):
                runs.epoch[job] = epoch
                sim.jobs.got_gpus(job, now)
                runs.begin(lease, epoch, job, gpus, kind, now)
                sim.out.append(self._answers.start_of(lease, epoch, now))
                if self._follows_up:
                    runs.report_start(job, now)
        if awaiting:
            timed.hand_out(now)
        if known and (self._of_leases.tight or self._tight[1]):
            self._look_again(decision, now)

    def _leave(self, order: Transition, now: Seconds, why: str) -> None:
        """Remove a job from GPUs of its lease; for a lease that an app holds, ``TimedOrders`` does so."""
        if order.job is None:
            self._timed.leave(order, now, why)
            return
        sim, runs, fence = self._sim, self._runs, order.fence
        gpus, job, work = tuple(order.listed["leaving"]), sim.rows.jobs[order.job], sim.work
        if work.on[job] and runs.epoch[job] < fence:
            work.stop(job, now)
            runs.has_run[job] = True
        sim.gpus.vacate(order.lease, gpus, now, why, fence=fence)
        if not order.listed["gpus"] and not work.on[job]:
            sim.jobs.left_gpus(job, now)
        sim.out.append(Released(lease=order.lease, epoch=fence, gpus=gpus, at=now))
        if not sim.urgent:
            sim.urgent = self._answers.need_a_round(gpus)

    def _look_again(self, decision: Decision, now: Seconds) -> None:
        """Request another step at this time, so that leases that wait for CPUs or memory get those just released.

        If the last step at this time changed nothing, they wait for a later release, such as by a probe.
        """
        seen = (now, self._of_leases.tight)
        if seen[1] and (seen != self._tight or decision.transitions or decision.orders):
            self._sim.urgent = True
        self._tight = seen
