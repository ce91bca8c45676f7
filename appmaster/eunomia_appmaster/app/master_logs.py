"""Log files of app masters: one file for each stream (stdout, stderr), attempt and node.

``appmaster.a2.NODE.err.log`` holds stderr of attempt 2 on that node. The node is part of the name because an attempt
may move to another node while a launcher that was cut off still runs it, and appends by two nodes over a network file
system may lose lines. Files of earlier versions, ``appmaster.err.log`` and ``appmaster.out.log``, count as the oldest.
"""

import re
from contextlib import suppress
from pathlib import Path
from typing import Final

STDERR: Final = "err.log"
STDOUT: Final = "out.log"
_NAME: Final = re.compile(r"appmaster\.a(?P<attempt>\d+)\..+\.(?P<stream>(?:err|out)\.log)")


def own_master_log(app_dir: Path, attempt: int, node: str, stream: str) -> Path:
    """Return the log file of an attempt's stream on a node.

    Args:
        app_dir: folder of the app.
        attempt: number of the app master's attempt.
        node: the node on which the attempt runs.
        stream: ``STDERR`` or ``STDOUT``.
    """
    return app_dir / f"appmaster.a{attempt}.{node}.{stream}"


def master_logs(app_dir: Path, stream: str) -> list[Path]:
    """Return the log files of a stream of all attempts, oldest attempt first; the first file may not exist.

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
