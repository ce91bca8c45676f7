"""States of app masters as files, written by a test."""

from pathlib import Path

from eunomia_appmaster.master.files import KeptState, read_state, rest_of
from eunomia_appmaster.master.job_index import JobIndex
from eunomia_appmaster.master.record import StateRecord


def write_whole(path: Path, state: KeptState) -> None:
    """Write a state as an attempt of its own does first."""
    before = read_state(path) if path.exists() else None
    record = StateRecord(path, JobIndex(state.jobs), 0 if before is None else before.number)
    record.write(rest_of(state.tuner, state.growth, state.notices))
