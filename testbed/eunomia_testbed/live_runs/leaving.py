"""Writes the tables and the HTML page of a served workload, from the arbiter's state folder."""

from pathlib import Path

from eunomia_testbed.live_runs.record import LiveRecord
from eunomia_testbed.live_runs.tables import Tables
from eunomia_testbed.report import write_report
from eunomia_testbed.results import ResultFolder, RunFacts
from eunomia_testbed.results.facts import versions_of
from eunomia_testbed.spec.cluster_file import ClusterFile, cluster_toml

_PACKAGES = ("eunomia", "numpy", "grpcio", "polars")


def leave_served(
    state: Path, folder: ResultFolder, command: tuple[str, ...], started_at: str, ended_at: str
) -> Path | None:
    """Write facts, tables and HTML page for the whole journal of a state folder.

    Args:
        state: the arbiter's state folder.
        folder: the folder for the results.
        command: the command line, as words.
        started_at: start of this run of the arbiter, UTC; the tables include earlier runs of the same state folder.
        ended_at: end of this run, UTC.

    Returns:
        Path of the page; None: no app has arrived yet.
    """
    record = LiveRecord(state)
    record.poll()
    try:
        if record.cluster is None or not record.apps:
            return None
        return leave_record(record, folder, command, started_at, ended_at)
    finally:
        record.close()


def leave_record(
    record: LiveRecord, folder: ResultFolder, command: tuple[str, ...], started_at: str, ended_at: str | None
) -> Path:
    """Write facts, tables and HTML page from a record of a state folder; return the path of the page.

    Args:
        record: a record with a cluster and at least one app.
        folder: the folder for the results.
        command: the command line, as words.
        started_at: start, UTC.
        ended_at: end, UTC; None: the arbiter still runs.
    """
    policy, seed = str(record.meta("policy") or "profile"), int(record.meta("seed") or 0)
    cluster = "" if record.cluster is None else cluster_toml(ClusterFile(cluster=record.cluster, bandwidth_gib={}))
    folder.write_facts(
        RunFacts(
            kind="serve",
            command=("eunomia", *command[1:]),
            seeds=(seed,),
            profiles={policy: str(record.meta("profile") or "")},
            cluster=cluster,
            slots=record.slots,
            versions=versions_of(*_PACKAGES),
            started_at=started_at,
            ended_at=ended_at,
            ended=None if ended_at is None else "finished",
        )
    )
    Tables(record).write(folder, policy=policy, seed=seed)
    return write_report(folder.path)
