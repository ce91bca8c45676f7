"""What ``eunomia slurm up`` was asked for: the request, kept in the state folder, from which head and nodes work."""

import math
import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eunomia.errors import InputError
from eunomia.units import parse_duration
from eunomia_engines.head.names import HeadNames
from eunomia_engines.requests import load_request, mark_of, save_request, unreadable
from eunomia_engines.slurm.programs import seconds_of

FOLDER: Final = Path("engine") / "slurm"
"""The engine's files, below the arbiter's state folder."""
NAMES: Final = HeadNames(engine="slurm", folder=FOLDER, unit="job")
LEAST_SECONDS: Final = 60.0
"""Shortest time of a node: a shorter one would end before a job has made a step worth keeping."""
LEAST_HEAD_SECONDS: Final = 120.0
"""Shortest time of a head: it is signalled a minute before its end."""
LONGEST_SIGNAL_SECONDS: Final = 120.0
SIGNAL_SHARE: Final = 1.0 / 6.0
"""Share of a node's time that it gets to end after Slurm's signal, at most ``LONGEST_SIGNAL_SECONDS``."""
END_MARGIN_SECONDS: Final = 30.0
DRAIN_SHARE: Final = 0.2
LONGEST_DRAIN_SECONDS: Final = 600.0
"""A node is drained for this share of its time before its end, at most this long."""


class Request(BaseModel):
    """The nodes to have, and the jobs that hold them.

    Attributes:
        least: nodes to have at any time.
        most: nodes to have while jobs wait for slots.
        seconds: of a node's batch job.
        gres: of a node, as Slurm writes it; empty: none.
        cpu_slots: CPU slots of a node instead of GPUs; None: its GPUs.
        cpus: of a node; None: Slurm's default.
        memory_mib: of a node; None: Slurm's default.
        setup: file that a node's shell sources before the launcher starts; None: none.
        more: further options of ``sbatch``.
        python: interpreter on the nodes.
        node_dir: folder on a node's local disk with the node's own files.
        idle_seconds: after which a node that is above ``least`` and holds nothing is given back.
        wait_seconds: for which jobs must have waited for slots before another node is asked for.
        head: where the head runs: on the machine of ``up``, or in a batch job of its own.
        head_partition: of the head's job; empty: that of the nodes.
        head_seconds: of the head's job; None: those of a node.
        allocation: id of the user's own job whose nodes are taken; empty: each node is a batch job.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    least: Annotated[int, Field(ge=1, le=10_000)]
    most: Annotated[int, Field(ge=1, le=10_000)]
    seconds: Annotated[float, Field(ge=LEAST_SECONDS)]
    gres: str = ""
    cpu_slots: Annotated[int, Field(ge=1)] | None = None
    cpus: Annotated[int, Field(ge=1)] | None = None
    memory_mib: Annotated[int, Field(ge=1)] | None = None
    partition: str = ""
    account: str = ""
    qos: str = ""
    setup: Path | None = None
    more: tuple[str, ...] = ()
    python: str
    node_dir: Path
    idle_seconds: Annotated[float, Field(ge=0)] = 600.0
    wait_seconds: Annotated[float, Field(ge=0)] = 60.0
    head: Literal["here", "job"] = "here"
    head_partition: str = ""
    head_seconds: Annotated[float, Field(ge=LEAST_HEAD_SECONDS)] | None = None
    allocation: Annotated[str, Field(pattern=r"^\d*$")] = ""

    @property
    def signal_seconds(self) -> int:
        """Seconds before the end of a node at which Slurm signals it; Slurm may be up to a minute early."""
        return int(min(LONGEST_SIGNAL_SECONDS, SIGNAL_SHARE * self.seconds))

    @property
    def stop_seconds(self) -> int:
        """Seconds that workers have to save once a node's launcher is ordered to end."""
        return max(5, self.signal_seconds // 2)

    @property
    def end_seconds(self) -> float:
        """Seconds in which a node must end that was ordered to; after them Slurm is asked to kill it."""
        return self.stop_seconds + END_MARGIN_SECONDS

    @property
    def drain_seconds(self) -> float:
        """Seconds before the end of a node from which it is drained and replaced."""
        return min(LONGEST_DRAIN_SECONDS, DRAIN_SHARE * self.seconds) + self.signal_seconds

    def save(self, state: Path) -> None:
        """Write the request below a state folder."""
        save_request(state / FOLDER, self)

    @classmethod
    def load(cls, state: Path) -> "Request":
        """Read the request of a state folder.

        Raises:
            InputError: there is none, or it is damaged.
        """
        folder = state / FOLDER
        try:
            return cls(**load_request(folder, "eunomia slurm up", state))
        except (ValidationError, TypeError) as error:
            raise unreadable(folder, error) from None


def node_job_name(state: Path) -> str:
    """Return the name of the jobs that hold a state folder's nodes."""
    return f"eunomia-node-{mark_of(state)}"


def time_option(text: str, name: str = "--time", least: float = LEAST_SECONDS) -> float:
    """Return a time of a job in seconds: ``24:00:00`` or ``1-12:00:00`` as Slurm writes it, or ``36h``.

    Raises:
        InputError: it is neither, or a plain number, which is minutes for Slurm and seconds elsewhere.
    """
    if text.isdecimal():
        raise InputError(f"{name} must have a unit, or Slurm's form: 30m or 00:30:00", value=f'"{text}"')
    seconds = seconds_of(text)
    if seconds is None:
        seconds = float(parse_duration(text, name=name))
    if not least <= seconds < math.inf:
        raise InputError(f"{name} must be at least {least:g} s", value=f'"{text}"')
    return seconds


def gpus_asked(gres: str) -> tuple[str, int]:
    """Return type and number of the GPUs that a ``--gres`` asks for: ``gpu:a100:4`` or ``gpu:4``.

    Raises:
        InputError: it asks for no GPUs.
    """
    found = re.fullmatch(r"gpu(?::([A-Za-z0-9_.-]*[A-Za-z_.-][A-Za-z0-9_.-]*))?:(\d{1,4})", gres)
    if found is None or int(found.group(2)) == 0:
        raise InputError("--gres must be gpu:TYPE:NUMBER or gpu:NUMBER", value=f'"{gres}"')
    return found.group(1) or "", int(found.group(2))
