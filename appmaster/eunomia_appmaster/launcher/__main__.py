"""``python -m eunomia_appmaster.launcher``: runs the launcher of a machine.

SIGTERM and SIGINT drain the launcher: it reports this to the arbiter, suspends all containers, kills those left after
``--stop-seconds``, then exits. These ends do not count against an app, and the next launcher restarts app masters.
SIGHUP and SIGKILL end only the launcher: its containers keep running and are adopted by the next launcher. With
``--end`` the launcher ends the containers that an earlier launcher left, then exits.
"""

import argparse
import asyncio
import contextlib
import logging
import math
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import structlog

from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.launcher.access import ArbiterAccess, TokenFileAccess, check_token_file
from eunomia_appmaster.launcher.app_masters import AppMasters
from eunomia_appmaster.launcher.confinement import Confinement, kill_short_of_memory
from eunomia_appmaster.launcher.containers import Containers
from eunomia_appmaster.launcher.errors import RemovedError, SupersededError
from eunomia_appmaster.launcher.folder_user import FolderUser
from eunomia_appmaster.launcher.foreign_gpus import ANSWERS, ForeignGpus
from eunomia_appmaster.launcher.gpu_faults import GpuFaults, NvmlFaults
from eunomia_appmaster.launcher.joining import OwnJoin, joined_of
from eunomia_appmaster.launcher.lease_keeper import keep
from eunomia_appmaster.launcher.listening import ListenAddress
from eunomia_appmaster.launcher.node import Node, default_name
from eunomia_appmaster.launcher.node_lease import WHEN_ALONE
from eunomia_appmaster.launcher.orphans import Orphans
from eunomia_appmaster.launcher.output_limit import watch_output
from eunomia_appmaster.launcher.own_machine import OwnMachine
from eunomia_appmaster.launcher.quotas import Quotas
from eunomia_appmaster.launcher.server import serve
from eunomia_appmaster.launcher.stalls import DEFAULT_GRACE_SECONDS, Stalls
from eunomia_appmaster.launcher.stores import keep_stores
from eunomia_appmaster.launcher.tracker import Tracker
from eunomia_appmaster.launcher.zygote import ZygoteKind
from eunomia_appmaster.launcher.zygote_client import ZygoteClient
from eunomia_appmaster.launcher.zygotes import Zygotes
from eunomia_appmaster.node import local_machine
from eunomia_appmaster.node.accounts import Account
from eunomia_appmaster.node.beats import beat
from eunomia_appmaster.node.connections import PATIENCE_SECONDS, Connections, most_connections, watch
from eunomia_appmaster.node.control_groups import DEVICES, ControlGroups, choose
from eunomia_appmaster.node.exit_codes import REMOVED
from eunomia_appmaster.node.garbage import collect_garbage
from eunomia_appmaster.node.gpu_locks import GpuLocks, inherited
from eunomia_appmaster.node.memory_arenas import share_one_arena
from eunomia_appmaster.node.process_name import name_process
from eunomia_appmaster.node.system import MACHINE, System
from eunomia_appmaster.protocol.join_text import JoinText

_TIDY_SECONDS = 30.0
_MEMORY_SECONDS = 1.0
_ALIVE_SECONDS = 5.0


