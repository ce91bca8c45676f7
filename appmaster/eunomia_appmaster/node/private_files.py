"""Files that only their owner may read, written atomically: tokens, keys, certificates."""

import os
from pathlib import Path


def write_private(path: Path, content: bytes, *, sync: bool = False) -> None:
    """Replace a file by one of mode 0600; after a kill it has its old or its new content.

    Args:
        path: path of the file, in an existing folder.
        content: the new one.
        sync: whether to wait until it would survive a power cut.

    Raises:
        OSError: it cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    part.replace(path)
