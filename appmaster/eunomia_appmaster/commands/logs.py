"""``eunomia logs``: shows a job's stdout and stderr."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from pydantic import BaseModel, ConfigDict

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_appmaster.app.master_logs import STDERR as MASTER_STDERR
from eunomia_appmaster.app.master_logs import master_logs
from eunomia_appmaster.app.names import in_order, no_such_job
from eunomia_appmaster.app.outputs import STDERR, STDOUT, output_files
from eunomia_appmaster.client import OVER, Client
from eunomia_appmaster.commands.console import Address, StateDir
from eunomia_appmaster.commands.model_flags import with_flags
from eunomia_appmaster.commands.run_apps import cancelled_jobs
from eunomia_appmaster.explaining.activity import ActivityLog
from eunomia_appmaster.explaining.job_events import CANCELLED, cancellation, event_lines
from eunomia_appmaster.launcher.output_limit import first_byte
from eunomia_appmaster.node.file_rights import as_owner

LOOK_SECONDS = 0.3
CHUNK = 1 << 16
LINES = 1000


class LogFlags(BaseModel):
    """Flags of ``eunomia logs``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job: Annotated[str, typer.Argument(metavar="JOB", help="app/number; of an app, its first job.")]
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job is over, or Ctrl-C.")] = False
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Last lines to show; 0: all.")] = LINES
    errors: Annotated[bool, typer.Option("--stderr", help="What it wrote to stderr alone.")] = False
    events: Annotated[bool, typer.Option("--events", help="Its starts, changes of size and ends instead.")] = False
    master: Annotated[bool, typer.Option("--app-master", help="The app master's log instead of a job's.")] = False
    run: Annotated[
        Path | None, typer.Option("--run", metavar="DIR", help="A finished run's folder instead of the arbiter.")
    ] = None
    address: Address = None
    state_dir: StateDir = None


@with_flags(LogFlags)
def logs(flags: LogFlags) -> int:
    """Show a job's stdout, then its stderr."""
    job, run = flags.job, flags.run
    app, _, number = job.partition("/")
    if not (number or "1").isdecimal() or not app or app in (".", ".."):
        raise InputError("a job must be written app/number", value=f'"{job}"')
    with contextlib.ExitStack() as stack:
        client = None if run is not None else stack.enter_context(Client(flags.address, state_dir=flags.state_dir))
        known = _of_arbiter(client, app) if client is not None else _of_run(run or Path(), app, job)
        stack.enter_context(as_owner(known.folder))  # for root: targets of a user's links are not shown
        shown = f"{app}/{int(number)}" if number else next(iter(known.jobs), f"{app}/1")
        if not flags.master and shown not in known.jobs and (number or known.jobs or not flags.follow):
            raise no_such_job(job, known.jobs, [app], place=None if run is None else str(run))
        if flags.events:
            _show_events(known, app, shown, flags.lines)
        else:
            _show_streams(flags, client, known, app, shown)
    return 0


def _show_streams(flags: LogFlags, client: Client | None, known: "Known", app: str, shown: str) -> None:
    streams = _streams(known.folder, shown.rpartition("/")[2], errors=flags.errors, master=flags.master)
    written = any(os.path.exists(file) for stream in streams for file in stream())  # noqa: PTH110 - any name
    if not flags.master and shown in known.waiting and not written:
        if not flags.follow:
            raise InputError(f"{shown} has not started: it waits (eunomia explain {shown} says why)")
        typer.echo(f"{shown} has not started: it waits", err=True)
    if not written and not flags.follow:
        value = f"nothing in {streams[0]()[0].parent}"
        raise InputError("a job must have written something to be shown", value=value)
    if "/" not in flags.job and not flags.master:
        typer.echo(_whose(app, shown, known), err=True)
    try:
        _show(streams, flags.lines, client if flags.follow else None, app, shown)
    except KeyboardInterrupt:
        pass
    except PermissionError as error:  # such as for a user's link to a file of another account
        raise InputError("a log must be readable", value=error.strerror, place=error.filename) from error


def _show_events(known: "Known", app: str, job: str, lines: int) -> None:
    events = [line for line in ActivityLog(known.folder, app).poll() if line.job == job]
    if job in known.cancelled:  # its app master writes nothing any more
        events.append(cancellation(job, known.cancelled[job], events))
    found = [*event_lines(events)]
    for text in found[-lines:] if lines else found:
        typer.echo(text)


@value
class Known:
    """An app, with the jobs that have logs."""

    folder: Path
    jobs: tuple[str, ...]
    """Jobs with logs, in order of their numbers."""
    waiting: frozenset[str] = frozenset()
    """Jobs that have not started, or that wait for a restart."""
    cancelled: Mapping[str, float] = field(default_factory=dict)
    """Unix time of the cancellation, by job, of the jobs that were cancelled with their app."""


def _of_arbiter(client: Client, app: str) -> Known:
    """Return the app as the arbiter knows it.

    Raises:
        InputError: there is no such app.
    """
    shown = client.app(app)
    jobs = client.list(app=app, jobs=True).jobs
    ended = shown.ended_at_unix if shown.HasField("ended_at_unix") else None
    return Known(
        folder=Path(shown.folder),
        jobs=tuple(in_order([one.job for one in jobs])),
        waiting=frozenset(one.job for one in jobs if one.state in ("waiting", "paused", "starting")),
        cancelled={} if ended is None else {one.job: ended for one in jobs if one.state == CANCELLED},
    )


