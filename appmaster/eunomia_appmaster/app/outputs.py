"""Output files of a job's workers: one file for each stream (stdout, stderr), start of the job, and node.

``output/a2-i5-g1.NODE.stdout.log`` holds stdout of incarnation 5, which attempt 2 of the app master started, on that
node. Files of earlier versions, and of starts without an app master, are ``stdout.log`` and ``stderr.log`` in the job's
folder; these files count as older than all others.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final

from eunomia_appmaster.app.fences import Fence

OUTPUT_FOLDER: Final = "output"
STDOUT: Final = "stdout.log"
STDERR: Final = "stderr.log"


def own_output(run_folder: Path, attempt: int, incarnation: int, node: str, stream: str) -> Path:
    """Return the output file of one stream, for the workers of one start of a job on one node."""
    return run_folder / OUTPUT_FOLDER / f"{Fence(attempt, incarnation).name}.{node}.{stream}"


def output_files(run_folder: Path, stream: str) -> list[Path]:
    """Return the output files of a job's stream, oldest start first; the first file may not exist.

    Args:
        run_folder: folder of the job, ``apps/APP/NUMBER``.
        stream: ``STDOUT`` or ``STDERR``.
    """
    found: list[tuple[Fence, str, Path]] = []
    with suppress(OSError):
        for path in (run_folder / OUTPUT_FOLDER).iterdir():
            fence = Fence.parse(path.name.partition(".")[0])
            if fence is not None and path.name.endswith(f".{stream}"):
                found.append((fence, path.name, path))
    return [run_folder / stream, *(path for _, _, path in sorted(found))]


def newest_output(run_folder: Path, stream: str) -> Path:
    """Return the newest output file of a stream that is not empty; if all are empty, the newest one."""
    files = output_files(run_folder, stream)
    with suppress(OSError):
        return next((path for path in reversed(files) if path.exists() and path.stat().st_size), files[-1])
    return files[-1]
