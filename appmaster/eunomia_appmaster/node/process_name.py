"""Sets the names of Eunomia's processes in ``ps``, which include app, job and rank."""

import os
import sys

NO_ENVIRONMENT = "SPT_NOENV"
"""Variable that keeps setproctitle from overwriting ``/proc/<pid>/environ``, by which launchers find containers."""


def name_process(name: str) -> None:
    """Show ``eunomia: name`` for this process in ``ps``, truncated to the length of its command line.

    Without the package setproctitle the process keeps its name.
    """
    try:
        from setproctitle import setproctitle
    except ImportError:
        return
    before = os.environ.get(NO_ENVIRONMENT)
    os.environ[NO_ENVIRONMENT] = "1"
    try:
        setproctitle(f"eunomia: {name}")
    finally:
        if before is None:
            del os.environ[NO_ENVIRONMENT]
        else:
            os.environ[NO_ENVIRONMENT] = before


def name_worker() -> None:
    """Put a worker's job and rank before its command line in ``ps``, if a launcher started it."""
    job = os.environ.get("EUNOMIA_JOB")
    if job:
        name_process(f"{job} rank {os.environ.get('RANK', '0')}: {' '.join(sys.argv)}")
