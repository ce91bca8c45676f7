"""Numbers of app masters' attempts: only the arbiter assigns them, and journals each before ordering the attempt.

Restarts of an app master by its launcher are parts of the same attempt. So two nodes that cannot reach each other
never run app masters with the same attempt number.
"""

from collections.abc import Iterable, Iterator

from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.driver import Driver
from eunomia_appmaster.service.nodes import Node, Nodes


def renumbered(apps: Iterable[App], nodes: Nodes) -> Iterator[App]:
    """Assign numbers to the attempts that are due, and yield the apps whose number has changed.

    An attempt is due if an app's master has ended permanently although the app has not (after a drain, or an exit with
    0), if a user asked for one, or if the journal has lost the number.
    """
    for app in apps:
        node = nodes.get(app.node)
        if node is None or not node.registered:
            continue
        status = node.app_masters.get(app.name)
        reported = [one.attempt for one in nodes.masters_of(app.name)]
        number = max([1, app.attempts, node.asked.get(app.name, 0), *reported])
        if status is not None and status.state == pb.APP_MASTER_COMPLETED and status.attempt == number:
            number += 1
        if number != app.attempts:
            app.attempts = number
            yield app


def due(node: Node, apps: Iterable[App], driver: Driver | None) -> Iterator[tuple[App, int]]:
    """Yield the apps whose master a node must start, each with its attempt number, once that number is journaled."""
    for app in apps:
        if driver is None or not app.attempts or not node.has_yet_to_start(app.name, app.attempts):
            continue
        if driver.holds(app.note()):
            driver.hurry()
        else:
            yield app, app.attempts
