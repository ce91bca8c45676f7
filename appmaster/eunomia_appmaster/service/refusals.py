"""Errors of an app file or a call as a gRPC status: at most 8 KiB of headers, which clients refuse beyond that."""

from typing import Any, Final
from urllib.parse import quote

import grpc

from eunomia.errors import InputError, InputErrors
from eunomia_appmaster.protocol import arbiter_pb2 as pb

ERRORS_KEY: Final = "eunomia-errors-bin"
"""Metadata with all errors, one by one."""
TEXT_BYTES: Final = 3000
"""Most bytes of a status' text, each letter beyond ASCII as ``%XX`` by byte, as gRPC sends it."""
ERRORS_BYTES: Final = 4000
PART_BYTES: Final = 1200
"""Most bytes of an error's rule, of its value and of its place."""


def header_text(text: str) -> str:
    """Return a text that fits a status; a longer one ends with ``...``."""
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
"""What a status carries in addition to its text."""


def no_node() -> InputError:
    """Return the refusal of a head that waits for its first node."""
    rule = "a node must join before the arbiter serves apps (eunomia nodes token makes a token for one)"
    return InputError(rule, value="none yet")


def one_error(rule: str) -> Details:
    """Return an error that a client shows as it is, as details of a status."""
    return ((ERRORS_KEY, pb.Errors(errors=[pb.Error(rule=_short(rule) or "")]).SerializeToString()),)


async def refuse(context: "grpc.aio.ServicerContext[Any, Any]", error: InputError) -> None:
    """Answer with all errors, as text and one by one; errors that do not fit are counted."""
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
