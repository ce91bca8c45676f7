"""Where a head runs: on the machine of ``up``; an engine may have others, such as a batch job."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eunomia_appmaster.commands.serve_flags import ServeFlags
from eunomia_engines.head.files import serve_flags

if TYPE_CHECKING:
    from eunomia_appmaster.node.supervisor import Serving


class Seat:
    """A head on the machine of ``up``.

    Args:
        folder: the engine's, below the state folder.
        state: the arbiter's state folder.
    """

    def __init__(self, folder: Path, state: Path) -> None:
        self.folder, self.state = folder, state
        self.record: dict[str, Any] = {}
        """What the head's record has besides address, process and token."""

    def wait(self, stopped: threading.Event) -> bool:
        """Wait until this head may serve; returns False if it was stopped or replaced meanwhile."""
        return not stopped.is_set()

    def is_taken(self) -> bool:
        """Return whether another head has taken this one's place."""
        return False

    def flags(self) -> ServeFlags:
        """Return the flags of the arbiter.

        Raises:
            InputError: the file with those that ``up`` was given is missing or damaged.
        """
        return serve_flags(self.folder, self.state)

    def address(self, serving: "Serving", here: str) -> str:
        """Return the address at which nodes reach the arbiter.

        Args:
            serving: the arbiter's settings.
            here: the address by which this machine's own processes call it.
        """
        host = "" if serving.certificates is None else serving.certificates.called_from_elsewhere("0.0.0.0")
        return f"{host}:{here.rpartition(':')[2]}"
