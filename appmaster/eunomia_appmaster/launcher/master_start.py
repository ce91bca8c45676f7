"""What a node provides to app masters: the interpreter, environment variables, and the arbiter's address."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from eunomia_appmaster.launcher.containers import ContainerCommand
from eunomia_appmaster.launcher.gangs import base_environment
from eunomia_appmaster.launcher.zygote import ZygoteKind
from eunomia_appmaster.launcher.zygote_client import can_fork, interpreter
from eunomia_appmaster.node.kept_apart import open_copy
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol.connecting import CA_VARIABLE

PASSED_ON: Final = ("PYTHONPATH", "EUNOMIA_PLUGIN_PATH", "EUNOMIA_NO_PLUGINS", "EUNOMIA_LOG")
"""Variables of the launcher's environment that app masters get in addition to those of all containers."""
OWN: Final = ("-m", "eunomia_appmaster.master")
"""Python arguments that start the app master of this installation."""


def program(name: str, env: Mapping[str, str]) -> str:
    """Return the program of an app master: for "python" the launcher's own interpreter, which can import Eunomia."""
    return sys.executable if name == "python" else interpreter(name, env)


def command_of(order: pb.AppMasterOrder, cwd: str, env: dict[str, str], stdout: Path, stderr: Path) -> ContainerCommand:
    """Return the command of an app master; one of this Eunomia is forked from a process that has imported it."""
    argv = (program(order.command[0], env), *order.command[1:])
    zygote = ZygoteKind.APP_MASTERS if argv[1:] == OWN and can_fork(argv, env) else None
    return ContainerCommand(argv=argv, cwd=cwd, env=env, stdout=str(stdout), stderr=str(stderr), zygote=zygote)


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
