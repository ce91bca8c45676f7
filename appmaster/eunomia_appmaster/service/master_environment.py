"""The environment that the arbiter gives an app master, in addition to what its launcher gives."""

import os

from eunomia_appmaster.app.submission import MORE_TRIALS
from eunomia_appmaster.service.app_record import App


def master_environment(app: App, address: str) -> dict[str, str]:
    """Return an app master's variables.

    Args:
        app: whose it is.
        address: of the arbiter.
    """
    # without it gRPC writes its own messages into the app master's log
    env = {"EUNOMIA_ARBITER": address, "GRPC_VERBOSITY": os.environ.get("GRPC_VERBOSITY", "ERROR")}
    if app.more_trials:
        env[MORE_TRIALS] = ",".join(map(str, app.more_trials))
    return env
