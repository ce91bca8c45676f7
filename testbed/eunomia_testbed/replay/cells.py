"""The list of a replay's real runs, kept in its folder, so that a resumed replay skips the runs that are done."""

import dataclasses
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.words import shown
from eunomia_testbed.replay.pace import RunPace
from eunomia_testbed.results.writing import write_text

NAME: Final = "replay.json"
SCHEMA: Final = "eunomia/replay@1"
RUNS: Final = "runs"
"""Subfolder with the state folder of each real run."""
DONE: Final = "done.json"


@value
class RealRun:
    """One real run: a policy in one repeat."""

    policy: str
    repeat: int
    """Number of the repeat, from 0."""
    seed: int

    @property
    def folder(self) -> str:
        """Return the name of the run's state folder, which is unique in its replay."""
        return f"{re.sub(r'[^A-Za-z0-9._-]', '_', self.policy)}-{self.repeat}"

    @property
    def name(self) -> str:
        """Return the run as text, such as ``las, repeat 1``."""
        return f"{self.policy}, repeat {self.repeat + 1}"


@value
class RunRecord:
    """The values of a finished real run that the tables need besides its state folder.

    Attributes:
        began_at: Unix time of the first submission.
        ended_at: Unix time of the end.
        late_seconds: largest delay of a submission after its planned time.
        pace: the pace of the slots; a run whose slots were too slow does not count.
        faults: why the run does not count for other reasons, such as apps of others on a running arbiter.
    """

    began_at: float
    ended_at: float
    late_seconds: float
    pace: RunPace
    faults: tuple[str, ...] = ()


@value
class Replay:
    """The content of ``replay.json``: the flags, a hash of the plan, and the real runs in order.

    Attributes:
        flags: the command's flags, from which a resumed replay makes the same plan.
        folder: working folder of the command, to which the flags' paths are relative.
        plan: hash of the plan.
        runs: the real runs in the order in which they are made.
    """

    flags: Mapping[str, Any]
    folder: str
    plan: str
    runs: tuple[RealRun, ...]

    def write(self, out: Path) -> None:
        """Write ``replay.json`` to a replay's folder."""
        runs = [dataclasses.asdict(run) for run in self.runs]
        plain = {"schema": SCHEMA, "folder": self.folder, "plan": self.plan, "runs": runs, "flags": dict(self.flags)}
        write_text(json.dumps(plain, indent=2, ensure_ascii=False) + "\n", out / NAME)

    @classmethod
    def read(cls, out: Path) -> Self:
        """Read ``replay.json`` of a replay's folder.

        Raises:
            InputError: the folder has no valid ``replay.json``.
        """
        rule = "--resume must name a folder that eunomia replay left"
        try:
            plain = json.loads((out / NAME).read_text(encoding="utf-8"))
            if plain["schema"] != SCHEMA:
                raise InputError(rule, value=f"{NAME} of {shown(plain['schema'])}", place=str(out))
            return cls(
                flags=plain["flags"],
                folder=plain["folder"],
                plan=plain["plan"],
                runs=tuple(RealRun(**run) for run in plain["runs"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(rule, value=f"a folder without a whole {NAME}", place=str(out)) from error


def interleaved(policies: Sequence[str], seeds: Sequence[int]) -> tuple[RealRun, ...]:
    """Return the runs by repeat; each repeat begins with another policy, so that no policy is always first.

    So a drift in the machine's speed affects all policies alike.
    """
    runs = []
    for repeat, seed in enumerate(seeds):
        first = repeat % len(policies)
        order = [*policies[first:], *policies[:first]]
        runs += [RealRun(policy=policy, repeat=repeat, seed=seed) for policy in order]
    return tuple(runs)


def state_folder(out: Path, run: RealRun) -> Path:
    """Return the state folder of a real run."""
    return out / RUNS / run.folder


def is_done(out: Path, run: RealRun) -> bool:
    """Return whether a real run has ended with all its jobs."""
    return (state_folder(out, run) / DONE).is_file()


def write_done(out: Path, run: RealRun, record: RunRecord) -> None:
    """Mark a real run as done."""
    plain = {
        "began_at": record.began_at,
        "ended_at": record.ended_at,
        "late_seconds": record.late_seconds,
        "pace": record.pace.to_plain(),
        "faults": list(record.faults),
    }
    write_text(json.dumps(plain) + "\n", state_folder(out, run) / DONE)


def read_done(out: Path, run: RealRun) -> RunRecord:
    """Return the record of a run that is done."""
    plain = json.loads((state_folder(out, run) / DONE).read_text(encoding="utf-8"))
    return RunRecord(**plain | {"pace": RunPace.from_plain(plain["pace"]), "faults": tuple(plain.get("faults", ()))})


def invalid_runs(out: Path, runs: Sequence[RealRun]) -> list[str]:
    """Return a line for each done run that does not count, with the reason."""
    done = [(run, read_done(out, run)) for run in runs if is_done(out, run)]
    why = [(run, (*record.faults, *record.pace.faults)) for run, record in done]
    return [f"{run.name}: {'; '.join(faults)}" for run, faults in why if faults]


def cleared(out: Path, run: RealRun) -> Path:
    """Return a run's state folder, new and empty; the files of an interrupted attempt are deleted."""
    folder = state_folder(out, run)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
