"""What an app's masters write to stdout and stderr: a file for each stream, attempt and node.

``appmaster.a2.NODE.err.log`` is of attempt 2 on that node. An attempt may move while a launcher that was cut off still
has the one before, and appending by two nodes over a network file system may lose lines. Files of earlier versions are
``appmaster.err.log`` and ``appmaster.out.log``, older than all others.
"""

import re
from contextlib import suppress
from pathlib import Path
from typing import Final

STDERR: Final = "err.log"
STDOUT: Final = "out.log"
_NAME: Final = re.compile(r"appmaster\.a(?P<attempt>\d+)\..+\.(?P<stream>(?:err|out)\.log)")


def own_master_log(app_dir: Path, attempt: int, node: str, stream: str) -> Path:
    """Return the file of a stream of an attempt on a node.

    Args:
        app_dir: folder of the app.
        attempt: of its app master.
        node: on which it runs.
        stream: ``STDERR`` or ``STDOUT``.
    """
    return app_dir / f"appmaster.a{attempt}.{node}.{stream}"


def master_logs(app_dir: Path, stream: str) -> list[Path]:
    """Return the files of a stream of an app's masters, those of the oldest attempt first; the first may not be there.

    Args:
        app_dir: folder of the app.
        stream: ``STDERR`` or ``STDOUT``.
    """
    found: list[tuple[int, str, Path]] = []
    with suppress(OSError):
        for path in app_dir.iterdir():
            name = _NAME.fullmatch(path.name)
            if name is not None and name["stream"] == stream:
                found.append((int(name["attempt"]), path.name, path))
    return [app_dir / f"appmaster.{stream}", *(path for _, _, path in sorted(found))]
