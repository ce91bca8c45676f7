"""Rounds in which apps get no slots of some nodes: random clusters, workloads and policies."""

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Decision
from eunomia.contract.stages import Stages
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia.round.invariants import check_state
from eunomia.testing.drive import Drive
from eunomia.testing.strategies import Scenario, scenarios
from eunomia.units import NONE, AppId, Ints
from eunomia_appmaster.service.left_out_rounds import without_slots_left_out

_spec = importlib.util.spec_from_file_location(
    "arbiter_invariants", Path(__file__).parent.parent / "core" / "test_arbiter_invariants.py"
)
played_by = sys.modules.setdefault("arbiter_invariants", importlib.util.module_from_spec(_spec))
if not hasattr(played_by, "POLICIES"):
    _spec.loader.exec_module(played_by)

PRESETS = ("default", "srtf", "las", "easy", "max_min", "max_min_fairness", "gandiva", "themis", "synergy", "afs")


class Watched:
    """An arbiter with apps that get no slots of some GPUs, and a watch on what they get."""

    def __init__(self, cluster: Cluster, stages: Stages, barred: Mapping[str, tuple[int, ...]], seed: int = 0) -> None:
        self.names = barred
        chosen, fallback = (
            without_slots_left_out(one, self.barred) for one in (stages, Profile.fallback().stages(cluster))
        )
        self.arbiter = Arbiter(cluster, chosen, fallback, seed=seed)
        self.arbiter.strict = True
        self.got: dict[str, int] = {}
        """GPUs that were granted, by app."""

    def barred(self) -> Mapping[int, Ints]:
        view = self.arbiter.view
        rows = {view.app_row(AppId(app)): np.array(gpus, np.int64) for app, gpus in self.names.items() if gpus}
        return {row: gpus for row, gpus in rows.items() if row != NONE}

    def watch(self, _: Drive, decision: Decision) -> None:
        check_state(self.arbiter.state)
        assert not [fault for fault in decision.faults if fault.stage is not None], decision.faults
        for order in decision.transitions:
            app = str(order.app)
            wrong = set(order.gpus.tolist()) & set(self.names.get(app, ()))
            assert not wrong, f"{app} gets {wrong}: {order}"
            self.got[app] = self.got.get(app, 0) + order.gpus.size


def run(scenario: Scenario, stages: Stages, *, every: bool) -> None:
    """Run a scenario in which apps get no slots of a machine each; ``every``: whether the others' jobs must end."""
    cluster = scenario.cluster
    barred = {f"app{number}": tuple(cluster.gpus_on(number % len(cluster.machines))) for number in (0, 1, 4)}
    watched = Watched(cluster, stages, barred, seed=scenario.seed)
    drive = Drive(
        watched.arbiter, work=dict(scenario.work), delays=scenario.delays, seed=scenario.seed, watch=watched.watch
    )
    outcome = drive.run(scenario.script, until=4000.0)
    if every:
        others = {job for job, _ in scenario.work if job.partition("/")[0] not in barred}
        assert others <= set(outcome.finished)


@pytest.mark.parametrize("policy", ["chaos of jobs", "chaos of apps", "themis, bids"])
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenario=scenarios())
def test_under_any_policy_no_app_gets_a_gpu_on_a_node_that_it_excludes(policy: str, scenario: Scenario) -> None:
    run(scenario, played_by.POLICIES[policy](), every=not policy.startswith("chaos"))


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenario=scenarios())
def test_built_in_policies_give_gpus_that_an_app_excludes_to_other_apps(preset: str, scenario: Scenario) -> None:
    run(
        scenario, Profile.load(preset).stages(), every=preset != "synergy"
    )  # it divides CPUs: what gives way stays free
