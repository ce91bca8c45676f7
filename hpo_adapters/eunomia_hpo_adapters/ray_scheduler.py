"""A scheduler of Ray Tune that wraps the user's, and pauses and resumes trials as an app loses and gains slots.

It never blocks: it reads the slots from a view that a thread updates, and sends no requests to Ray. A trial on a slot
that is to be given up is paused at its next report, and resumed before other trials run, once there is room for it.
Without slots, no trial starts. Needs the extra ``ray-tune``.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ray.tune import PlacementGroupFactory
from ray.tune.execution.placement_groups import resource_dict_to_pg_factory
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from eunomia_hpo_adapters.ray_slots import LeaseView

Sizes = Callable[[int], Mapping[str, float] | PlacementGroupFactory]


class Leases(Protocol):
    """The part of ``RayLeases`` that a scheduler uses."""

    cpus: float
    gpus: float

    @property
    def view(self) -> LeaseView:
        """Return the slots as last seen, without blocking."""
        ...


class LeaseScheduler(TrialScheduler):
    """Wraps a scheduler of Ray Tune.

    Args:
        leases: the search's slots.
        scheduler: the wrapped scheduler; None: Ray Tune's default, first in, first out.
        sizes: function from a number of slots to a trial's resources, such as ``{"cpu": 2}``. The slots are then
            divided evenly among the trials that have not ended: a trial whose share has changed is paused at its next
            report, and resumed with other resources. None: trials keep their resources.
    """

    def __init__(self, leases: Leases, scheduler: TrialScheduler | None = None, *, sizes: Sizes | None = None) -> None:
        super().__init__()
        self._leases = leases
        self._inner = scheduler or FIFOScheduler()
        self._sizes = sizes
        self._paused: set[str] = set()
        """Ids of trials that were paused by this scheduler, not by the wrapped one."""

    # -- reports

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        """Return the wrapped scheduler's decision, or PAUSE if the trial must leave its slot or change its size."""
        self._paused.discard(trial.trial_id)
        decision = str(self._inner.on_trial_result(tune_controller, trial, result))
        if decision != TrialScheduler.CONTINUE:
            return decision
        view = self._leases.view
        if self._leaves(view, result) or self._changes(view, tune_controller, trial):
            self._paused.add(trial.trial_id)
            return str(TrialScheduler.PAUSE)
        return decision

    @staticmethod
    def _leaves(view: LeaseView, result: Mapping[str, Any]) -> bool:
        """Return whether the reporting trial runs on a slot that is to be given up."""
        return (result.get("hostname"), result.get("pid")) in view.leaving

    def _changes(self, view: LeaseView, controller: TuneController, trial: Trial) -> bool:
        """Return whether a running trial's share of the slots has changed."""
        wanted = self._share(view, controller)
        return wanted is not None and bool(view.up) and wanted != trial.placement_group_factory

    def _share(self, view: LeaseView, controller: TuneController) -> PlacementGroupFactory | None:
        """Return the resources of one trial's share of the slots; None: trials keep their resources."""
        if self._sizes is None:
            return None
        live = sum(not trial.is_finished() for trial in controller.get_trials())
        given = self._sizes(max(view.up // max(live, 1), 1))
        return given if isinstance(given, PlacementGroupFactory) else resource_dict_to_pg_factory(dict(given))

    # -- choice of trials

    def choose_trial_to_run(self, tune_controller: TuneController) -> Trial | None:
        """Return a trial paused here if there is room for it; if none is paused, the wrapped scheduler's choice."""
        view = self._leases.view
        if not view.up:
            return None
        trials = tune_controller.get_trials()
        waiting = [trial for trial in trials if trial.status == Trial.PAUSED and trial.trial_id in self._paused]
        share = self._share(view, tune_controller) if waiting else None
        for trial in waiting:
            if share is not None and share != trial.placement_group_factory:
                trial.update_resources(share)
            if self._has_room(view, trials, trial):
                return trial
        return None if waiting else self._inner.choose_trial_to_run(tune_controller)

    def _has_room(self, view: LeaseView, trials: list[Trial], trial: Trial) -> bool:
        """Return whether the slots have room for a trial in addition to those that run or were already chosen here."""
        used = [other for other in trials if other.status == Trial.RUNNING or self._is_chosen(other)]
        for name, each in (("CPU", self._leases.cpus), ("GPU", self._leases.gpus)):
            taken = sum(_needs(other, name) for other in used)
            if taken + _needs(trial, name) > view.up * each + 1e-9:
                return False
        return True

    def _is_chosen(self, trial: Trial) -> bool:
        return bool(trial.status == Trial.PENDING and trial.trial_id in self._paused)

    # -- passed on to the wrapped scheduler

    @property
    def metric(self) -> Any:
        """See ``TrialScheduler``."""
        return self._inner.metric

    @property
    def supports_buffered_results(self) -> bool:
        """See ``TrialScheduler``: False, since a trial that must leave is paused at its next report."""
        return False

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """See ``TrialScheduler``."""
        return bool(self._inner.set_search_properties(metric, mode, **spec))

    def on_trial_add(self, tune_controller: TuneController, trial: Trial) -> None:
        """See ``TrialScheduler``."""
        self._inner.on_trial_add(tune_controller, trial)

    def on_trial_error(self, tune_controller: TuneController, trial: Trial) -> None:
        """See ``TrialScheduler``."""
        self._paused.discard(trial.trial_id)
        self._inner.on_trial_error(tune_controller, trial)

    def on_trial_complete(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> None:
        """See ``TrialScheduler``."""
        self._paused.discard(trial.trial_id)
        self._inner.on_trial_complete(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: TuneController, trial: Trial) -> None:
        """See ``TrialScheduler``."""
        self._paused.discard(trial.trial_id)
        self._inner.on_trial_remove(tune_controller, trial)

    def debug_string(self) -> str:
        """See ``TrialScheduler``."""
        return f"{self._leases.view.up} slots, {len(self._paused)} trials wait for one. {self._inner.debug_string()}"

    def save(self, checkpoint_path: str) -> None:
        """See ``TrialScheduler``; after a restore, the wrapped scheduler also chooses the trials paused here."""
        self._inner.save(checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        """See ``TrialScheduler``."""
        self._inner.restore(checkpoint_path)


def _needs(trial: Trial, name: str) -> float:
    return float(trial.placement_group_factory.required_resources.get(name, 0.0))
