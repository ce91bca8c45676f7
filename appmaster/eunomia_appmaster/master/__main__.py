"""``python -m eunomia_appmaster.master``: the launcher starts it, once for each attempt of an app."""

import argparse
import contextlib
import os
import signal
import sys
from pathlib import Path

import structlog

from eunomia.errors import EunomiaError
from eunomia_appmaster.node.machine_faults import MACHINE_FAULT, is_machine_fault
from eunomia_appmaster.node.memory_arenas import share_one_arena
from eunomia_appmaster.node.process_logs import configure_logs
from eunomia_appmaster.node.process_name import name_process
from eunomia_appmaster.node.stack_signal import write_stacks_on_signal

FAULT = 3
"""Exit code after an unexpected exception."""


def main() -> int:
    """Run one app's master until the app has ended; returns the exit code."""
    try:
        return _run()
    except Exception as error:
        with contextlib.suppress(Exception):  # without free memory or disk space, logging may fail, too
            _log(error)
        if is_machine_fault(error):
            return MACHINE_FAULT
        return error.exit_code if isinstance(error, EunomiaError) else FAULT


def _run() -> int:
    parser = argparse.ArgumentParser(prog="python -m eunomia_appmaster.master", description=__doc__)
    given = os.environ.get("EUNOMIA_APP_DIR")
    parser.add_argument(
        "--app-dir",
        type=Path,
        default=given,
        required=given is None,
        help="the app's folder, with app.toml and submission.json (default: $EUNOMIA_APP_DIR)",
    )
    arguments = parser.parse_args()
    name_process(f"app master of {arguments.app_dir.name}")
    share_one_arena()
    configure_logs()
    from eunomia_appmaster.master.process import AppMaster  # late: without free memory, imports fail
    from eunomia_appmaster.master.settings import Settings

    settings = Settings.read(arguments.app_dir)
    own = settings.app_dir / "appmaster" / str(settings.attempt)
    write_stacks_on_signal(os.environ.get("EUNOMIA_CONTAINER_DIR") or own)
    master = AppMaster(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: master.stop())
    return master.run()


def _log(error: Exception) -> None:
    log = structlog.get_logger()
    if isinstance(error, EunomiaError):
        log.error("master.failed", why=str(error))
    else:
        log.error("master.failed", exc_info=error)


if __name__ == "__main__":
    sys.exit(main())