def parser() -> argparse.ArgumentParser:
    """Build the launcher's command line."""
    options = argparse.ArgumentParser(prog="eunomia_appmaster.launcher", description="Runs this machine's containers.")
    options.add_argument("--state", type=Path, required=True, help="Eunomia's state folder")
    options.add_argument(
        "--node-dir", type=Path, help="this node's own files, on a local disk (default: launcher in the state folder)"
    )
    options.add_argument("--apps", type=Path, help="folder of all apps' folders (default: apps in the state folder)")
    options.add_argument("--arbiter", required=True, help="host:port of the arbiter")
    options.add_argument(
        "--token-file", type=Path, help="file that holds the arbiter's token, on the arbiter's own machine"
    )
    options.add_argument(
        "--join", metavar="FILE|-", help="join token, from a file or standard input; needed once for a node's folder"
    )
    options.add_argument(
        "--announce",
        default="",
        metavar="HOST",
        help="of this machine for others (default: by the route)",
    )
    options.add_argument(
        "--port-range", default="", metavar="A-B", help="ports for app masters (default: any free one)"
    )
    options.add_argument("--slots", type=int, help="cpu slots where no GPU is found (default 4)")
    options.add_argument("--slot-types", default="", help="paced cpu slots, as in 2x fast:1.0, 2x slow:0.5")
    options.add_argument("--cpu-only", action="store_true", help="cpu slots even where there are GPUs")
    options.add_argument("--node", default=default_name(), help="node id (default: the host's name)")
    options.add_argument("--rack", default="", help="of this machine, given at its join (default: r1)")
    options.add_argument("--listen", help="address for app masters (default: a free port of the announced one)")
    options.add_argument("--no-zygote", action="store_true", help="start every worker by exec")
    options.add_argument("--preload", action="append", default=[], metavar="MODULE", help="for the zygote to import")
    options.add_argument("--zygote-wait-seconds", type=float, default=20.0, help="before a worker is started by exec")
    options.add_argument(
        "--restart-pause-seconds", type=float, default=1.0, help="before an app master's first restart"
    )
    options.add_argument(
        "--keep-seconds", type=float, default=3600.0, help="how long ended containers and app masters are remembered"
    )
    options.add_argument("--stop-seconds", type=float, default=10.0, help="grace of containers when the launcher ends")
    options.add_argument(
        "--stall-grace-seconds", type=float, default=DEFAULT_GRACE_SECONDS, help="grace of what has stalled"
    )
    options.add_argument("--control-groups", default="auto", help="that enforce the limits of slots")
    options.add_argument("--foreign-gpus", choices=ANSWERS, default="warn", help="about a worker on another slot's GPU")
    options.add_argument(
        "--connection-seconds", type=float, default=PATIENCE_SECONDS, help="of a connection without a valid token"
    )
    options.add_argument("--gpu-locks", default="", metavar="FD,FD", help="open files that hold locks of GPUs")
    options.add_argument(
        "--when-alone", choices=WHEN_ALONE, default=WHEN_ALONE[0], help="of workers, when the node's lease ends"
    )
    options.add_argument("--end", action="store_true", help="end what an earlier launcher left, without serving")
    return options


async def run(options: argparse.Namespace, *, system: System = MACHINE) -> None:
    """Adopt containers, serve app masters and carry out the arbiter's orders until a signal ends the launcher."""
    end = _signalled()
    beats = asyncio.create_task(beat())
    machine = local_machine.detect(options.slots, use_gpus=not options.cpu_only, slot_types=options.slot_types)
    if not options.end:  # a launcher that only ends old containers offers no slots
        locks = GpuLocks(inherited(options.gpu_locks))
        locks.take([slot.uuid for slot in machine.slots], options.state)
    with contextlib.ExitStack() as ends:
        with _gone_if_refused(options.node_dir):
            node = Node(options.state, options.node, machine, folder=options.node_dir, apps=options.apps, system=system)
            groups = choose(node.home_folder, options.control_groups, paced=machine.is_paced and not options.end)
            ends.callback(groups.close)
            access = _access(options, node)
        node.lease.goes_on = options.when_alone == WHEN_ALONE[1]
        await _run(options, node, groups, access, end)
    beats.cancel()


@contextlib.contextmanager
def _gone_if_refused(folder: Path | None) -> Iterator[None]:
    """Remove a node's folder that this launcher has made if the launcher is refused before it serves."""
    is_new = folder is not None and not folder.exists()
    try:
        yield
    except EunomiaError:
        if folder is not None and is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise


async def _run(
    options: argparse.Namespace, node: Node, groups: ControlGroups, access: ArbiterAccess, end: "asyncio.Future[int]"
) -> None:
    """Run a machine's launcher as a node of the cluster until a signal.

    Args:
        options: the command-line options.
        node: the machine.
        groups: the control groups of its containers.
        access: access to the arbiter.
        end: a future that the signal sets.
    """
    zygotes = _zygotes(node, options)
    confinement = Confinement(groups, node.machine, limits=lambda: node.limits)
    containers = Containers(
        node, zygotes, zygote_wait_seconds=options.zygote_wait_seconds, confinement=confinement, orphans=Orphans()
    )
    stalls = Stalls(containers, grace_seconds=options.stall_grace_seconds)
    masters = AppMasters(
        node,
        containers,
        options.arbiter,
        pause_seconds=options.restart_pause_seconds,
        keep_seconds=options.keep_seconds,
        stalls=stalls,
        reaches=access.environment,
    )
    containers.adopt()
    masters.adopt()
    if options.end:
        await _end_all(containers, masters, options.stop_seconds)
        return
    zygotes.start(app_masters=not options.no_zygote)
    connections = Connections(most_connections(), patience_seconds=options.connection_seconds)
    listening = _listening(options, access, node)
    server = await serve(node, containers, stalls, listening, connections)
    quotas = Quotas(node, containers, masters)
    tracker = Tracker(node, containers, masters, access, limit_disks=quotas.limit_users, rack=options.rack)
    lives = _lives(options, node, containers, masters, tracker, quotas, groups)
    tasks = [asyncio.create_task(life) for life in (*lives, stalls.run(), watch(connections), zygotes.end_idle())]
    if listening.joined is not None:
        tasks.append(asyncio.create_task(listening.joined.keep_renewed()))
    first: list[asyncio.Future[Any]] = [end, tasks[0]]
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    await server.stop(0.0)
    if (end.done() and end.result() != signal.SIGHUP) or _is_removed(tasks[0]):
        await _end_all(containers, masters, options.stop_seconds)
        await _part(node, tracker, tasks[0], listening.joined)
    for task in tasks:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    await zygotes.close()
    if isinstance(ends[0], Exception):
        raise ends[0]


