"""The request of ``eunomia slurm up``: a file in the state folder that the head and the nodes read."""

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
"""Shortest time of a node in seconds: a shorter one would end before a job has made useful progress."""
LEAST_HEAD_SECONDS: Final = 120.0
"""Shortest time of a head in seconds; Slurm signals the head a minute before its end."""
LONGEST_SIGNAL_SECONDS: Final = 120.0
SIGNAL_SHARE: Final = 1.0 / 6.0
"""Fraction of a node's time that remains after Slurm's signal to end, at most ``LONGEST_SIGNAL_SECONDS``."""
END_MARGIN_SECONDS: Final = 30.0
DRAIN_SHARE: Final = 0.2
LONGEST_DRAIN_SECONDS: Final = 600.0
"""Fraction of a node's time before its end for which it is drained, and the longest such period in seconds."""


class Request(BaseModel):
    """The requested nodes, and the jobs that hold them.

    Attributes:
        least: minimum number of nodes.
        most: maximum number of nodes, while jobs wait for slots.
        nodes_per_job: number of nodes of a batch job, of which ``least`` and ``most`` are multiples.
        seconds: time limit of a node's batch job.
        gres: GRES of a node in Slurm's syntax; empty: none.
        cpu_slots: number of CPU slots per node instead of its GPUs; None: the node's GPUs are the slots.
        cpus: number of CPUs per node; None: Slurm's default.
        memory_mib: memory per node in MiB; None: Slurm's default.
        setup: file that a node's shell sources before the launcher starts; None: there is none.
        more: additional options of ``sbatch``.
        python: interpreter on the nodes.
        node_dir: folder on a node's local disk with the node's own files.
        idle_seconds: seconds without leases after which a node above ``least`` is given back.
        wait_seconds: seconds for which jobs must have waited for slots before another node is requested.
        head: where the head runs: ``here``, the machine of ``up``, or ``job``, a batch job.
        head_partition: partition of the head's job; empty: that of the nodes.
        head_seconds: time limit of the head's job; None: that of a node.
        allocation: id of the user's own job whose nodes are used; empty: the nodes are batch jobs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    least: Annotated[int, Field(ge=1, le=10_000)]
    most: Annotated[int, Field(ge=1, le=10_000)]
    nodes_per_job: Annotated[int, Field(ge=1, le=10_000)] = 1
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
        """Seconds for workers to save once a node's launcher is ordered to end."""
        return max(5, self.signal_seconds // 2)

    @property
    def end_seconds(self) -> float:
        """Seconds within which a node must end after the order; then Slurm is requested to kill it."""
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
            InputError: there is no request, or it is damaged.
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
    """Parse a job's time, ``24:00:00`` or ``1-12:00:00`` (Slurm's forms) or ``36h``, to seconds.

    Raises:
        InputError: another form or below ``least``; also a plain number: minutes in Slurm, seconds elsewhere.
    """
    if text.isdecimal():
        raise InputError(f"{name} must have a unit, or Slurm's form: 30m or 00:30:00", value=f'"{text}"')
    seconds = seconds_of(text)
    if seconds is None:
        seconds = float(parse_duration(text, name=name))
    if not least <= seconds < math.inf:
        raise InputError(f"{name} must be at least {least:g} s", value=f'"{text}"')
    return seconds


def check_whole_jobs(least: int, most: int, nodes_per_job: int) -> None:
    """Check that jobs of ``nodes_per_job`` nodes give each bound of ``--nodes`` exactly.

    Raises:
        InputError: a bound is not a multiple.
    """
    if least % nodes_per_job or most % nodes_per_job:
        rule = f"both ends of --nodes must be multiples of --nodes-per-job, {nodes_per_job}"
        raise InputError(rule, value=str(least) if least == most else f"{least}..{most}", place="--nodes")


def gpus_asked(gres: str) -> tuple[str, int]:
    """Parse ``--gres``, such as ``gpu:a100:4`` or ``gpu:4``, to type (may be empty) and number of the GPUs.

    Raises:
        InputError: the text names no GPUs.
    """
    found = re.fullmatch(r"gpu(?::([A-Za-z0-9_.-]*[A-Za-z_.-][A-Za-z0-9_.-]*))?:(\d{1,4})", gres)
    if found is None or int(found.group(2)) == 0:
        raise InputError("--gres must be gpu:TYPE:NUMBER or gpu:NUMBER", value=f'"{gres}"')
    return found.group(1) or "", int(found.group(2))
