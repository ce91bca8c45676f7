"""Reads a pipe in an event loop."""

import asyncio
import os


async def read_to_end(fd: int) -> bytes:
    """Read a pipe to its end without blocking other tasks, and close it."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb")
    )
    try:
        return await reader.read()
    finally:
        transport.close()
