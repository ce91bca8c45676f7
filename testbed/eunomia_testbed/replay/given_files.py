"""The files by which a replay at a running arbiter finds its apps and its part of the arbiter's record again.

``at.json`` in the replay's folder has the prefix of its apps' names and the users that it has added; ``arbiter.json``
in a run's folder has the run's part of the record, and ``arbiter.state`` the arbiter's state from which it begins.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from eunomia.errors import InputError
from eunomia.journal.journal import SavedState
from eunomia.model.shapes import value
from eunomia_testbed.live_runs.record import LiveRecord
from eunomia_testbed.live_runs.run_part import RunPart
from eunomia_testbed.results.writing import write_text

AT: Final = "at.json"
PART: Final = "arbiter.json"
STATE: Final = "arbiter.state"
PREFIX: Final = "replay-"
"""Beginning of the names of all apps of replays at an arbiter that runs."""


@value
class AtFile:
    """The content of ``at.json``.

    Attributes:
        tag: drawn once for a replay; the names of its apps begin with ``replay-TAG-``.
        runs: number of runs that were begun, of measurements and of interrupted ones too.
        users: the users that the replay has added and not removed.
    """

    tag: str
    runs: int = 0
    users: tuple[str, ...] = ()

    @property
    def prefix(self) -> str:
        """Return the beginning of the names of all apps of the replay."""
        return f"{PREFIX}{self.tag}-"

    def write(self, out: Path) -> None:
        """Write the file to a replay's folder."""
        write_text(json.dumps(dataclasses.asdict(self)) + "\n", out / AT)

    @classmethod
    def read(cls, out: Path) -> Self:
        """Read the file of a replay's folder; a new one with another tag, if there is none.

        Raises:
            InputError: the file is damaged.
        """
        try:
            plain = json.loads((out / AT).read_text(encoding="utf-8"))
            return cls(tag=str(plain["tag"]), runs=int(plain["runs"]), users=tuple(map(str, plain["users"])))
        except FileNotFoundError:
            return cls(tag=secrets.token_hex(3))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{AT} of a replay's folder must be whole", value=repr(error), place=str(out)) from error


def write_part(folder: Path, state_dir: Path, part: RunPart) -> None:
    """Write a run's part of an arbiter's record to the run's folder.

    Args:
        folder: folder of the run.
        state_dir: the arbiter's state folder.
        part: the part.
    """
    begun = part.begun
    if begun is not None:
        (folder / STATE).write_bytes(begun.state)
    plain = {
        "state_dir": str(state_dir),
        "begun": None if begun is None else {"after_step": begun.after_step, "at": begun.at},
        "after_step": part.after_step,
        "until_step": part.until_step,
        "names": dict(part.names or {}),
    }
    write_text(json.dumps(plain) + "\n", folder / PART)


def record_of_run(folder: Path) -> LiveRecord:
    """Return the record of a real run: that of its folder, or its part of the record of an arbiter that runs.

    Raises:
        InputError: the files of the run's part are damaged.
    """
    if not (folder / PART).is_file():
        return LiveRecord(folder)
    try:
        plain = json.loads((folder / PART).read_text(encoding="utf-8"))
        begun = plain["begun"]
        state = None if begun is None else SavedState(**begun, state=(folder / STATE).read_bytes())
        part = RunPart(
            names=dict(plain["names"]),
            begun=state,
            after_step=int(plain["after_step"]),
            until_step=None if plain["until_step"] is None else int(plain["until_step"]),
        )
        return LiveRecord(Path(plain["state_dir"]), part)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{PART} of a run must be whole", value=repr(error), place=str(folder)) from error


def next_prefix(out: Path) -> str:
    """Count one more run in ``at.json``, and return the beginning of the names of its apps."""
    at = AtFile.read(out)
    dataclasses.replace(at, runs=at.runs + 1).write(out)
    return f"{at.prefix}{at.runs}-"


def write_users(out: Path, users: Sequence[str]) -> None:
    """Replace the users in ``at.json``."""
    dataclasses.replace(AtFile.read(out), users=tuple(users)).write(out)
