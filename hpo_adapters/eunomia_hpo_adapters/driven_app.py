"""An app that the present program submits and monitors, and whose trials it controls by a file of orders."""

import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eunomia.errors import EunomiaError, InputError, UnreachableError
from eunomia.platform.toml_bounds import parse_toml
from eunomia_appmaster.app.trials_file import read_trials_file
from eunomia_appmaster.client import Client
from eunomia_appmaster.master.jobs import JobState
from eunomia_hpo_adapters.order_writer import OrderWriter

LOOK_SECONDS = 5.0
"""Minimum seconds between two queries of the app's state at the arbiter, and the timeout of a query."""
OVER = ("finished", "failed", "cancelled")


class DrivenApp:
    """An app with the tuner ``external``, and the writer of its orders.

    Attributes:
        name: name of the app.
        folder: folder of the app, in the arbiter's state directory.
        orders: writer of the app's orders.

    Args:
        app_file: app file; without ``[tuner]``, a file of orders is created in the same folder.
        address: address of the arbiter; see ``Client``.
        token_file: see ``Client``.
        state_dir: see ``Client``.

    Raises:
        InputErrors: all errors of the app file.
        InputError: the app file names another tuner, or its file of orders already has a driver or orders.
        UnreachableError: no arbiter answers.
    """

    def __init__(
        self,
        app_file: Path | str,
        *,
        address: str | None = None,
        token_file: Path | str | None = None,
        state_dir: Path | str | None = None,
    ) -> None:
        app_file = Path(app_file)
        self._connection: Mapping[str, Any] = {
            "address": address,
            "token_file": token_file,
            "state_dir": state_dir,
            "timeout_seconds": LOOK_SECONDS,
        }
        self._looked_at = time.monotonic()
        text, path = _with_orders(app_file)
        self.orders = OrderWriter(path)
        try:
            with Client(**self._connection) as client:
                self.name = client.submit(app_file, text=text).name
                self.folder = Path(client.app(self.name).folder)
        except BaseException:
            self.orders.close()
            if not path.stat().st_size:
                path.unlink()
            raise

    def states(self) -> dict[int, JobState]:
        """Return the state of each trial by number, at most a few seconds old; new trials may be missing."""
        rows = read_trials_file(self.folder)
        return {int(row["job"].rpartition("/")[2]): JobState(row["state"]) for row in rows}

    def run_folder(self, trial: int) -> Path:
        """Return the folder of a trial, with its logs, checkpoints and output."""
        return self.folder / str(trial)

    def check(self) -> None:
        """Check that the app has not ended; the arbiter is queried at most once every ``LOOK_SECONDS``.

        If the arbiter does not answer, it is queried again later: trials continue without the arbiter.

        Raises:
            EunomiaError: the app has ended, so that its trials will never report again.
        """
        if time.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        try:
            with Client(**self._connection) as client:
                app = client.app(self.name)
        except UnreachableError:
            return
        if app.state in OVER:
            raise EunomiaError(f"app {self.name} must run for its search to go on", value=_end(app.state, app.why))


def _end(state: str, why: str) -> str:
    return f"{state}: {why}" if why else state


def _with_orders(app_file: Path) -> tuple[str, Path]:
    """Return the text of an app file with the tuner ``external``, and the path of its file of orders."""
    try:
        text = app_file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("an app file must be readable text", value=str(error), place=str(app_file)) from error
    tuner = parse_toml(text, "an app file", place=app_file.name).get("tuner")
    if tuner is None:
        path = app_file.resolve().with_name(f"{app_file.stem}.orders-{uuid.uuid4().hex[:8]}.jsonl")
        if '"' in str(path) or "\\" in str(path) or not str(path).isprintable():
            rule = "the folder of an app file must have a name without quotes, backslashes and control characters"
            raise InputError(rule, value=str(path.parent))
        return f'{text}\n\n[tuner]\nkind = "external"\norders = "{path}"\n', path
    place = f"{app_file.name}, [tuner]"
    if not isinstance(tuner, dict) or tuner.get("kind") != "external":
        kind = tuner.get("kind", "none") if isinstance(tuner, dict) else tuner
        raise InputError('[tuner].kind must be "external", or [tuner] be left out', value=f'"{kind}"', place=place)
    if not isinstance(tuner.get("orders"), str):
        raise InputError("orders must be the absolute path of a file", value=str(tuner.get("orders")), place=place)
    return text, Path(tuner["orders"])
