"""Numbers of app master starts: the arbiter numbers attempts; a launcher numbers its restarts within one (parts).

So two nodes never use the same number, whatever the state of the network.
"""

import re
from pathlib import Path

import structlog

from eunomia_appmaster.launcher.containers import Containers
from eunomia_appmaster.protocol import launcher_pb2 as pb

log = structlog.get_logger()

_NAME = re.compile(r"(\d+)(?:\.(\d+))?")


def name_of(status: pb.AppMasterStatus) -> str:
    """Return the name of a start: ``3``, or ``3.2`` for the second part of attempt 3."""
    return f"{status.attempt}.{status.part}" if status.part > 1 else str(status.attempt)


def container_id(status: pb.AppMasterStatus) -> str:
    """Return the container id of a start."""
    return f"appmaster:{status.app}:{name_of(status)}"  # app masters' own ids contain no colon


def set_next(status: pb.AppMasterStatus, order: pb.AppMasterOrder) -> None:
    """Set the number of the next start in a status: the first part of the ordered attempt, else the next part."""
    if order.attempt > status.attempt:
        status.attempt, status.part = order.attempt, 1
    else:
        status.part += 1


def first_of(order: pb.AppMasterOrder, folder: Path, containers: Containers) -> pb.AppMasterStatus:
    """Return the first start of an order, for an app master of which the launcher has no record.

    Records may be lost, so a start counts as begun if it has a folder, and as running if its container runs. If there
    was a start or an order of a later attempt, that attempt's status is returned as COMPLETED, so that nothing is
    started and the arbiter uses a higher number.

    Args:
        order: the arbiter's.
        folder: folder with a subfolder for each start of the app's master.
        containers: containers that the launcher knows.
    """
    found = [match for path in folder.glob("*") if (match := _NAME.fullmatch(path.name))]
    seen = (containers.node.attempts[order.app], 0)
    begun = max([seen, *((int(match[1]), int(match[2] or 1)) for match in found)])
    status = pb.AppMasterStatus(app=order.app, attempt=order.attempt, part=1)
    if begun < (order.attempt, 1):
        return status
    last = pb.AppMasterStatus(app=order.app, attempt=begun[0], part=max(1, begun[1]))
    container = containers.get(container_id(last))
    if container is not None and (begun == (order.attempt, 1) or not container.completed):
        return last
    if begun[0] > order.attempt:
        log.warning("app_master.record_lost", app=order.app, attempt=begun[0], ordered=order.attempt)
        last.state = pb.APP_MASTER_COMPLETED
        last.diagnostics = f"attempt {order.attempt} was ordered after attempt {begun[0]}"
        return last
    status.part = begun[1] + 1
    return status
