"""One history, held against the rules of the arbiter and the checker of journals."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from eunomia.arbiter import Arbiter
from eunomia.journal.journal import Journal
from eunomia.journal.sums import checkpoint_sum
from eunomia.testing.strategies import Scenario
from eunomia_appmaster.journal_check import check_folder
from eunomia_appmaster.service.layout import Layout, Place

POLICIES = ("chaos of jobs", "chaos of apps", "las, preemptive", "themis, bids")


def hold(played_by: Any, scenario: Scenario, policy: str) -> Counter[str]:
    """Drive a history, journal it with checkpoints, and check the journal.

    A checkpoint stands after each step about machines, and after each third one of the others.

    Args:
        played_by: the module ``tests.core.test_arbiter_invariants``, whose ``played`` looks after each step.
        scenario: the history.
        policy: of the arbiter.

    Returns:
        How often each kind of event was folded, those about machines that were refused as ``refused``, steps and
        checkpoints as ``steps`` and ``checkpoints``.

    Raises:
        AssertionError: a rule was broken, or the checker found something.
    """
    _, _, journal = played_by.played(scenario, policy)
    again = Arbiter(scenario.cluster, played_by.POLICIES[policy](), played_by.fifo(), seed=scenario.seed)
    places = tuple(Place(node="box", slot=slot) for slot in range(scenario.cluster.gpus))
    seen: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        with Journal.open(Path(folder) / "journal.sqlite", durable=False) as file:
            file.set_meta(layout=Layout.made(scenario.cluster, places).encoded())
            for now, events, decision in journal:
                number = file.append(now, events, decision, at=1e9 + now)
                again.replay(now, events, decision)
                names = [type(event).__name__ for event in events]
                seen.update(names)
                seen["refused"] += sum(fault.what.startswith("Machine") for fault in decision.faults)
                if number % 3 == 0 or any(name.startswith("Machine") for name in names):
                    row = (number, 1e9 + now, again.save())
                    file._database.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?)", (*row, checkpoint_sum(*row)))
                    seen["checkpoints"] += 1
        report = check_folder(Path(folder))
    seen["steps"] = report.steps
    assert not report.findings, "; ".join(str(one) for one in report.findings[:3])
    assert (report.steps, report.checkpoints) == (len(journal), seen["checkpoints"])
    return seen
