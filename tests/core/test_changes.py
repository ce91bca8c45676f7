"""The log of changed rows keeps the last versions alone."""

from eunomia.model.changes import VERSIONS_KEPT, ChangeLog


def log_of(versions: int) -> ChangeLog:
    """A log in which each version changes a job and an app."""
    log = ChangeLog()
    for version in range(1, versions + 1):
        log.rows += (version, ~version)
        log.close(version)
    return log


def test_changes_since_a_version_are_those_of_the_later_ones() -> None:
    changes = log_of(3 * VERSIONS_KEPT).since(3 * VERSIONS_KEPT - 2)
    assert changes is not None
    assert changes.jobs.tolist() == changes.apps.tolist() == [3 * VERSIONS_KEPT - 1, 3 * VERSIONS_KEPT]


def test_changes_since_a_version_that_is_too_old_are_not_known() -> None:
    log = log_of(2 * VERSIONS_KEPT)
    assert log.since(VERSIONS_KEPT) is not None
    assert log.since(VERSIONS_KEPT - 1) is None
    assert log.since(2 * VERSIONS_KEPT + 1) is None


def test_the_size_of_the_log_does_not_depend_on_the_number_of_versions() -> None:
    few, many = log_of(2 * VERSIONS_KEPT), log_of(20 * VERSIONS_KEPT)
    assert (len(few.rows), len(few._marks)) == (len(many.rows), len(many._marks)) == (2 * VERSIONS_KEPT, VERSIONS_KEPT)
