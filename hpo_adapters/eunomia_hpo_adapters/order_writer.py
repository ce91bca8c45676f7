"""Write a file of orders: one driver at a time, whole lines only, and only orders that the app accepts."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from eunomia.errors import InputError
from eunomia_appmaster.app.space import Parameters
from eunomia_hpo_adapters.trial_orders import MOST_LINE_BYTES, End, OrderReader, Pause, Resume, Start, Stop, TrialOrder


class OrderWriter:
    """Appends orders to a file, which stays locked while it is open, so that a second driver is refused.

    Pickling does not keep the lock: an unpickled writer acquires it again at the next order.

    Args:
        path: path of the file; created if missing.
        started: number of trials that this driver has started in the file so far.

    Raises:
        InputError: another driver has the file open, or the file starts a number of trials other than ``started``.
        OSError: the file cannot be created or read.
    """

    def __init__(self, path: Path, *, started: int = 0) -> None:
        self.path = path
        self.started = started
        self._file: int | None = None
        self._open()

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release the file."""
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, which excludes the open file."""
        return {"path": self.path, "started": self.started, "_file": None}

    def close(self) -> None:
        """Release the file, for another driver."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def start(self, parameters: Parameters) -> int:
        """Append an order to start a new trial, and return the trial's number.

        Raises:
            InputError: a parameter has a name or a value that a command line cannot contain.
        """
        number = self.started + 1
        try:
            order = Start(trial=number, parameters=dict(parameters))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(
                f"a trial must have parameters that a command line can have ({first['msg']})",
                value=repr(first["input"])[:200],
                place=f"trial {number}, {where}",
            ) from error
        self._write(order)
        self.started = number
        return number

    def pause(self, trial: int) -> None:
        """Append an order to suspend a trial."""
        self._write(Pause(trial=self._known(trial)))

    def resume(self, trial: int) -> None:
        """Append an order to resume a paused trial."""
        self._write(Resume(trial=self._known(trial)))

    def stop(self, trial: int) -> None:
        """Append an order to end a trial."""
        self._write(Stop(trial=self._known(trial)))

    def end(self) -> None:
        """Append an order to end the app."""
        self._write(End())

    def _known(self, trial: int) -> int:
        if not 1 <= trial <= self.started:
            raise InputError(f"trial must be one of the {self.started} that were started", value=str(trial))
        return trial

    def _write(self, order: TrialOrder) -> None:
        line = order.line().encode()
        if len(line) >= MOST_LINE_BYTES:
            rule = f"an order must have less than {MOST_LINE_BYTES} bytes"
            raise InputError(rule, value=f"{len(line)} bytes", place=str(self.path))
        file = self._open()
        before = os.fstat(file).st_size
        try:
            written = os.write(file, line)
            if written < len(line):
                raise OSError(f"only {written} of {len(line)} bytes could be written to {self.path}")
        except OSError:
            with suppress(OSError):
                os.ftruncate(file, before)  # a partial line would corrupt the next order
            raise

    def _open(self) -> int:
        """Open and lock the file unless it is open, and check that it starts as many trials as this driver has."""
        if self._file is not None:
            return self._file
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            _lock(file, self.path)
            found = _started_in(self.path)
            if found != self.started:
                rule = f"a file of orders must have the {self.started} trials that its driver has started"
                raise InputError(rule, value=str(found), place=str(self.path))
        except BaseException:
            os.close(file)
            raise
        self._file = file
        return file


def _lock(file: int, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        rule = "a file of orders must have one driver at a time"
        raise InputError(rule, value="a second one", place=str(path)) from error


def _started_in(path: Path) -> int:
    """Return the number of trials that a file starts."""
    reader, started, before = OrderReader(path), 0, -1
    while reader.position.offset != before:
        before = reader.position.offset
        orders, errors = reader.read()
        if errors:
            raise errors[0]
        started += sum(isinstance(read.order, Start) for read in orders)
    return started
