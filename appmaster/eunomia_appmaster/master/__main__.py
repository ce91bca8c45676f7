"""``python -m eunomia_appmaster.master --app-dir DIR``: the launcher starts it, once for each attempt of an app."""

import argparse
import signal
import sys
from pathlib import Path

import structlog

from eunomia.errors import EunomiaError
from eunomia.logs import configure_logs
from eunomia_appmaster.master.process import AppMaster, Settings
from eunomia_appmaster.node.process_name import name_process


def main() -> int:
    """Run one app's master until the app is over."""
    parser = argparse.ArgumentParser(prog="python -m eunomia_appmaster.master", description=__doc__)
    parser.add_argument(
        "--app-dir", type=Path, required=True, help="the app's folder, with app.toml and submission.json"
    )
    arguments = parser.parse_args()
    name_process(f"app master of {arguments.app_dir.name}")
    configure_logs()
    log = structlog.get_logger()
    try:
        master = AppMaster(Settings.read(arguments.app_dir))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: master.stop())
        return master.run()
    except EunomiaError as error:
        log.error("master.failed", why=str(error))
        return error.exit_code
    except Exception:
        log.exception("master.failed")
        return 3


if __name__ == "__main__":
    sys.exit(main())
