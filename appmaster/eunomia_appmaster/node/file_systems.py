"""Refuses a journal on a network file system: SQLite's write-ahead log needs memory that all its readers share."""

import re
from pathlib import Path
from typing import Final

from eunomia.errors import InputError
from eunomia.journal.files import SHARED

NETWORK: Final = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "beegfs", "gpfs", "afs"),
        *("glusterfs", "fuse.glusterfs", "fuse.ceph", "fuse.sshfs"),
    }
)
"""Types of file systems that several machines share, as ``/proc/self/mountinfo`` names them."""
MOUNTS: Final = Path("/proc/self/mountinfo")


def check_local(folder: Path, *, mounts: Path = MOUNTS) -> None:
    """Check that a folder, which need not exist yet, is not on a network file system, unless its journal is marked so.

    Args:
        folder: folder of the journal.
        mounts: the mounts of this process, as in proc_pid_mountinfo(5).

    Raises:
        InputError: it is on one.
    """
    try:
        if (folder / SHARED).exists():
            return
        kind = _type_of(folder.resolve(), mounts.read_text(errors="replace"))
    except OSError:  # no such file: not known
        return
    if kind in NETWORK:
        rule = "the arbiter's state folder must be on a local disk, since SQLite's journal needs one (--state-dir)"
        raise InputError(rule, value=f"{folder}, on {kind}")


def _type_of(folder: Path, mountinfo: str) -> str:
    """Return the type of a folder's file system; empty: not known. Of several mounts at one point the last counts."""
    point, kind = Path(), ""
    for line in mountinfo.splitlines():
        fields, _, rest = (part.split() for part in line.partition(" - "))
        if len(fields) < 5 or not rest:
            continue
        here = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4]))
        if folder.is_relative_to(here) and len(here.parts) >= len(point.parts):
            point, kind = here, rest[0]
    return kind
