"""``python -m eunomia_appmaster.service``: the arbiter's process; its supervisor starts it again when it dies.

SIGTERM and SIGINT end it with a checkpoint; containers and app masters keep running. SIGHUP reloads its certificates.
Exit codes: 0 ended by a signal; 2 bad input; 70 the arbiter itself failed, or a step took too long.
"""

import argparse
import asyncio
import contextlib
import gc
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from eunomia.errors import EunomiaError, InputError
from eunomia.journal.files import DEFAULT_RETENTION, Keep, Retention
from eunomia.journal.journal import Journal
from eunomia.platform.profiles import Profile
from eunomia.units import Seconds
from eunomia_appmaster.node.connections import raise_descriptors, watch
from eunomia_appmaster.node.garbage import collect_garbage
from eunomia_appmaster.node.job_limits import DEFAULTS, GIB, MIB, JobLimits
from eunomia_appmaster.node.kept_apart import keeps_apart
from eunomia_appmaster.node.memory_arenas import share_one_arena
from eunomia_appmaster.node.own_ends_limit import OwnEndsLimit
from eunomia_appmaster.node.process_logs import configure_logs
from eunomia_appmaster.node.process_name import name_process
from eunomia_appmaster.service.certificates import CA_FILE, Certificates
from eunomia_appmaster.service.clean_rule import clean_by_rule
from eunomia_appmaster.service.longer_leases import lengthen_leases
from eunomia_appmaster.service.reserve import DEFAULT_MIB, Reserve
from eunomia_appmaster.service.server import check_address, mend, publish, start_server
from eunomia_appmaster.service.service import Service
from eunomia_appmaster.service.settings import DEFAULT_ADDRESS, KEPT_APPS, Settings, run_dir
from eunomia_appmaster.service.tokens import publish_private

if TYPE_CHECKING:
    from eunomia_appmaster.service.metrics_server import MetricsServer

log = structlog.get_logger()

WHOLE_COLLECTIONS = 200
"""Number of collections of young objects between two full garbage collections; a full one delays heartbeats by 50 ms
with 1,000 app masters."""
SWITCH_SECONDS = 0.0005
"""Interpreter switch interval in seconds: how often a step's thread yields to the event loop, for heartbeats."""

MEND_SECONDS = 5.0
"""Seconds between two checks of the files by which this machine's processes reach the arbiter."""


