"""What a node provides to app masters: the interpreter, environment variables, and the arbiter's address."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from eunomia_appmaster.launcher.gangs import base_environment
from eunomia_appmaster.launcher.zygote_client import interpreter
from eunomia_appmaster.node.kept_apart import open_copy
from eunomia_appmaster.protocol.connecting import CA_VARIABLE

PASSED_ON: Final = ("PYTHONPATH", "EUNOMIA_PLUGIN_PATH", "EUNOMIA_NO_PLUGINS", "EUNOMIA_LOG")
"""Variables of the launcher's environment that app masters get in addition to those of all containers."""


def program(name: str, env: Mapping[str, str]) -> str:
    """Return the program of an app master: for "python" the launcher's own interpreter, which can import Eunomia."""
    return sys.executable if name == "python" else interpreter(name, env)


def node_environment() -> dict[str, str]:
    """Return the variables that every app master inherits from the launcher's environment."""
    return base_environment() | {name: os.environ[name] for name in PASSED_ON if os.environ.get(name)}


def way_to_arbiter(reaches: Mapping[str, str], folder: Path, login: str) -> Mapping[str, str]:
    """Return the variables with which an app master reaches the arbiter.

    Args:
        reaches: the variables for the launcher's own account.
        folder: the node's folder, which has a copy of the arbiter's CA that users' accounts can read.
        login: the account; empty: the launcher's own.
    """
    if not login or not reaches.get(CA_VARIABLE):
        return reaches
    return {**reaches, CA_VARIABLE: str(open_copy(Path(reaches[CA_VARIABLE]), folder))}
