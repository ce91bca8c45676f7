"""Gangs over several nodes that fail before their first step, perhaps because their nodes cannot reach each other."""

from eunomia_appmaster.master.endings import Ending, GangOutcome
from eunomia_appmaster.master.jobs import Gang
from eunomia_appmaster.master.notices import Notices


class UnformedGangs:
    """Decides whether a failure may be caused by the network between the nodes of a gang.

    Faulty scripts, too, often fail before their first step. So a job's first such failure on the same nodes uses none
    of its retries, and a notice names the nodes; a later one counts.

    Args:
        notices: for users.
    """

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self._excused: set[tuple[str, frozenset[str]]] = set()

    def excuses(self, job: str, gang: Gang, ending: Ending) -> bool:
        """Return whether a job's failure uses none of its retries.

        Args:
            job: its id.
            gang: the gang that has ended.
            ending: its outcome.
        """
        failed = ending.outcome in (GangOutcome.FAILED, GangOutcome.HUNG)
        key = (job, frozenset(gang.nodes))
        if not failed or not gang.crosses or gang.running or key in self._excused:
            return False
        self._excused.add(key)
        nodes = " and ".join(gang.by_node())
        self._notices.add(
            f"{job}: its gang over {nodes} made no step ({ending.why}); if these nodes do not reach each other, a gang "
            f"cannot form over them. It is tried again, and counts as a failure then"
        )
        return True
