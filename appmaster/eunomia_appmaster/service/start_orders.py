"""Orders to start and stop app masters; a start order names no interpreter and no folder of this machine."""

import os

from eunomia_appmaster.app.submission import MORE_TRIALS
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.apps import SubmittedApps
from eunomia_appmaster.service.nodes import Node

LINGER_SECONDS = 15.0
"""Seconds after its app's end within which an app master may exit on its own."""


def start_order(app: App, attempt: int, *, address: str, token: str, asked: bool) -> pb.AppMasterOrder:
    """Return the order to start an attempt of an app's master.

    Args:
        app: the app.
        attempt: number of the attempt.
        address: the arbiter's address, host:port.
        token: the app master's token.
        asked: whether a user asked for this attempt.
    """
    return pb.AppMasterOrder(
        app=app.name,
        attempt=attempt,
        command=["python", "-m", "eunomia_appmaster.master"],  # the node's interpreter, in the app's folder there
        env=master_environment(app, address),
        token=token,
        asked=asked,
        login=app.login,
    )


def masters_to_stop(node: Node, apps: SubmittedApps, now: float) -> list[App]:
    """Return the apps whose masters a node must end: the app has ended, or its master has moved.

    Args:
        node: the node on which the masters run.
        apps: all apps.
        now: seconds on the arbiter's clock.
    """
    ended = []
    for name, status in node.app_masters.items():
        app = apps.in_memory(name) if status.state != pb.APP_MASTER_COMPLETED else None
        if app is None:
            continue
        moved = app.node != node.name and not app.over
        over = app.over and (app.state == "cancelled" or now - (app.ended_at or 0.0) > LINGER_SECONDS)
        if moved or over:
            ended.append(app)
    return ended


def master_environment(app: App, address: str) -> dict[str, str]:
    """Return an app master's environment variables, in addition to its launcher's.

    Args:
        app: the app.
        address: the arbiter's address, host:port.
    """
    # without it gRPC writes its own messages into the app master's log
    env = {"EUNOMIA_ARBITER": address, "GRPC_VERBOSITY": os.environ.get("GRPC_VERBOSITY", "ERROR")}
    if app.more_trials:
        env[MORE_TRIALS] = ",".join(map(str, app.more_trials))
    return env
