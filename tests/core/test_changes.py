"""The log of changed rows keeps the last versions alone, and knows only versions that stages saw."""

from eunomia.model.changes import VERSIONS_KEPT, ChangeLog


def see(log: ChangeLog, version: int) -> None:
    """Record that stages see a version, as a snapshot of it does."""
    log.marks.setdefault(version, log.dropped + len(log.rows))


def log_of(versions: int) -> ChangeLog:
    """A log in which stages see each version, and each changes a job and an app."""
    log = ChangeLog()
    for version in range(1, versions + 1):
        see(log, version)
        log.rows += (version, ~version)
        if version % VERSIONS_KEPT == 0:
            log.forget()
    return log


def test_changes_since_a_version_are_those_after_its_first_snapshot() -> None:
    log = log_of(3 * VERSIONS_KEPT)
    last = 3 * VERSIONS_KEPT
    see(log, last - 1)
    changes = log.since(last - 1)
    assert changes is not None
    assert (changes.jobs.tolist(), changes.apps.tolist(), changes.touched) == ([last - 1, last],) * 3


def test_the_log_knows_no_changes_since_a_version_that_is_too_old() -> None:
    log = log_of(3 * VERSIONS_KEPT)
    assert log.since(2 * VERSIONS_KEPT + 1) is not None
    assert log.since(2 * VERSIONS_KEPT) is None


def test_the_log_knows_no_changes_since_a_version_that_no_stage_saw() -> None:
    assert log_of(3).since(4) is None


def test_the_size_of_the_log_does_not_depend_on_the_number_of_versions() -> None:
    few, many = log_of(2 * VERSIONS_KEPT), log_of(20 * VERSIONS_KEPT)
    assert (len(few.rows), len(few.marks)) == (len(many.rows), len(many.marks)) == (2 * VERSIONS_KEPT, VERSIONS_KEPT)
