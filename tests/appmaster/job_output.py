"""The output of a job and of app masters, over the files of all their starts. Not a test."""

from pathlib import Path

from eunomia_appmaster.app.master_logs import STDERR as MASTER_STDERR
from eunomia_appmaster.app.master_logs import master_logs
from eunomia_appmaster.app.outputs import STDOUT, output_files


class Output:
    """What a job has written to stdout, over the files of all its starts."""

    def __init__(self, job: Path) -> None:
        self._job = job

    def exists(self) -> bool:
        return bool(self._files())

    def read_text(self) -> str:
        return "".join(path.read_text() for path in self._files())

    def _files(self) -> list[Path]:
        return [path for path in output_files(self._job, STDOUT) if path.exists()]


def master_output(app_dir: Path) -> str:
    """Return what the masters of an app have written to stderr, the oldest attempt first."""
    return "".join(path.read_text() for path in master_logs(app_dir, MASTER_STDERR) if path.exists())
