"""A file in an arbiter's state folder about its engine: which engine provides the nodes, and which nodes it still owes.

The arbiter and its journal contain nothing about engines. The keeper of the nodes, a process beside the arbiter, writes
the file; commands on the keeper's machine read it.
"""

import json
import os
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eunomia.errors import InputError
from eunomia_appmaster.node.private_files import write_private
from eunomia_appmaster.service.settings import default_state_dir

NOTE: Final = Path("engine") / "note.json"
"""Below the state folder."""


class AskedNode(BaseModel):
    """A node that waits in an engine's queue, or several that wait together.

    Attributes:
        id: the engine's id of the node, such as the id of a Slurm job.
        why: the engine's reason for the wait, such as ``Priority``; empty: none is given.
        nodes: number of nodes that start together under this id.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: Annotated[str, Field(max_length=200)]
    why: Annotated[str, Field(max_length=2000)] = ""
    nodes: Annotated[int, Field(ge=1)] = 1

    @property
    def words(self) -> str:
        """The id, with the number of nodes if there are several."""
        return self.id if self.nodes == 1 else f"{self.id} ({self.nodes} nodes)"


class EngineNote(BaseModel):
    """Facts about the engine that provides the nodes of a state folder.

    Attributes:
        engine: its name, such as ``slurm``.
        up: the command that serves the state folder.
        down: the command after which another command may serve the state folder.
        unit: what a node is at the engine, such as a job.
        at: Unix time in seconds at which the engine was queried.
        asked: nodes in the engine's queue at that time.
        is_beside: whether the keeper runs beside an arbiter that `eunomia serve` serves.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    engine: Annotated[str, Field(max_length=200)]
    up: Annotated[str, Field(max_length=200)]
    down: Annotated[str, Field(max_length=200)]
    unit: Annotated[str, Field(max_length=200)] = "job"
    at: float
    asked: tuple[AskedNode, ...] = ()
    is_beside: bool = False

    def save(self, state: Path) -> None:
        """Write the note into a state folder.

        Raises:
            OSError: it cannot be written.
        """
        (state / NOTE).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(state / NOTE, self.model_dump_json().encode())

    @property
    def lines(self) -> list[str]:
        """The nodes in the engine's queue as lines of text, one line for each reason."""
        by_why: dict[str, list[AskedNode]] = {}
        for node in self.asked:
            by_why.setdefault(" ".join(node.why.split()), []).append(node)
        return [
            f"{sum(node.nodes for node in asked)} asked of {self.engine}: {self.unit}{'s' if len(asked) > 1 else ''} "
            f"{', '.join(node.words for node in asked)}, pending{f': {why}' if why else ''}"
            for why, asked in by_why.items()
        ]


def read_note(state: Path) -> EngineNote | None:
    """Return the note of a state folder; None: no engine provides its nodes, or the note cannot be read."""
    try:
        return EngineNote(**json.loads((state / NOTE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, ValidationError):
        return None


def drop_note(state: Path) -> None:
    """Remove the note of a state folder, once the engine has none of its nodes any more."""
    (state / NOTE).unlink(missing_ok=True)


def note_here(address: str | None, state: Path | None) -> EngineNote | None:
    """Return the note of the arbiter that a command calls; None: there is none, or the command names an address.

    Args:
        address: the command's ``--address``.
        state: the command's ``--state-dir``.
    """
    if address is not None or (state is None and os.environ.get("EUNOMIA_ADDRESS")):
        return None
    return read_note(state or default_state_dir())


def check_no_engine(state: Path) -> None:
    """Check that no engine provides the nodes of a state folder.

    Raises:
        InputError: an engine does, so its nodes would call an address at which this arbiter does not listen.
    """
    note = read_note(state)
    if note is not None and not note.is_beside:
        rule = f"a state folder whose nodes {note.engine} gives must be served by `{note.up}`, or by others after"
        raise InputError(f"{rule} `{note.down}`", value="eunomia serve", place=str(state))
