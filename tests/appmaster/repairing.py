"""A coordinator that repairs its newest order at once, for tests of workers alone; the app master's is ``decide``."""

from collections.abc import Collection

from eunomia_appmaster.training.changes import Membership


def repaired(
    newest: Membership, *, living: Collection[str], holders: Collection[str], broken: bool = False
) -> tuple[str, ...] | None:
    """Return the members that the app master orders next, because the newest order cannot be followed.

    Args:
        newest: its newest order.
        living: containers of the job that have neither died nor left nor been unfit.
        holders: containers that were members of a generation that has made steps.
        broken: whether a worker has said that its group of the newest generation has failed.

    Returns:
        The members, in order of rank; None: the newest order can be followed; empty: no member is left, so that the job
        restarts from its last checkpoint.
    """
    kept = tuple(each for each in newest.members if each in living)
    left = tuple(each for each in holders if each in living)
    if kept and (not left or any(each in left for each in kept)):
        # Where no holder is known, a member may still be one of which the app master has not heard yet.
        return None if kept == newest.members and not broken else kept
    return (*left, *(each for each in kept if each not in left)) or tuple(living)