def _of_run(run: Path, app: str, job: str) -> Known:
    """Read an app from a run's folder, which lacks jobs that never started.

    Raises:
        InputError: there is no such app.
    """
    apps = _folders(run / "apps")
    if not apps:
        raise InputError("a run's folder must hold apps/ to show logs of", value="none", place=str(run))
    if app not in apps:
        raise no_such_job(job, (), apps, place=str(run))
    numbers = [name for name in _folders(run / "apps" / app) if name.isdecimal()]
    jobs = in_order([f"{app}/{number}" for number in numbers])
    return Known(folder=run / "apps" / app, jobs=tuple(jobs), cancelled=cancelled_jobs(run, app))


def _folders(place: Path) -> list[str]:
    try:
        return sorted(one.name for one in place.iterdir() if one.is_dir() and not one.name.startswith("."))
    except OSError:  # no run, or a name that no disk takes
        return []


def _whose(app: str, shown: str, known: Known) -> str:
    """Return a line that names the job of the shown log, if the user named only an app."""
    others = len(known.jobs) - 1
    if others < 1:
        return f"log of {shown}, the job of {app}, from {known.folder}"
    return f"log of {shown}, the first of {app}'s {others + 1} jobs (eunomia logs {app}/N shows another's)"


Stream = Callable[[], Sequence[Path]]
"""A function that returns the present files of a stream, oldest first."""


def _streams(folder: Path, number: str, *, errors: bool, master: bool) -> list[Stream]:
    if master:
        return [partial(master_logs, folder, MASTER_STDERR)]
    return [partial(output_files, folder / number, name) for name in ([STDERR] if errors else [STDOUT, STDERR])]


def _show(streams: Sequence[Stream], lines: int, client: Client | None, app: str, job: str) -> None:
    """Write the last lines of the streams; with a client, follow them until the job has ended."""
    out = sys.stdout.buffer
    places: dict[Path, int] = {}
    ends = [_ends(stream(), lines) for stream in streams]
    if any(end.is_cut for parts in ends for end in parts):
        last = "the last line" if lines == 1 else f"the last {lines:,} lines"
        each = " of stdout and of stderr" if len(streams) > 1 else ""
        typer.echo(f"{last}{each}; earlier ones are left out (eunomia logs --lines 0 shows all)", err=True)
    for parts in ends:
        places |= {end.file: _write_from(end.file, end.start, out, until=end.size) for end in parts}
    while client is not None:
        over = _is_over(client, app, job)
        for file in [file for stream in streams for file in stream()]:
            places[file] = _write_from(file, places.get(file, 0), out)
        if over:
            return
        time.sleep(LOOK_SECONDS)


@value
class End:
    """The part of a file that is shown: from byte ``start`` up to byte ``size``, its end."""

    file: Path
    start: int
    size: int

    @property
    def is_cut(self) -> bool:
        """Whether text before ``start`` is left out."""
        if not self.start:
            return False
        with self.file.open("rb") as stream:
            return first_byte(stream.fileno()) < self.start


def _ends(files: Sequence[Path], lines: int) -> list[End]:
    """Return the ends of consecutive files that hold their last lines together; 0 lines: all."""
    left, parts = lines, list[End]()
    for file in reversed(files):
        if not os.path.exists(file):  # noqa: PTH110 - also under a name that no disk takes
            continue
        size = file.stat().st_size
        start = size
        if left or not lines:
            start = _start_of_last(file, left, size) if lines else 0
            left -= _lines_from(file, start, size) if lines else 0
        parts.insert(0, End(file=file, start=start, size=size))
    return parts


def _lines_from(file: Path, start: int, size: int) -> int:
    """Return the number of lines in a part of a file, including an incomplete last line."""
    with file.open("rb") as stream:
        place, count, last = max(start, first_byte(stream.fileno())), 0, b"\n"
        stream.seek(place)
        while place < size and (chunk := stream.read(min(CHUNK, size - place))):
            place, count, last = place + len(chunk), count + chunk.count(b"\n"), chunk[-1:]
    return count + (last != b"\n")


def _start_of_last(file: Path, lines: int, size: int) -> int:
    """Return the offset in bytes at which the last ``lines`` lines begin; 0: the file has fewer lines."""
    with file.open("rb") as stream:
        seen, place, begin = 0, size, first_byte(stream.fileno())
        while place > begin:
            step = min(CHUNK, place - begin)
            place -= step
            stream.seek(place)
            chunk = stream.read(step)
            if not chunk.strip(b"\0"):
                return place + step  # a hole that the script made
            for index in _newlines_backwards(chunk):
                if place + index == size - 1:
                    continue  # the last line's own end
                seen += 1
                if seen == lines:
                    return place + index + 1
    return 0


def _newlines_backwards(chunk: bytes) -> Iterator[int]:
    index = chunk.rfind(b"\n")
    while index >= 0:
        yield index
        index = chunk.rfind(b"\n", 0, index)


def _write_from(file: Path, place: int, out: BinaryIO, *, until: int | None = None) -> int:
    if not os.path.exists(file):  # noqa: PTH110 - also under a name that no disk takes
        return place
    with file.open("rb") as stream:
        place = max(place, first_byte(stream.fileno()))
        stream.seek(place)
        while until is None or place < until:
            chunk = stream.read(CHUNK if until is None else min(CHUNK, until - place))
            if not chunk:
                break
            out.write(chunk)
            place += len(chunk)
    out.flush()
    return place


def _is_over(client: Client, app: str, job: str) -> bool:
    answer = client.list(app=app, jobs=True)
    states = {one.job: one.state for one in answer.jobs}
    return any(one.state in OVER for one in answer.apps) or states.get(job) in OVER
