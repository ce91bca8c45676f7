"""The file of orders to which a driver outside the app appends, and its reader.

Each line is an order in JSON. Lines are read once, in order, as the file grows: text after the last line end is not
read yet, since the driver may still be writing it. A line that is not an order is skipped and reported as an error.
"""

import math
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StrictInt,
    TypeAdapter,
    ValidationError,
    field_validator,
)

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_appmaster.app.app_tables import MOST_TRIALS, PARAMETER
from eunomia_appmaster.app.command import PLACEHOLDERS
from eunomia_appmaster.app.space import Parameter

MOST_LINE_BYTES = 64 * 1024
"""Exclusive upper bound on the bytes of an order, including its line end."""
MOST_BYTES_AT_ONCE = 4 * MOST_LINE_BYTES
"""Maximum number of bytes that one call reads, so that a long file does not delay the app."""
MOST_SHOWN = 120
"""Maximum number of characters of an invalid line in its error message."""


def _plain(given: object) -> Parameter:
    if not isinstance(given, bool | int | float | str):
        raise ValueError("a parameter must be a number, a text, true or false")
    if isinstance(given, float) and not math.isfinite(given):
        raise ValueError("a parameter must be finite")
    if isinstance(given, str) and "\0" in given:
        raise ValueError("a parameter must be printable")
    return given


class _Order(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def line(self) -> str:
        """Return the order as a line of the file, including the line end."""
        return self.model_dump_json() + "\n"


class _TrialOrder(_Order):
    trial: Annotated[StrictInt, Field(ge=1, le=MOST_TRIALS)]
    """Number of the trial, from 1."""


class Start(_TrialOrder):
    """Start a new trial; ``trial`` must be the number of trials started so far plus 1."""

    order: Literal["start"] = "start"
    parameters: dict[str, Annotated[Any, PlainValidator(_plain)]] = Field(default_factory=dict)

    @field_validator("parameters")
    @classmethod
    def _check(cls, given: dict[str, Parameter]) -> dict[str, Parameter]:
        for name in given:
            if not PARAMETER.fullmatch(name) or name in PLACEHOLDERS:
                raise ValueError(f"no parameter may be named {name!r}")
        return given


class Pause(_TrialOrder):
    """Suspend a trial at a checkpoint until it is resumed; its slots are free for other trials and apps."""

    order: Literal["pause"] = "pause"


class Resume(_TrialOrder):
    """Resume a paused trial from its checkpoint."""

    order: Literal["resume"] = "resume"


class Stop(_TrialOrder):
    """End a trial permanently."""

    order: Literal["stop"] = "stop"


class End(_Order):
    """End the app: running trials are stopped, and no further orders are read."""

    order: Literal["end"] = "end"


TrialOrder = Start | Pause | Resume | Stop | End
_ORDERS: TypeAdapter[TrialOrder] = TypeAdapter(Annotated[TrialOrder, Field(discriminator="order")])


@value
class ReadOrder:
    """An order with its line number."""

    order: TrialOrder
    line: int
    """Number of the line, from 1."""


@value
class OrdersPosition:
    """The position up to which a file of orders has been read."""

    offset: int = 0
    """Number of bytes read."""
    lines: int = 0
    """Number of lines read."""


class OrderReader:
    """Reads the new orders of a file as it grows.

    Args:
        path: path of the file, which need not exist yet.
        position: position up to which the file has been read; None: the start.
    """

    def __init__(self, path: Path, position: OrdersPosition | None = None) -> None:
        self._path = path
        self.position = OrdersPosition() if position is None else position
        self._reported = ""
        """The rule that the file as a whole violated at the last call, which is reported once; empty: none."""

    def place(self, line: int) -> str:
        """Return the place of a line, for error messages."""
        return f"{self._path}, line {line}"

    def read(self) -> tuple[Sequence[ReadOrder], Sequence[InputError]]:
        """Return the new orders, and an error for each new line that is not an order.

        A missing file counts as empty. An error of the file as a whole is returned once, and the file is read again at
        the next call.
        """
        try:
            content = self._content()
        except FileNotFoundError:
            return (), ()
        except (InputError, OSError) as error:
            return (), self._once(error)
        self._reported = ""
        whole = content.rfind(b"\n") + 1
        if not whole and len(content) >= MOST_LINE_BYTES:
            whole = len(content)  # a line without an end, which is skipped
        orders: list[ReadOrder] = []
        errors: list[InputError] = []
        for line in content[:whole].splitlines():
            self.position = OrdersPosition(offset=self.position.offset, lines=self.position.lines + 1)
            if not line.strip():
                continue
            try:
                orders.append(ReadOrder(order=order_of(line), line=self.position.lines))
            except InputError as error:
                errors.append(InputError(error.rule, value=error.value, place=self.place(self.position.lines)))
        self.position = OrdersPosition(offset=self.position.offset + whole, lines=self.position.lines)
        return orders, errors

    def _content(self) -> bytes:
        status = self._path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError("orders must be an ordinary file", value="another kind", place=str(self._path))
        if status.st_size < self.position.offset:
            rule = f"a file of orders must only grow, and {self.position.offset} bytes of it have been read"
            raise InputError(rule, value=f"{status.st_size} bytes", place=str(self._path))
        if status.st_size == self.position.offset:
            return b""
        with self._path.open("rb") as file:
            file.seek(self.position.offset)
            return file.read(MOST_BYTES_AT_ONCE)

    def _once(self, error: Exception) -> Sequence[InputError]:
        if not isinstance(error, InputError):
            error = InputError("a file of orders must be readable", value=str(error), place=str(self._path))
        if error.rule == self._reported:
            return ()
        self._reported = error.rule
        return (error,)


def order_of(line: bytes) -> TrialOrder:
    """Parse a line as an order.

    Raises:
        InputError: the line is not an order.
    """
    if len(line) >= MOST_LINE_BYTES:
        raise InputError(f"an order must have less than {MOST_LINE_BYTES} bytes", value=f"{len(line)} bytes")
    try:
        return _ORDERS.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"][1:]))
        why = ": ".join([*([where] if where else []), first["msg"].removeprefix("Value error, ")])
        rule = f'an order must be an object such as {{"order": "pause", "trial": 1}} ({why})'
        raise InputError(rule, value=_shown(line)) from error


def _shown(line: bytes) -> str:
    text = "".join(letter if letter.isprintable() else "�" for letter in line.decode(errors="replace"))
    return f"`{text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + '...'}`"
