"""The order to start an app master, which names no interpreter and no folder of this machine."""

import os

from eunomia_appmaster.app.submission import MORE_TRIALS
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.service.app_record import App


def start_order(app: App, attempt: int, *, address: str, token: str, asked: bool) -> pb.AppMasterOrder:
    """Return the order to start an attempt of an app's master.

    Args:
        app: whose it is.
        attempt: its number.
        address: of the arbiter.
        token: of the app master.
        asked: whether a user asked for this attempt.
    """
    return pb.AppMasterOrder(
        app=app.name,
        attempt=attempt,
        command=["python", "-m", "eunomia_appmaster.master"],  # of the node, in the app's folder there
        env=master_environment(app, address),
        token=token,
        asked=asked,
        login=app.login,
    )


def master_environment(app: App, address: str) -> dict[str, str]:
    """Return an app master's variables, in addition to what its launcher gives.

    Args:
        app: whose it is.
        address: of the arbiter.
    """
    # without it gRPC writes its own messages into the app master's log
    env = {"EUNOMIA_ARBITER": address, "GRPC_VERBOSITY": os.environ.get("GRPC_VERBOSITY", "ERROR")}
    if app.more_trials:
        env[MORE_TRIALS] = ",".join(map(str, app.more_trials))
    return env
