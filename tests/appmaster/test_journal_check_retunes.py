"""The checker follows retunes: random histories have no findings, and an overcommitted machine has one."""

import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from eunomia.arbiter import Arbiter
from eunomia.contract.events import Retuned
from eunomia.journal.journal import Journal
from eunomia.journal.sums import checkpoint_sum
from eunomia.model.leases import LeaseState
from eunomia.testing.strategies import Scenario, scenarios
from eunomia_appmaster.journal_check import Report, Rule, check_folder
from eunomia_appmaster.service.layout import Layout, Place

_spec = importlib.util.spec_from_file_location("retuning", Path(__file__).parent.parent / "core" / "retuning.py")
assert _spec is not None
assert _spec.loader is not None
lab = sys.modules.setdefault("retuning", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab)


STEPS = 100
"""A checkpoint at each step costs as much as all before it: whole runs of up to a minute and a half are slow tests."""


def checked(scenario: Scenario, history: Any, cluster: Any, *, dropped: int = 0) -> Report:
    """Check the journal of a history; ``dropped``: number of its first steps that are not there any more."""
    again = Arbiter(cluster, lab.stages(), lab.stages(lab.made("packed")), seed=scenario.seed)
    places = tuple(Place(node="box", slot=slot) for slot in range(cluster.gpus))
    with tempfile.TemporaryDirectory() as folder:
        with Journal.open(Path(folder) / "journal.sqlite", durable=False) as file:
            file.set_meta(layout=Layout.made(cluster, places).encoded())
            for now, events, decision in history:
                number = file.append(now, events, decision, at=1e9 + now)
                again.replay(now, events, decision)
                row = (number, 1e9 + now, again.save())
                file._database.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?)", (*row, checkpoint_sum(*row)))
                again.load(row[2])
                assert again.save() == row[2]
            file._database.execute("DELETE FROM steps WHERE id <= ?", (dropped,))
        return check_folder(Path(folder))


@pytest.mark.parametrize("probes", [False, True])
@pytest.mark.parametrize("steps", [STEPS, pytest.param(None, marks=pytest.mark.slow)])
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenario=scenarios())
def test_the_journal_of_a_random_run_with_retunes_has_no_findings(
    steps: int | None, probes: bool, scenario: Scenario
) -> None:
    _, history, cluster = lab.played(scenario, probes=probes)
    history = history[:steps]
    report = checked(scenario, history, cluster)
    assert report.findings == []
    later = checked(scenario, history, cluster, dropped=len(history) // 2)
    assert {finding.rule for finding in later.findings} <= {Rule.STEPS}
    more = [(now, tuple(_hundredfold(event) for event in events), decision) for now, events, decision in history]
    rules = {finding.rule for finding in checked(scenario, more, cluster).findings}
    assert Rule.TOO_MUCH in rules or not _overcommits(scenario, more, cluster)


def _overcommits(scenario: Scenario, history: Any, cluster: Any) -> bool:
    """Whether an active lease confirms its last order with more CPUs than the machines have together."""
    again = Arbiter(cluster, lab.stages(), lab.stages(lab.made("packed")), seed=scenario.seed)
    for now, events, decision in history:
        for event in events:
            lease = again.state.leases.get(event.lease) if isinstance(event, Retuned) else None
            active = lease is not None and lease.state is LeaseState.ACTIVE and lease.tuned == event.epoch
            if active and sum(event.cpus) > np.sum(cluster.machine_cpus):
                return True
        again.replay(now, events, decision)
    return False


def _hundredfold(event: Any) -> Any:
    if not isinstance(event, Retuned):
        return event
    cpus = tuple(100.0 * each for each in event.cpus)
    return Retuned(lease=event.lease, epoch=event.epoch, gpus=event.gpus, cpus=cpus, memory_gib=event.memory_gib)
