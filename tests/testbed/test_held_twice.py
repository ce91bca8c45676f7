"""Slots with two holders are found by code that shares nothing with the arbiter: a replay would repeat its fault."""

import contextlib
import itertools
from pathlib import Path

import pytest
from test_demo_record import SLOTS, script, watched

from eunomia.contract.codec import encode
from eunomia.contract.events import JobFinished
from eunomia.errors import EunomiaError
from eunomia.fold.fold import FOLDS
from eunomia.fold.fold_gpus import come_back
from eunomia.fold.folding import Folding
from eunomia.journal.journal import Journal
from eunomia.testing.drive import Delays, Drive
from eunomia_appmaster.journal_check import Rule, check_folder
from eunomia_testbed.live_runs.outcome import held_twice
from eunomia_testbed.live_runs.record import LiveRecord


def played(folder: Path) -> Path:
    """A journal of a virtual run, in which processes take 1.5 s to leave their slots."""
    arbiter = watched("las")
    made, work = script(3, 3, 20.0)
    with contextlib.suppress(AssertionError, EunomiaError):  # the harness notices the fault: the journal ends there
        Drive(arbiter, work=work, delays=Delays(order=0.1, start=0.2, release=1.5)).run(made, until=500.0)
    with Journal.open(folder / "journal.sqlite", durable=False) as journal:
        journal.set_meta(layout=encode((arbiter.state.cluster.machines, tuple(("box", slot) for slot in range(SLOTS)))))
        for step in arbiter.steps:
            journal.append(step.now, step.events, step.decision, at=step.at)
    return folder


def holders_at_once(folder: Path) -> tuple[bool, tuple[str, ...]]:
    """Whether the replay has two holds of a slot that overlap, and what the end of a run tells of two holders."""
    record = LiveRecord(folder)
    record.poll()
    by_slot: dict[int, list[tuple[float, float]]] = {}
    for hold in record.holds.holds:
        by_slot.setdefault(hold.gpu, []).append((hold.start, hold.end or record.last_at))
    told = held_twice(record)
    record.close()
    periods = [sorted(mine) for mine in by_slot.values()]
    return any(end > after for mine in periods for (_, end), (after, _) in itertools.pairwise(mine)), told


def test_a_fault_in_replayed_code_is_found_by_the_check_and_not_by_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: slots of a job that has finished count as free before its processes have left."""
    right = FOLDS[JobFinished]

    def hasty(folding: Folding, event: JobFinished) -> None:
        right(folding, event)
        for gpus in list(folding.state.owners.leaving.values()):
            for gpu in sorted(gpus):
                come_back(folding, gpu, folding.state.now)

    monkeypatch.setitem(FOLDS, JobFinished, hasty)
    folder = played(tmp_path)
    found = check_folder(folder).findings
    overlap, told = holders_at_once(folder)
    assert {Rule.HELD_TWICE} <= {finding.rule for finding in found}
    assert not overlap
    assert told == tuple(finding.what for finding in found if finding.rule is Rule.HELD_TWICE) != ()


def test_the_checks_find_nothing_without_the_fault(tmp_path: Path) -> None:
    folder = played(tmp_path)
    assert check_folder(folder).findings == []
    assert holders_at_once(folder) == (False, ())