def parser() -> argparse.ArgumentParser:
    """Build the arbiter's command line."""
    options = argparse.ArgumentParser(prog="eunomia_appmaster.service", description="Arbitrates a cluster.")
    options.add_argument("--state-dir", type=Path, required=True, help="journal and apps")
    options.add_argument("--run-dir", type=Path, help="where address and tokens are written; see settings.run_dir")
    options.add_argument("--address", default=DEFAULT_ADDRESS, help="host:port; port 0: a free one")
    options.add_argument("--tls-cert", type=Path, help="PEM; beyond loopback")
    options.add_argument("--tls-key", type=Path, help="PEM, without a password")
    options.add_argument("--tls-ca", type=Path, help="PEM; what clients check the certificate with")
    options.add_argument("--metrics", metavar="HOST:PORT", help="metrics and health over HTTP")
    options.add_argument("--policy", default="default", help="preset, profile file or plugin")
    options.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--heartbeat-seconds", type=float, default=1.0)
    options.add_argument("--node-silence-seconds", type=float, default=90.0)
    options.add_argument("--node-lease-seconds", type=float, default=90.0)
    options.add_argument("--stop-lease-seconds", type=float, default=900.0)
    options.add_argument("--app-master-silence-seconds", type=float, default=30.0)
    options.add_argument("--step-limit-seconds", type=float, default=30.0)
    options.add_argument("--checkpoint-steps", type=int, default=200)
    options.add_argument("--journal-keep", choices=[keep.value for keep in Keep], default=Keep.ARCHIVE.value)
    options.add_argument("--journal-segment-steps", type=int, default=DEFAULT_RETENTION.segment_steps)
    options.add_argument("--keep-apps", type=int, default=KEPT_APPS, help="apps that are over and kept in memory")
    options.add_argument("--clean-older-than-seconds", type=float, help="folders of apps that ended so long ago go")
    options.add_argument("--clean-keep-best", action="store_true", help="but for the app's files and best checkpoint")
    options.add_argument("--reserve-mib", type=int, default=DEFAULT_MIB, help="of disk kept for the journal; 0: none")
    options.add_argument("--own-ends", type=int, default=DEFAULTS.own_ends.ends, help="of an app master, at most")
    options.add_argument("--own-ends-seconds", type=float, default=DEFAULTS.own_ends.seconds, help="the window")
    options.add_argument("--slot-processes", type=int, default=DEFAULTS.processes, help="and threads of one worker")
    options.add_argument("--log-mib", type=int, default=DEFAULTS.output_bytes // MIB, help="of a stream of a job")
    options.add_argument("--app-gib", type=float, default=0.0, help="of disk for each app's folder; 0: any")
    options.add_argument("--accept-loss", action="store_true", help="go on without steps that the journal has lost")
    options.add_argument("--not-durable", action="store_true", help="no fsync a step; for tests")
    return options


def settings_of(options: argparse.Namespace) -> Settings:
    """Read the settings from the command line."""
    return Settings(
        state_dir=options.state_dir,
        address=options.address,
        certificates=Certificates.of(options.tls_cert, options.tls_key, options.tls_ca),
        metrics=options.metrics,
        policy=options.policy,
        overrides=tuple(options.overrides),
        seed=options.seed,
        heartbeat=Seconds(options.heartbeat_seconds),
        node_silence=Seconds(options.node_silence_seconds),
        node_lease=Seconds(options.node_lease_seconds),
        stop_lease=Seconds(options.stop_lease_seconds),
        app_master_silence=Seconds(options.app_master_silence_seconds),
        step_limit=Seconds(options.step_limit_seconds),
        checkpoint_steps=options.checkpoint_steps,
        retention=Retention(keep=Keep(options.journal_keep), segment_steps=options.journal_segment_steps),
        keep_apps=options.keep_apps,
        durable=not options.not_durable,
        reserve=options.reserve_mib * MIB,
        clean_after=None if (after := options.clean_older_than_seconds) is None else Seconds(after),
        clean_keep_best=options.clean_keep_best,
        accept_loss=options.accept_loss,
        job_limits=JobLimits(
            own_ends=OwnEndsLimit(ends=options.own_ends, seconds=options.own_ends_seconds),
            output_bytes=options.log_mib * MIB,
            app_bytes=round(options.app_gib * GIB),
            processes=options.slot_processes,
        ),
    )


async def run(settings: Settings, folder: Path) -> None:
    """Serve until a signal ends the process; ``folder`` holds the address file and the token files."""
    check_address(settings.address, settings.certificates)
    profile = Profile.load(settings.policy, settings=settings.overrides)
    fallback = Profile.fallback()
    Reserve(settings.journal, settings.reserve).room_to_start()
    journal = Journal.open(settings.journal, durable=settings.durable, retention=settings.retention)
    service = Service(settings, journal, profile, fallback)
    raise_descriptors()
    server, service.address = await start_server(service, settings.address)
    publish(service, folder)
    try:
        metrics = _metrics(service, folder)
    except InputError:
        await server.stop(None)
        raise
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload, service, metrics, folder)
    log.info("arbiter.listening", address=service.address, state_dir=str(settings.state_dir))
    work = asyncio.create_task(service.run())
    mending = asyncio.create_task(_mend(service, folder))
    watching = asyncio.create_task(watch(service.connections))
    cleaning = asyncio.create_task(clean_by_rule(service))
    collecting = asyncio.create_task(collect_garbage())
    signalled = asyncio.create_task(_signalled())
    await asyncio.wait([work, signalled], return_when=asyncio.FIRST_COMPLETED)
    failed = work.exception() if work.done() else None
    if failed is None:
        await lengthen_leases(service)
    tasks = (work, signalled, mending, watching, cleaning, collecting)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if metrics is not None:
        await asyncio.to_thread(metrics.close)
    await server.stop(0.2)
    await service.close()
    if failed is not None:
        raise failed


async def _mend(service: Service, folder: Path) -> None:
    """Check periodically that the files of ``publish`` and the disk reserve are intact, and repair them."""
    while True:
        await asyncio.to_thread(service.reserve.refill)
        await asyncio.sleep(MEND_SECONDS)
        with contextlib.suppress(OSError):  # full disk: the next check retries
            mend(service, folder)


def _metrics(service: Service, folder: Path) -> "MetricsServer | None":
    """Serve metrics and health if requested; writes their address to the file ``metrics`` next to the address file."""
    if service.settings.metrics is None:
        return None
    from eunomia_appmaster.service.gauges import StateGauges
    from eunomia_appmaster.service.metrics import Meters
    from eunomia_appmaster.service.metrics_server import MetricsServer

    service.meters = Meters()
    service.meters.registry.register(StateGauges(service))
    served = MetricsServer(service, service.meters, service.settings.metrics)
    publish_private(folder / "metrics", f"{served.address}\n")
    return served


def _reload(service: Service, metrics: "MetricsServer | None", folder: Path) -> None:
    """Reload the certificates from their files; if they are invalid, the previous ones stay in use."""
    served = service.certificates
    if served is None:
        log.info("certificates.none")
        return
    try:
        served.reload()
        publish_private(folder / CA_FILE, served.ca)
        if metrics is not None:
            metrics.reload()
        log.info("certificates.reloaded", until=served.files.holds_until.isoformat(timespec="seconds"))
    except (InputError, OSError) as error:
        log.error("certificates.refused", why=str(error))


async def _signalled() -> None:
    heard = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, heard.set)
    await heard.wait()


def main() -> None:
    """Run the arbiter's process."""
    options = parser().parse_args()
    name_process("arbiter")
    share_one_arena()
    configure_logs()
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*gc.get_threshold()[:2], WHOLE_COLLECTIONS)
    if keeps_apart():  # users' accounts may traverse the state folder: create its files closed
        os.umask(0o077)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(run(settings_of(options), options.run_dir or run_dir(options.state_dir)))
    except EunomiaError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
