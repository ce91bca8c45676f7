"""Histories of clusters that change have no findings; ``make histories`` runs ten thousand."""

import pytest
from hypothesis import HealthCheck, given, settings
from tests.core import test_arbiter_invariants

from chaos.histories.changes import changing_scenarios
from chaos.histories.held import POLICIES, hold
from eunomia.contract.events import AppArrived, Event, JobAdded, MachineJoined, MachineLeft, MachineLost
from eunomia.testing.drive import Delays
from eunomia.testing.strategies import Scenario
from eunomia.units import AppId, JobId, UserId

ONE_JOB: tuple[tuple[float, Event], ...] = (
    (0.0, AppArrived(app=AppId("a"), user=UserId("ana"), divides=False)),
    (0.0, JobAdded(job=JobId("a/0"), app=AppId("a"), least=1, most=1)),
)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenario=changing_scenarios())
def test_a_history_with_joins_and_leaves_has_no_findings(policy: str, scenario: Scenario) -> None:
    hold(test_arbiter_invariants, scenario, policy)


@pytest.mark.parametrize(
    "changes",
    [
        ((5.0, MachineLeft(machine="n1")), (5.0, MachineLeft(machine="n0"))),
        (
            (5.0, MachineLeft(machine="n0")),
            (5.0, MachineJoined(machine="n0", gpu_type="A100", gpus=2)),
            (6.0, MachineLost(machine="n0", gpus=(0,))),
        ),
    ],
    ids=["all machines leave in one step, and the arbiter keeps the last by name", "slots of a former machine"],
)
def test_the_checker_refuses_the_same_events_as_the_arbiter(changes: tuple[tuple[float, Event], ...]) -> None:
    work = ((JobId("a/0"), 20.0),)
    seen = hold(test_arbiter_invariants, Scenario((2, 2), ONE_JOB + changes, work, Delays(), 1), "las, preemptive")
    assert seen["refused"] == 1
