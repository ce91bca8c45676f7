"""What the scheduler of Ray Tune decides on views of slots; Ray is imported, and no cluster is started."""

import copy
from dataclasses import dataclass, field
from typing import Any

import pytest

from eunomia_hpo_adapters.ray_slots import LeaseView

pytest.importorskip(
    "ray.tune", exc_type=ImportError, reason="Ray Tune is not installed: pip install 'eunomia[ray-tune]'"
)
from ray.tune import PlacementGroupFactory
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from eunomia_hpo_adapters.ray_scheduler import LeaseScheduler

pytestmark = pytest.mark.slow  # the import of Ray Tune takes seconds


@dataclass
class Slots:
    """Leases whose view a test sets."""

    view: LeaseView = field(default_factory=LeaseView)
    cpus: float = 1.0
    gpus: float = 0.0


@dataclass
class Controller:
    """The part of Ray Tune's controller that schedulers read."""

    trials: list[Trial]

    def get_trials(self) -> list[Trial]:
        return self.trials


class Stops(FIFOScheduler):
    """The user's scheduler: it stops a trial at loss 9, and pauses it at loss 8."""

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        return {9: TrialScheduler.STOP, 8: TrialScheduler.PAUSE}.get(result["loss"], TrialScheduler.CONTINUE)


class Scene:
    """Three trials, and the scheduler under test."""

    def __init__(self, **more: Any) -> None:
        self.slots = Slots(LeaseView(up=3))
        self.scheduler = LeaseScheduler(self.slots, Stops(), **more)
        one = PlacementGroupFactory([{"CPU": 1}])
        self.trials = [Trial("t", stub=True) for _ in range(3)]
        for trial in self.trials:
            trial.placement_group_factory = one
        self.controller = Controller(self.trials)

    def report(self, number: int, loss: int = 1, pid: int = 100) -> str:
        trial = self.trials[number]
        trial.status = Trial.RUNNING
        decision = self.scheduler.on_trial_result(self.controller, trial, {"loss": loss, "hostname": "a", "pid": pid})
        if decision == TrialScheduler.PAUSE:
            trial.status = Trial.PAUSED
        return decision

    def chosen(self) -> int | None:
        trial = self.scheduler.choose_trial_to_run(self.controller)
        return None if trial is None else self.trials.index(trial)


def test_a_trial_on_a_slot_that_leaves_is_paused_and_runs_again_when_there_is_room() -> None:
    scene = Scene()
    assert scene.report(0) == TrialScheduler.CONTINUE
    scene.slots.view = LeaseView(up=2, leaving=frozenset({("a", 7), ("b", 100)}))
    assert scene.report(1, pid=100) == TrialScheduler.CONTINUE, "that process is on another host"
    assert scene.report(2, pid=7) == TrialScheduler.PAUSE
    assert scene.chosen() is None, "two slots, and two trials run"
    assert "2 slots, 1 trials wait" in scene.scheduler.debug_string()
    scene.slots.view = LeaseView(up=3)
    assert scene.chosen() == scene.chosen() == 2, "asked twice, it answers the same"
    scene.trials[2].status = Trial.PENDING  # as Ray Tune does with what was chosen
    assert scene.report(2) == TrialScheduler.CONTINUE
    assert "0 trials wait" in scene.scheduler.debug_string()


def test_without_a_slot_all_trials_are_paused_and_none_is_chosen() -> None:
    scene = Scene()
    scene.slots.view = LeaseView(leaving=frozenset({("a", 1), ("a", 2)}))
    assert [scene.report(0, pid=1), scene.report(1, pid=2)] == [TrialScheduler.PAUSE] * 2
    assert scene.chosen() is None, "also not the trial that has not begun"
    scene.slots.view = LeaseView(up=1)
    assert scene.chosen() == 0, "what was paused goes before what has not begun"
    scene.trials[0].status = Trial.PENDING
    assert scene.chosen() is None, "there is no room for another"


def test_the_users_scheduler_has_the_first_word() -> None:
    scene = Scene()
    scene.slots.view = LeaseView(up=1, leaving=frozenset({("a", 7)}))
    assert scene.report(0, loss=9, pid=7) == TrialScheduler.STOP
    assert scene.report(1, loss=8, pid=7) == TrialScheduler.PAUSE
    assert "0 trials wait" in scene.scheduler.debug_string(), "it was not paused for its slot"
    assert scene.chosen() == 2, "so the user's scheduler says when it goes on"


def test_a_trial_that_ends_while_it_waits_is_forgotten() -> None:
    scene = Scene()
    scene.slots.view = LeaseView(leaving=frozenset({("a", 7)}))
    for number, end in enumerate((scene.scheduler.on_trial_remove, scene.scheduler.on_trial_error)):
        scene.report(number, pid=7)
        end(scene.controller, scene.trials[number])
    assert "0 trials wait" in scene.scheduler.debug_string()


def test_the_slots_are_divided_among_trials_whose_sizes_may_change() -> None:
    scene = Scene(sizes=lambda slots: {"cpu": slots})
    assert scene.report(0) == scene.report(1) == TrialScheduler.CONTINUE
    scene.trials[1].status = scene.trials[2].status = Trial.TERMINATED
    assert scene.report(0) == TrialScheduler.PAUSE, "it could have three slots"
    assert scene.chosen() == 0
    assert scene.trials[0].placement_group_factory.required_resources["CPU"] == 3
    assert scene.report(0) == TrialScheduler.CONTINUE
    scene.slots.view = LeaseView()
    assert scene.report(0) == TrialScheduler.CONTINUE, "no view of any slot: its node alone says that it leaves"


def test_gpus_are_counted_too() -> None:
    scene = Scene()
    scene.slots.gpus = 1.0
    for trial in scene.trials:
        trial.placement_group_factory = PlacementGroupFactory([{"GPU": 1}])
    scene.slots.view = LeaseView(up=1, leaving=frozenset({("a", 7)}))
    scene.report(0)
    scene.report(1, pid=7)
    assert scene.chosen() is None
    scene.trials[0].status = Trial.TERMINATED
    assert scene.chosen() == 1


def test_a_copy_of_the_scheduler_decides_alone() -> None:
    scene = Scene()
    scene.slots.view = LeaseView(up=1, leaving=frozenset({("a", 7)}))
    again = copy.deepcopy(scene.scheduler)
    scene.report(0, pid=7)
    assert "1 trials wait" in scene.scheduler.debug_string() and "0 trials wait" in again.debug_string()
    assert scene.scheduler.set_search_properties("loss", "min") and scene.scheduler.metric == "loss"
