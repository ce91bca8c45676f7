"""The checker against the arbiter: random clusters, workloads, lost machines and overtaking orders have no findings.

A state is saved after every step, so what the checker follows is held against the arbiter's own fold all along.
"""

import importlib.util
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from eunomia.arbiter import Arbiter
from eunomia.journal.journal import Journal
from eunomia.journal.sums import checkpoint_sum
from eunomia.testing.strategies import Scenario, scenarios
from eunomia_appmaster.journal_check import check_folder
from eunomia_appmaster.service.layout import Layout, Place

_spec = importlib.util.spec_from_file_location(
    "arbiter_invariants", Path(__file__).parent.parent / "core" / "test_arbiter_invariants.py"
)
played_by = sys.modules.setdefault("arbiter_invariants", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(played_by)


@pytest.mark.parametrize("policy", ["chaos of jobs", "chaos of apps", "las, preemptive", "themis, bids"])
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenario=scenarios())
def test_the_journal_of_a_random_run_has_no_findings(policy: str, scenario: Scenario) -> None:
    _, _, journal = played_by.played(scenario, policy)
    again = Arbiter(scenario.cluster, played_by.POLICIES[policy](), played_by.fifo(), seed=scenario.seed)
    places = tuple(Place(node="box", slot=slot) for slot in range(scenario.cluster.gpus))
    with tempfile.TemporaryDirectory() as folder:
        with Journal.open(Path(folder) / "journal.sqlite", durable=False) as file:
            file.set_meta(layout=Layout.made(scenario.cluster, places).encoded())
            for now, events, decision in journal:
                number = file.append(now, events, decision, at=1e9 + now)
                again.replay(now, events, decision)
                row = (number, 1e9 + now, again.save())
                file._database.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?)", (*row, checkpoint_sum(*row)))
        report = check_folder(Path(folder))
    assert report.findings == []
    assert report.checkpoints == report.steps == len(journal)
