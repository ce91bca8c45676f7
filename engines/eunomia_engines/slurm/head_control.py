"""Starts, shows and ends the head of a cluster on Slurm, on this machine or in a batch job."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from eunomia.errors import EunomiaError, InputError
from eunomia.journal.files import SHARED
from eunomia_engines.engine import EngineNode, NodeState
from eunomia_engines.head.files import DOWN, head_process, read_record
from eunomia_engines.head.head import LAST_SECONDS
from eunomia_engines.head.starting import (
    END_SECONDS,
    START_SECONDS,
    check_may_begin,
    end_head,
    head_line,
    last_line,
    start_head,
)
from eunomia_engines.slurm.head_job import HeadJobs
from eunomia_engines.slurm.programs import SlurmPrograms
from eunomia_engines.slurm.request import FOLDER, NAMES, Request
from eunomia_engines.slurm.script import LOGS

POLL_SECONDS: Final = 3.0


class HeadControl:
    """Controls the head of a state folder.

    Args:
        request: the request of ``eunomia slurm up``.
        state: the arbiter's state folder.
        programs: calls Slurm's programs.
    """

    def __init__(self, request: Request, state: Path, programs: SlurmPrograms | None = None) -> None:
        self._request, self._state, self._folder = request, state, state / FOLDER
        self._jobs = HeadJobs(request, state, programs or SlurmPrograms())

    def prepare(self) -> None:
        """Check that a head may start in the state folder, and create the engine's folder there.

        Raises:
            InputError: a head runs, here or in a batch job; another engine provides the nodes; or it is not writable.
        """
        if found := self._jobs.active():
            rule = f"a state folder must have one head: {NAMES.down} ends it, and up begins with other options"
            raise InputError(rule, value=_ids(found), place=str(self._state))
        self._check_nodes_per_job()
        if self._request.head == "job":
            self._state.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self._state / SHARED).touch(mode=0o600)
        check_may_begin(NAMES, self._state)

    def _check_nodes_per_job(self) -> None:
        """Check that the jobs which a previous head left have as many nodes as those of this request.

        Raises:
            InputError: they have another number of nodes.
        """
        try:
            before = Request.load(self._state).nodes_per_job
        except InputError:  # the first request, or a damaged one
            return
        if before != self._request.nodes_per_job and (left := self._jobs.active_nodes()):
            rule = f"--nodes-per-job must be that of the jobs that are there, {before}: {NAMES.down} ends them"
            raise InputError(rule, value=f"{self._request.nodes_per_job} ({_ids(left)})", place=str(self._state))

    def start(self) -> str:
        """Start the head, and wait until it serves.

        Returns:
            Message about what the head waits for in Slurm's queue; empty: it serves.

        Raises:
            EunomiaError: the head does not serve in time; an ``InputError`` if it has ended.
        """
        if self._request.head == "here":
            start_head(NAMES, self._state)
            return ""
        before = int(read_record(self._folder).get("number", 0))
        return self._await_job(self._jobs.ask(), before)

    def end(self, *, now: bool) -> None:
        """End the head and wait for its end; unless ``now`` is set, all its nodes end first.

        Raises:
            EunomiaError: the head does not end in time.
        """
        end_head(NAMES, self._state, now=now)
        if self._request.head == "here":
            return  # Slurm, which may be silent, has no head to end
        order = self._folder / DOWN
        if not now:
            order.touch(mode=0o600)
        try:
            self._end_jobs(END_SECONDS + (0.0 if now else LAST_SECONDS))
        finally:
            order.unlink(missing_ok=True)

    def facts(self) -> tuple[str, dict[str, Any] | None]:
        """Return the head's state as a line of text, and as a JSON object; None: there is no head."""
        pid = head_process(self._folder)
        if self._request.head == "here" or pid is not None:
            return head_line(NAMES, self._state), None if pid is None else {"pid": pid}
        jobs, record = self._jobs.active(), read_record(self._folder)
        runs = next((job for job in jobs if job.state is not NodeState.ASKED), None)
        waits = next((job for job in jobs if job.state is NodeState.ASKED), None)
        if runs is None and waits is None:
            return f"{head_line(NAMES, self._state)} ({self._last_words()})", None
        serves = runs is not None and str(record.get("job", "")) == runs.id
        parts = [] if runs is None else [f"job {runs.id} {'serves' if serves else 'starts'} on {runs.host}"]
        parts += [] if waits is None else [f"{'next: ' if runs else ''}job {waits.id} waits ({waits.why})"]
        facts = {"job": None if runs is None else runs.id, "next": None if waits is None else waits.id}
        return f"head      {', '.join(parts)}", {**facts, "serves": serves, "host": None if runs is None else runs.host}

    def _await_job(self, job: str, before: int) -> str:
        """Wait until the head in a job serves, or its job still waits in the queue after the limit; see ``start``."""
        began = time.monotonic()
        while int(read_record(self._folder).get("number", 0)) <= before:
            seen = next((one for one in self._jobs.active() if one.id == job), None)
            if seen is None:
                log = self._folder / LOGS / f"head-{job}.log"
                raise InputError("the head must serve", value=_last_line(log), place=str(log))
            if time.monotonic() - began > START_SECONDS:
                if seen.state is NodeState.ASKED:
                    return f"job {job} waits in Slurm's queue ({seen.why}); the head serves once it starts"
                raise EunomiaError(f"within {START_SECONDS:g} s, this must be true: the head in job {job} serves")
            time.sleep(POLL_SECONDS)
        return ""

    def _end_jobs(self, seconds: float) -> None:
        """End the heads in batch jobs, including a next head that the running one requests meanwhile."""
        deadline = time.monotonic() + seconds
        while left := self._jobs.active():
            if time.monotonic() > deadline:
                self._jobs.kill()
                raise EunomiaError(f"within {seconds:g} s, this must be true: the head ends", value=_ids(left))
            self._jobs.end()
            time.sleep(POLL_SECONDS)

    def _last_words(self) -> str:
        logs = sorted((self._folder / LOGS).glob("head-*.log"), key=lambda path: path.stat().st_mtime)
        return f"{_last_line(logs[-1])}; {logs[-1]}" if logs else "no log of one"


def _last_line(log: Path) -> str:
    return last_line(log) if log.exists() else "no log"


def _ids(jobs: Sequence[EngineNode]) -> str:
    return ", ".join(f"job {job.id}" for job in jobs)
