"""Files of a head, below the engine's folder: its address and process, the nodes' join token, the arbiter's flags."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from eunomia.errors import InputError
from eunomia_appmaster.client import Client
from eunomia_appmaster.commands.serve_flags import ServeFlags
from eunomia_appmaster.launcher.processes import identify
from eunomia_appmaster.node.private_files import write_private

HEAD: Final = "head.json"
"""The address at which nodes reach the arbiter, and the head's process."""
TOKEN: Final = "join.token"
SERVING: Final = "serving.json"
"""The flags of the arbiter."""
LOG: Final = "head.log"
DOWN: Final = "down"
"""File whose presence makes a head that is stopped give back all nodes first."""
TOKEN_DAYS: Final = 365.0


def head_address(folder: Path) -> str:
    """Return the arbiter's address, host:port.

    Raises:
        InputError: the head has not written it.
    """
    path = folder / HEAD
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["address"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError("the head must have written its address", value=str(error)[:200], place=str(path)) from None


def head_process(folder: Path) -> int | None:
    """Return the pid of the head that serves from this machine; None: there is none, or it runs in a batch job."""
    record = read_record(folder)
    if record.get("job"):  # it may be on another machine
        return None
    found = identify(int(record.get("pid", 0)))
    return found.pid if found is not None and found.start_time == record.get("start_time") else None


def write_head(folder: Path, client: Client, address: str, **more: Any) -> None:
    """Write the join token and then the address for the nodes; the token of the previous head is revoked."""
    if (before := read_record(folder).get("token")) is not None:
        client.revoke_join_token(int(before))
    made = client.make_join_token(ends_in_seconds=TOKEN_DAYS * 86400.0, reusable=True)
    write_private(folder / TOKEN, made.text.encode(), sync=True)
    own = identify(os.getpid())
    start_time = None if own is None else own.start_time
    record = {"address": address, "pid": os.getpid(), "start_time": start_time, "token": made.token.number, **more}
    write_private(folder / HEAD, json.dumps(record).encode(), sync=True)


def save_serving(folder: Path, *, policy: str, settings: Sequence[str], port: int | None) -> None:
    """Write the arbiter's flags, as given to ``up``."""
    serving = {"policy": policy, "settings": list(settings), "port": port}
    write_private(folder / SERVING, json.dumps(serving).encode(), sync=True)


def serve_flags(folder: Path, state: Path) -> ServeFlags:
    """Return the flags of the arbiter; see ``given_flags``."""
    given, port = given_flags(folder)
    return ServeFlags(**given, no_launcher=True, address=f"0.0.0.0:{port}", make_certificates=True, state_dir=state)


def given_flags(folder: Path) -> tuple[dict[str, Any], int]:
    """Return the flags given to ``up``, and the port: the given one, else the last head's, else 0.

    Raises:
        InputError: the file with the flags is missing or damaged.
    """
    path = folder / SERVING
    try:
        given: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError("the arbiter's flags must be readable", value=str(error)[:200], place=str(path)) from None
    port = given.pop("port", None) or str(read_record(folder).get("address", ":0")).rpartition(":")[2]
    return given, int(port)


def read_record(folder: Path) -> dict[str, Any]:
    """Return the record of the last head; empty: there is no record, or it is damaged."""
    try:
        found = json.loads((folder / HEAD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
