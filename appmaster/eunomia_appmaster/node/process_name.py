"""Names of Eunomia's processes in ``ps``: what each one is, with app, job and rank."""

import os
import sys

NO_ENVIRONMENT = "SPT_NOENV"
"""Variable that keeps setproctitle from writing over ``/proc/<pid>/environ``, by which launchers find containers."""


def name_process(name: str) -> None:
    """Show ``eunomia: name`` for this process in ``ps``, cut to the length of its command line.

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
    """Name a worker by its job and rank, if a launcher started it; its own command line follows."""
    job = os.environ.get("EUNOMIA_JOB")
    if job:
        name_process(f"{job} rank {os.environ.get('RANK', '0')}: {' '.join(sys.argv)}")