async def _part(node: Node, tracker: Tracker, life: "asyncio.Task[None]", joined: OwnJoin | None) -> None:
    """Report to the arbiter that this launcher ends, after all of its containers have ended; forget a refused join."""
    if _is_removed(life) and joined is not None:
        joined.forget()  # its credential is refused: it joins again with another token
    elif not node.is_head and not life.done():  # the head's launcher is replaced at once, and its leases continue
        await tracker.leave()


def _access(options: argparse.Namespace, node: Node) -> ArbiterAccess:
    """Return the launcher's access to the arbiter; a node that has not joined yet joins with its token.

    Args:
        options: the command-line options.
        node: this machine.

    Raises:
        InputError: no token is given, the arbiter refuses it, or the folder belongs to a node of another arbiter.
    """
    if options.token_file is not None:
        if not node.is_head:  # the head's launcher waits for the arbiter, which writes the file again
            check_token_file(options.token_file)
        return TokenFileAccess(options.arbiter, options.token_file)
    joined, user = OwnJoin(node.folder, node.name, options.arbiter), FolderUser.of(node.folder)
    if joined.is_joined:
        if options.join is not None and not user.is_at(options.arbiter):
            user.check_arbiter(options.arbiter, JoinText.read(options.join).authority)
        joined.mend()
        return joined
    _join(options, joined)
    return joined


def _join(options: argparse.Namespace, joined: OwnJoin) -> None:
    if options.join is None:
        FolderUser.of(joined.folder).check_name(joined.node)
        rule = "a launcher must have a token: --join FILE with the output of `eunomia nodes token`, or --token-file"
        raise InputError(rule, value="neither")
    token = JoinText.read(options.join)
    if options.join != "-" and Path(options.join).stat().st_mode & 0o077:
        structlog.get_logger().warning(
            "join_token.open_to_others", file=options.join, remedy=f"chmod 600 {options.join}"
        )
    joined.join(token)


def _listening(options: argparse.Namespace, access: ArbiterAccess, node: Node) -> ListenAddress:
    """Return where the launcher serves app masters: beyond loopback on the arbiter's machine only if announced.

    Raises:
        InputError: an address or a range of ports is invalid, or the arbiter refuses a certificate.
    """
    joined = joined_of(access)
    if joined is None and options.announce and isinstance(access, TokenFileAccess):
        joined = OwnMachine(node.folder, node.name, options.arbiter, access)
    return ListenAddress.chosen(
        options.arbiter,
        listen=options.listen,
        announce=options.announce,
        ports=options.port_range,
        joined=joined,
    )


def _lives(
    options: argparse.Namespace,
    node: Node,
    containers: Containers,
    masters: AppMasters,
    tracker: Tracker,
    quotas: Quotas,
    groups: ControlGroups,
) -> Iterator[Coroutine[Any, Any, None]]:
    """Yield the launcher's endless tasks; the tracker first, whose error ends the launcher."""
    gpus = {slot.uuid: slot.index for slot in node.machine.slots if slot.uuid}
    yield tracker.run()
    yield _say_joined(node, masters, groups, options.arbiter)
    yield _tidy(node, containers, masters, options.keep_seconds)
    yield _watch_memory(containers)
    yield _note_alive(node)
    yield collect_garbage()
    yield watch_output(lambda: _run_folders(node, containers), node.name, lambda: node.limits.output_bytes)
    yield quotas.run()
    yield keep(node.lease, containers)
    yield keep_stores(containers)
    yield GpuFaults(gpus, tracker.lose, NvmlFaults(list(gpus))).run()
    if DEVICES not in groups.controllers:  # else control groups block GPUs of other slots
        yield ForeignGpus(node.machine, containers.on_slots, end=options.foreign_gpus == "end").run()


