"""``eunomia tensorboard``: shows an app's logs in TensorBoard on this machine, one run per trial."""

import contextlib
import json
import logging
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from eunomia.errors import InputError
from eunomia_appmaster.app.names import no_such_app
from eunomia_appmaster.client import Client
from eunomia_appmaster.commands.console import Address, AsJson, StateDir
from eunomia_appmaster.node.file_rights import as_owner

HOST = "127.0.0.1"
LOOK_SECONDS = 3.0
"""Seconds between two checks for trials that have begun to log."""
OK = 0


def tensorboard(
    app: Annotated[str, typer.Argument(metavar="APP")],
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=0, max=65535, help="Of TensorBoard; 0: a free one. Default: 6006, or the next free."
        ),
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--run", metavar="DIR", help="A run's folder instead of the arbiter.")
    ] = None,
    as_json: AsJson = False,
    address: Address = None,
    state_dir: StateDir = None,
) -> int:
    """Show an app's logs in TensorBoard on this machine until Ctrl-C, a run for each trial."""
    folder = _of_arbiter(app, address, state_dir) if run is None else _of_run(run, app)
    with as_owner(folder):
        found = log_folders(folder)
    if not found:
        value = f"no logs of {app} in {folder}"
        raise InputError("an app must have logged something to be shown in TensorBoard", value=value)
    with (
        as_owner(folder),  # for root: targets of a user's links are not shown
        _interruptible() as stopped,
        tempfile.TemporaryDirectory(prefix="eunomia-tensorboard-") as made,
    ):
        runs = Path(made) / app
        runs.mkdir()
        _link(folder, runs)
        url = _launch(Path(made), port)
        trials = sorted(int(link.name) for link in runs.iterdir())
        facts = {"schema": "eunomia/tensorboard@1", "app": app, "url": url, "runs": [f"{app}/{one}" for one in trials]}
        names = f"{app}/{trials[0]}" + ("" if len(trials) == 1 else f" to {app}/{trials[-1]}")
        count = "1 trial" if len(trials) == 1 else f"{len(trials)} trials"
        typer.echo(json.dumps(facts) if as_json else f"TensorBoard of {count}, {names}: {url}   Ctrl-C ends it")
        while not stopped.wait(LOOK_SECONDS):
            _link(folder, runs)
    return OK


def log_folders(folder: Path) -> Mapping[int, Path]:
    """Return the log folders of an app by trial number; empty: there are none, or they cannot be read here.

    Args:
        folder: folder of the app.
    """
    from eunomia_appmaster.profiler.writers import is_event_file

    found: dict[int, Path] = {}
    with contextlib.suppress(OSError):
        for trial in folder.iterdir():
            logs = trial / "logs"
            if trial.name.isdecimal() and logs.is_dir() and any(is_event_file(file.name) for file in logs.iterdir()):
                found[int(trial.name)] = logs.resolve()
    return found


def _of_arbiter(app: str, address: str | None, state_dir: Path | None) -> Path:
    """Return an app's folder.

    Raises:
        InputError: there is no such app.
    """
    with Client(address, state_dir=state_dir) as client:
        return Path(client.app(app).folder)


def _of_run(run: Path, app: str) -> Path:
    """Return an app's folder in a run's folder.

    Raises:
        InputError: there is no such app.
    """
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted(one.name for one in (run / "apps").iterdir() if one.is_dir() and not one.name.startswith("."))
    if app not in names:
        raise no_such_app(app, names, place=str(run))
    return run / "apps" / app


def _link(folder: Path, runs: Path) -> None:
    """Create a link to the logs of each trial that has begun to log, so that TensorBoard shows runs by trial names."""
    for trial, logs in log_folders(folder).items():
        with contextlib.suppress(FileExistsError):
            (runs / str(trial)).symlink_to(logs, target_is_directory=True)


def _launch(logs: Path, port: int | None) -> str:
    """Start TensorBoard in threads of this process; returns its address.

    Raises:
        InputError: the port is in use.
    """
    from tensorboard import program

    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    board = program.TensorBoard()
    # The fast loader is a process of its own, which would not end with this one.
    words = ["tensorboard", "--logdir", str(logs), "--host", HOST, "--load_fast", "false", "--reload_interval", "3"]
    board.configure(argv=words if port is None else [*words, "--port", str(port)])
    try:
        return str(board.launch())
    except program.TensorBoardServerException as error:
        raise InputError("--port must be free", value=str(port or error), place="--port") from error


@contextlib.contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Provide an event that Ctrl-C and SIGTERM set; a context manager."""
    stopped = threading.Event()

    def stop(*_: Any) -> None:
        stopped.set()

    before = {kind: signal.signal(kind, stop) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
