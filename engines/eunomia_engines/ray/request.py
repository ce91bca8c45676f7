"""The request of ``eunomia ray up``: a file in the state folder that the head and the nodes read."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eunomia.errors import InputError
from eunomia_engines.head.names import HeadNames
from eunomia_engines.requests import load_request, mark_of, nodes_range, save_request, unreadable

FOLDER: Final = Path("engine") / "ray"
"""The engine's files, below the arbiter's state folder."""
NAMES: Final = HeadNames(engine="ray", folder=FOLDER, unit="actor")
ENDS: Final = "ends"
"""Name of a file in the engine's folder whose presence orders all nodes to end, even if Ray does not answer."""
ALL: Final = "all"
MOST_NODES: Final = 10_000
END_MARGIN_SECONDS: Final = 30.0


class RayRequest(BaseModel):
    """The nodes of a Ray cluster to use.

    Attributes:
        address: address of the cluster's head, ``HOST:PORT``.
        least: minimum number of nodes to use; ``MOST_NODES``: all.
        most: maximum number of nodes to use, while jobs wait for slots.
        cpu_slots: number of CPU slots per node instead of its GPUs; None: the node's GPUs are the slots.
        autoscale: whether more nodes are requested from the cluster's autoscaler.
        runtime_env: Ray's runtime environment of the launchers.
        python: interpreter of launchers; empty: that of Ray's workers.
        node_dir: folder on a node's local disk with the node's own files.
        stop_seconds: seconds for workers to save once a node's launcher is ordered to end.
        idle_seconds: seconds without leases after which a node above ``least`` is given back.
        wait_seconds: seconds for which jobs must have waited for slots before another node is used.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str
    least: Annotated[int, Field(ge=1, le=MOST_NODES)] = MOST_NODES
    most: Annotated[int, Field(ge=1, le=MOST_NODES)] = MOST_NODES
    cpu_slots: Annotated[int, Field(ge=1)] | None = None
    autoscale: bool = False
    runtime_env: Mapping[str, Any] = {}
    python: str = ""
    node_dir: Path = Path("/var/tmp")
    stop_seconds: Annotated[float, Field(ge=0)] = 60.0
    idle_seconds: Annotated[float, Field(ge=0)] = 600.0
    wait_seconds: Annotated[float, Field(ge=0)] = 60.0

    def save(self, state: Path) -> None:
        """Write the request below a state folder."""
        save_request(state / FOLDER, self)

    @classmethod
    def load(cls, state: Path) -> "RayRequest":
        """Read the request of a state folder.

        Raises:
            InputError: there is no request, or it is damaged.
        """
        folder = state / FOLDER
        try:
            return cls(**load_request(folder, "eunomia ray up", state))
        except (ValidationError, TypeError) as error:
            raise unreadable(folder, error) from None


def namespace_of(state: Path) -> str:
    """Return the Ray namespace of a state folder's actors."""
    return f"eunomia-{mark_of(state)}"


def nodes_option(text: str) -> tuple[int, int]:
    """Parse ``--nodes`` (``all``, ``4`` or ``2..8``) to the minimum and maximum number of nodes.

    Raises:
        InputError: the text has another form.
    """
    if text.strip() == ALL:
        return MOST_NODES, MOST_NODES
    try:
        return nodes_range(text)
    except InputError as error:
        rule = "--nodes must be all, a number from 1, or a range from the least to the most, such as 2..8"
        raise InputError(rule, value=error.value) from None


def check_address(text: str) -> str:
    """Check the value of ``--address``, ``auto`` or ``HOST:PORT``, and return it.

    Raises:
        InputError: the text has another form.
    """
    if text != "auto" and not re.fullmatch(r"[A-Za-z0-9_.\[\]:-]+:\d{1,5}", text):
        rule = "--address must be auto, or HOST:PORT of the head of a Ray cluster of which this machine is a node"
        raise InputError(rule, value=f'"{text}"')
    return text


def read_runtime_env(path: Path | None) -> Mapping[str, Any]:
    """Read a runtime environment of Ray from a JSON file.

    Raises:
        InputError: the file does not contain a JSON object.
    """
    if path is None:
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError("--runtime-env must name a file of JSON", value=str(error)[:200], place=str(path)) from None
    if not isinstance(found, dict):
        raise InputError("--runtime-env must hold an object of JSON", value=type(found).__name__, place=str(path))
    return found