def _zygotes(node: Node, options: argparse.Namespace) -> Zygotes:
    def of_account(account: Account) -> ZygoteClient:
        return ZygoteClient(node.folder, enabled=enabled, preload=options.preload, login=account.login, node=node.name)

    def of_app_masters() -> ZygoteClient:
        return ZygoteClient(node.folder, kind=ZygoteKind.APP_MASTERS, node=node.name)

    enabled = not options.no_zygote
    own = ZygoteClient(node.folder, enabled=enabled, preload=options.preload, node=node.name)
    return Zygotes(own, of_account, of_app_masters)


def _run_folders(node: Node, containers: Containers) -> dict[Path, Path]:
    """Return the folders with the output of running jobs, each with the folder of its app."""
    running = [one for one in containers.on_slots() if not one.completed]
    return {one.run_folder: node.app_folder(one.status.app) for one in running}


def _is_removed(life: "asyncio.Task[None]") -> bool:
    """Return whether a tracker ended because the node's credential is invalid: the node was removed or not accepted."""
    return life.done() and not life.cancelled() and isinstance(life.exception(), RemovedError)


def _signalled() -> "asyncio.Future[int]":
    """Return a future that is set by the first signal to end; the handlers are installed at once."""
    loop = asyncio.get_running_loop()
    heard: asyncio.Future[int] = loop.create_future()

    def hear(number: int) -> None:
        if not heard.done():
            heard.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, hear, number)
    return heard


async def _end_all(containers: Containers, masters: AppMasters, stop_seconds: float) -> None:
    while True:  # the arbiter may start more
        masters.drain(stop_seconds)
        left = [container for container in containers if not container.completed]
        for container in left:
            containers.stop(container, stop_seconds, "the launcher was ordered to end")
        if not left:
            break
        await asyncio.gather(*(container.done.wait() for container in left))
    await masters.ended()
    _save_again(containers, masters)


def _save_again(containers: Containers, masters: AppMasters) -> None:
    """Write the records again that could not be written because the disk was full."""
    with contextlib.suppress(OSError):  # it is still full: later
        for one in (*containers, *masters):
            if one.unsaved:
                one.save()


async def _say_joined(node: Node, masters: AppMasters, groups: ControlGroups, arbiter: str) -> None:
    """Print that this node has joined the cluster, once all checks have passed; not on the arbiter's machine."""
    await masters.registered.wait()
    structlog.get_logger().info("groups.chosen", kind=groups.kind, what=groups.describe())
    if not node.is_head:
        kinds = Counter(slot.gpu_type for slot in node.machine.slots)
        slots = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "no slots"
        sys.stdout.write(f"{node.name}: {slots}; joined the arbiter at {arbiter}; Ctrl-C stops\n")
        sys.stdout.flush()


async def _tidy(node: Node, containers: Containers, masters: AppMasters, keep_seconds: float) -> None:
    while True:
        await asyncio.sleep(min(_TIDY_SECONDS, keep_seconds))
        _save_again(containers, masters)
        # App masters that start with this launcher do not know yet which containers ended long before.
        works = node.system.unix_time() - node.began_at
        containers.forget(keep_seconds if works > keep_seconds else math.inf)
        with contextlib.suppress(OSError):  # a full disk: later
            node.mend()


async def _note_alive(node: Node) -> None:
    while True:
        node.note_alive()
        await asyncio.sleep(_ALIVE_SECONDS)


async def _watch_memory(containers: Containers) -> None:
    while True:
        await asyncio.sleep(_MEMORY_SECONDS)
        kill_short_of_memory(list(containers))


def main() -> None:
    """Run the launcher; exit code 2 for bad input; for a removed node ``REMOVED`` (5) on the head, elsewhere 0."""
    options = parser().parse_args()
    name_process("launcher")
    share_one_arena()
    level = logging.getLevelNamesMapping().get(os.environ.get("EUNOMIA_LOG", "warning").upper(), logging.WARNING)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", key="time"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(run(options))
    except SupersededError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
    except RemovedError as error:
        # Its service manager does not start it again, nor does `serve` the launcher of the head.
        is_head = options.node_dir is None
        again = "with its next start" if is_head else "with --join and a new token (`eunomia nodes token`)"
        said = f"removed from the cluster; what ran here has ended ({error}); it joins again {again}"
        sys.stderr.write(f"{options.node}: {said}\n")
        sys.exit(REMOVED if is_head else 0)
    except EunomiaError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
