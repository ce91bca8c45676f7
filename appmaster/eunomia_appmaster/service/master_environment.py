"""The environment that the arbiter gives an app master, in addition to what its launcher gives."""

import os
from pathlib import Path
from typing import Final

from eunomia_appmaster.app.submission import MORE_TRIALS
from eunomia_appmaster.node.kept_apart import open_copy
from eunomia_appmaster.protocol.connecting import CA_VARIABLE
from eunomia_appmaster.service.app_record import App

PASSED_ON: Final = ("PYTHONPATH", "EUNOMIA_PLUGIN_PATH", "EUNOMIA_NO_PLUGINS", "EUNOMIA_LOG")
"""Variables of the arbiter's own environment."""


def master_environment(app: App, address: str, ca_file: Path | None, state: Path) -> dict[str, str]:
    """Return an app master's variables.

    Args:
        app: whose it is.
        address: of the arbiter.
        ca_file: with which it checks the arbiter's certificate; None: no TLS.
        state: the state folder, in which an account of a user finds a copy of that file.
    """
    # without it gRPC writes its own messages into the app master's log
    env = {"EUNOMIA_ARBITER": address, "GRPC_VERBOSITY": os.environ.get("GRPC_VERBOSITY", "ERROR")}
    if ca_file is not None:
        env[CA_VARIABLE] = str(open_copy(ca_file, state) if app.login else ca_file)
    if app.more_trials:
        env[MORE_TRIALS] = ",".join(map(str, app.more_trials))
    return env | {name: os.environ[name] for name in PASSED_ON if os.environ.get(name)}
