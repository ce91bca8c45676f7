"""Seats: where a head runs. The default is the machine on which ``up`` was called; a batch job is another seat."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eunomia_appmaster.commands.serve_flags import ServeFlags
from eunomia_engines.head.files import serve_flags

if TYPE_CHECKING:
    from eunomia_appmaster.node.supervisor import Serving


class Seat:
    """The seat of a head on the machine on which ``up`` was called.

    Args:
        folder: the engine's folder, below the state folder.
        state: the arbiter's state folder.
    """

    def __init__(self, folder: Path, state: Path) -> None:
        self.folder, self.state = folder, state
        self.record: dict[str, Any] = {}
        """Additional fields of the head's record, besides address, process and token."""

    def wait(self, stopped: threading.Event) -> bool:
        """Wait until this head may serve; returns False if it was stopped or replaced meanwhile."""
        return not stopped.is_set()

    def is_taken(self) -> bool:
        """Return whether another head has replaced this one."""
        return False

    def flags(self) -> ServeFlags:
        """Return the flags of the arbiter.

        Raises:
            InputError: the file with the flags given to ``up`` is missing or damaged.
        """
        return serve_flags(self.folder, self.state)

    def address(self, serving: "Serving", here: str) -> str:
        """Return the address at which nodes reach the arbiter.

        Args:
            serving: the arbiter's settings.
            here: the address at which this machine's own processes reach the arbiter.
        """
        host = "" if serving.certificates is None else serving.certificates.called_from_elsewhere("0.0.0.0")
        return f"{host}:{here.rpartition(':')[2]}"
