"""``python -m eunomia_appmaster.service``: the arbiter's process; its supervisor starts it again when it dies.

SIGTERM and SIGINT end it with a checkpoint; containers and app masters run on. Exit codes: 0 told to end; 2 bad input;
70 the arbiter itself failed, or a step took too long.
"""

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path

import structlog

from eunomia.errors import EunomiaError
from eunomia.journal import Journal
from eunomia.logs import configure_logs
from eunomia.profiles import Profile
from eunomia.units import Seconds
from eunomia_appmaster.service.server import check_address, start_server
from eunomia_appmaster.service.service import Service
from eunomia_appmaster.service.settings import DEFAULT_ADDRESS, Settings, run_dir
from eunomia_appmaster.service.tokens import write_private

log = structlog.get_logger()


def parser() -> argparse.ArgumentParser:
    """Build the arbiter's command line."""
    options = argparse.ArgumentParser(prog="eunomia_appmaster.service", description="Arbitrates a cluster.")
    options.add_argument("--state-dir", type=Path, required=True, help="journal and apps")
    options.add_argument("--run-dir", type=Path, help="where address and tokens are written; see settings.run_dir")
    options.add_argument("--address", default=DEFAULT_ADDRESS, help="host:port; port 0: a free one")
    options.add_argument("--policy", default="default", help="preset, profile file or plugin")
    options.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--heartbeat-seconds", type=float, default=1.0)
    options.add_argument("--node-silence-seconds", type=float, default=30.0)
    options.add_argument("--step-limit-seconds", type=float, default=30.0)
    options.add_argument("--checkpoint-steps", type=int, default=200)
    options.add_argument("--not-durable", action="store_true", help="no fsync a step; for tests")
    return options


def settings_of(options: argparse.Namespace) -> Settings:
    """Read the command line."""
    return Settings(
        state_dir=options.state_dir,
        address=options.address,
        policy=options.policy,
        overrides=tuple(options.overrides),
        seed=options.seed,
        heartbeat=Seconds(options.heartbeat_seconds),
        node_silence=Seconds(options.node_silence_seconds),
        step_limit=Seconds(options.step_limit_seconds),
        checkpoint_steps=options.checkpoint_steps,
        durable=not options.not_durable,
    )


async def run(settings: Settings, folder: Path) -> None:
    """Serve until told to end; ``folder`` holds address and tokens."""
    check_address(settings.address)
    profile = Profile.load(settings.policy, settings=settings.overrides)
    fallback = Profile.fallback()
    journal = Journal.open(settings.journal, durable=settings.durable)
    service = Service(settings, journal, profile, fallback)
    server, service.address = await start_server(service, settings.address)
    for name, text in (("token", service.tokens.operator), ("launcher.token", service.tokens.launcher)):
        write_private(folder / name, text)
    write_private(folder / "address", service.address)
    log.info("arbiter.listening", address=service.address, state_dir=str(settings.state_dir))
    work = asyncio.create_task(service.run())
    told = asyncio.create_task(_signalled())
    await asyncio.wait([work, told], return_when=asyncio.FIRST_COMPLETED)
    failed = work.exception() if work.done() else None
    work.cancel()
    told.cancel()
    await asyncio.gather(work, told, return_exceptions=True)
    await server.stop(0.2)
    await service.close()
    if failed is not None:
        raise failed


async def _signalled() -> None:
    heard = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, heard.set)
    await heard.wait()


def main() -> None:
    """Run the arbiter."""
    options = parser().parse_args()
    configure_logs()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(run(settings_of(options), options.run_dir or run_dir(options.state_dir)))
    except EunomiaError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
