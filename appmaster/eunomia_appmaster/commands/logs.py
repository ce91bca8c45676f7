"""``eunomia logs``: what a job has written."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from eunomia.errors import InputError
from eunomia_appmaster.client import OVER, Client
from eunomia_appmaster.commands.console import Address, StateDir

LOOK_SECONDS = 0.3
CHUNK = 1 << 16
LINES = 1000


def logs(
    job: Annotated[str, typer.Argument(metavar="JOB", help="app/number; an app of one job goes by its name.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job is over, or Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Last lines to show; 0: all.")] = LINES,
    errors: Annotated[bool, typer.Option("--stderr", help="What it wrote to stderr alone.")] = False,
    master: Annotated[bool, typer.Option("--app-master", help="The app master's log instead of a job's.")] = False,
    run: Annotated[
        Path | None, typer.Option("--run", metavar="DIR", help="A finished run's folder instead of the arbiter.")
    ] = None,
    address: Address = None,
    state_dir: StateDir = None,
) -> None:
    """Show what a job has written to stdout and stderr."""
    app, _, number = job.partition("/")
    if not (number or "1").isdecimal() or not app or app in (".", ".."):
        raise InputError("a job must be written app/number", value=f'"{job}"')
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(Client(address, state_dir=state_dir)) if run is None else None
        folder = Path(client.app(app).folder) if client is not None else (run or Path()) / "apps" / app
        files = _files(folder, number or "1", errors=errors, master=master)
        if not any(map(os.path.exists, files)) and not follow:
            raise InputError("a job must have written something to be shown", value=f"nothing in {files[0].parent}")
        with contextlib.suppress(KeyboardInterrupt):
            _show(files, lines, client if follow else None, app, job if number else f"{app}/1")


def _files(folder: Path, number: str, *, errors: bool, master: bool) -> list[Path]:
    if master:
        return [folder / "appmaster.err.log"]
    return (
        [folder / number / "stderr.log"]
        if errors
        else [folder / number / name for name in ("stdout.log", "stderr.log")]
    )


def _show(files: Sequence[Path], lines: int, client: Client | None, app: str, job: str) -> None:
    """Write the ends of the files; with a client, go on until the job is over."""
    out = sys.stdout.buffer
    places = {file: _write_end(file, lines, out) for file in files}
    while client is not None:
        over = _is_over(client, app, job)
        for file, place in places.items():
            places[file] = _write_from(file, place, out)
        if over:
            return
        time.sleep(LOOK_SECONDS)


def _write_end(file: Path, lines: int, out: BinaryIO) -> int:
    """Write the last lines, and return where the file ended."""
    if not os.path.exists(file):  # noqa: PTH110 - also under a name that no disk takes
        return 0
    size = file.stat().st_size
    start = _start_of_last(file, lines, size) if lines else 0
    return _write_from(file, start, out, until=size)


def _start_of_last(file: Path, lines: int, size: int) -> int:
    """Where the last lines begin, looking from the end."""
    with file.open("rb") as stream:
        seen, place = 0, size
        while place > 0:
            step = min(CHUNK, place)
            place -= step
            stream.seek(place)
            chunk = stream.read(step)
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
