"""Converts errors of an app file or a call to a gRPC status, within 8 KiB of headers, the limit of clients."""

from typing import Any, Final
from urllib.parse import quote

import grpc

from eunomia.errors import InputError, InputErrors
from eunomia_appmaster.protocol import arbiter_pb2 as pb

ERRORS_KEY: Final = "eunomia-errors-bin"
"""Metadata key for the list of all errors."""
TEXT_BYTES: Final = 3000
"""Maximum size of a status's text in bytes, in which gRPC sends each byte of a non-ASCII character as ``%XX``."""
ERRORS_BYTES: Final = 4000
PART_BYTES: Final = 1200
"""Maximum size in bytes of each of an error's rule, value and place."""


def header_text(text: str) -> str:
    """Return a text shortened to fit a status; a shortened one ends with ``...``."""
    begin = text[: TEXT_BYTES + 1]
    if _sent_bytes(begin) <= TEXT_BYTES:
        return text
    kept, room = [], TEXT_BYTES - 3
    for letter in begin:
        room -= _sent_bytes(letter)
        if room < 0:
            break
        kept.append(letter)
    return "".join(kept) + "..."


Details = tuple[tuple[str, bytes], ...]
"""The metadata of a status in addition to its text."""


def no_node() -> InputError:
    """Return the error of an arbiter that still waits for its first node."""
    rule = "a node must join before the arbiter serves apps (eunomia nodes token makes a token for one)"
    return InputError(rule, value="none yet")


def one_error(rule: str) -> Details:
    """Return an error as status details, which a client shows unchanged."""
    return ((ERRORS_KEY, pb.Errors(errors=[pb.Error(rule=_short(rule) or "")]).SerializeToString()),)


async def refuse(context: "grpc.aio.ServicerContext[Any, Any]", error: InputError) -> None:
    """Answer a call with all errors, as text and as details; errors that do not fit are only counted."""
    several = error.errors if isinstance(error, InputErrors) else [error]
    message = pb.Errors()
    for index, one in enumerate(several):
        value, place = _short(one.value), _short(one.place)
        message.errors.append(pb.Error(rule=_short(one.rule) or "", value=value, place=place))
        if message.ByteSize() > ERRORS_BYTES and index:
            del message.errors[-1]
            message.errors.append(pb.Error(rule=f"and {len(several) - index} more errors"))
            break
    shown = header_text(str(error))
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, shown, ((ERRORS_KEY, message.SerializeToString()),))


def _short(text: str | None) -> str | None:
    content = (text or "")[: PART_BYTES + 1].encode("utf-8", "replace")
    if text is None or len(content) <= PART_BYTES:
        return text
    return f"{content[: PART_BYTES - 3].decode('utf-8', 'ignore')}..."


def _sent_bytes(text: str) -> int:
    return len(quote(text, safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~", errors="replace"))
