"""Attempts of app masters: the arbiter alone numbers them, and the journal has a number before the order goes out.

A launcher restarts its app master within the attempt, as its next part. So two nodes that do not hear of each other
never run two masters under one number.
"""

from collections.abc import Iterable, Iterator

from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.driver import Driver
from eunomia_appmaster.service.nodes import Node, Nodes


def renumbered(apps: Iterable[App], nodes: Nodes) -> Iterator[App]:
    """Give the attempts that are due their numbers, and yield the apps whose number has changed.

    That of an app whose master has ended for good though the app is not over (it was drained, or is refuted), of one
    for which a user asked, and what a journal that lacks steps does not know any more.
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
    """Yield those of a node's apps whose master it has to start, with the attempt, once the journal has the number."""
    for app in apps:
        if driver is None or not app.attempts or not node.has_yet_to_start(app.name, app.attempts):
            continue
        if driver.holds(app.note()):
            driver.hurry()
        else:
            yield app, app.attempts
