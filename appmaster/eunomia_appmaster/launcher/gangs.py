"""Requests to start the containers of one incarnation: their checks, and the environment of each worker."""

import asyncio
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from eunomia_appmaster.app.outputs import OUTPUT_FOLDER, STDERR, STDOUT, own_output
from eunomia_appmaster.launcher.container import Container
from eunomia_appmaster.launcher.containers import ContainerCommand, Containers
from eunomia_appmaster.launcher.errors import InputError, LacksError, NotOwnError, SlotBusyError, not_written
from eunomia_appmaster.launcher.interfaces import interface_to
from eunomia_appmaster.launcher.node import Node
from eunomia_appmaster.launcher.owners import account_of, check_owner, rights_of
from eunomia_appmaster.launcher.prepared import Prepared
from eunomia_appmaster.launcher.processes import MARK
from eunomia_appmaster.launcher.stores import start_store
from eunomia_appmaster.launcher.zygote import ZygoteKind
from eunomia_appmaster.launcher.zygote_client import PASSED_ON, THREADS, can_fork, interpreter
from eunomia_appmaster.node.accounts import Account
from eunomia_appmaster.node.file_rights import as_owner
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol.node_names import check_name
from eunomia_appmaster.protocol.tokens import check_container_token

INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")  # of a gang over several nodes; an app file may set them
MAX_WAIT_SECONDS = 60.0
MOST_PATH_BYTES, MOST_NAME_BYTES = 3000, 255  # Linux takes 4096; containers' own files are below


async def start_gang(
    request: pb.StartContainersRequest, node: Node, containers: Containers
) -> list[pb.ContainerStatus]:
    """Start all containers of the request or none, by the rules of ``StartContainers`` in launcher.proto.

    Raises:
        InputError: the request is malformed.
        WrongTokenError: a lease is not the app's.
        NotOwnError: a run folder or container id is not the app's.
        ClosedEpochError: a lease has ended.
        OldAttemptError: a later attempt of the app's master was seen.
        LeaseEndedError: the node's own lease has ended.
        SlotBusyError: a slot did not become free in time.
        LacksError: this node has no such program or working folder.
    """
    request = as_seen_here(request, node)
    check_request(request, node)
    node.attempts.check(request.app, request.attempt)
    if known := _already_known(request, containers):
        return known
    node.lease.check()
    if not request.master_port and not request.HasField("live") and all(wanted.rank for wanted in request.containers):
        rule = "a start without rank 0 must name the master_port that the node of rank 0 reserved"
        raise InputError(rule, value="0", place=f"{request.app}/{request.job}")
    for wanted in request.containers:
        node.epochs.check(wanted.slot, wanted.epoch)
        node.epochs.saw(wanted.slot, wanted.epoch)
        _fence_off_older(wanted, containers)
    await _free_slots(request, containers)
    node.attempts.check(request.app, request.attempt)  # while this waited, a later one may have come
    for wanted in request.containers:  # and a lease may have ended
        node.epochs.check(wanted.slot, wanted.epoch)
    if known := _already_known(request, containers):  # or the same request may have come a second time
        return known
    return _launch(request, node, containers)


def as_seen_here(request: pb.StartContainersRequest, node: Node) -> pb.StartContainersRequest:
    """Return a request in which paths in the app's folder are replaced by the paths on this node.

    Its app master may run on a node that mounts the apps' folders at another path.
    """
    theirs, ours = request.app_folder.rstrip("/"), str(node.app_folder(request.app))
    if not theirs or theirs == ours:
        return request
    beyond = re.compile(
        r"(?<![^=:,;'\"\s])" + re.escape(theirs) + r"(?![^/=:,;'\"\s])"
    )  # as a whole path, or its beginning

    def moved(text: str) -> str:
        return beyond.sub(lambda _: ours, text)

    here = pb.StartContainersRequest()
    here.CopyFrom(request)
    here.command[:] = [moved(word) for word in request.command]
    for name, content in request.env.items():
        here.env[name] = moved(content)
    here.working_folder, here.run_folder = moved(request.working_folder), moved(request.run_folder)
    return here


def check_path(path: str, what: str) -> None:
    """Check that the system accepts ``path`` as a path, whether or not it exists.

    Raises:
        InputError: it does not.
    """
    content = os.fsencode(path)
    if b"\0" in content or len(content) > MOST_PATH_BYTES or max(map(len, content.split(b"/"))) > MOST_NAME_BYTES:
        rule = f"{what} must have names of at most {MOST_NAME_BYTES} bytes, {MOST_PATH_BYTES} in all, none of them 0"
        raise InputError(rule, value=repr(path[:120]))


def base_environment() -> dict[str, str]:
    """Return the variables that every container inherits from the launcher's environment."""
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}


def run_folder(request: pb.StartContainersRequest, node: Node) -> Path:
    """Return the job's run folder.

    Raises:
        NotOwnError: it is not inside the app's folder.
    """
    own = node.app_folder(request.app)
    folder = Path(request.run_folder) if request.run_folder else own / str(request.job)
    if not folder.is_absolute() or own not in Path(os.path.normpath(folder)).parents:
        raise NotOwnError(f"a run folder must stand in {own}", value=request.run_folder)
    return folder


def check_request(request: pb.StartContainersRequest, node: Node) -> None:
    """Check a request's form, ownership and tokens, without changing anything; errors as for ``start_gang``."""
    check_name(request.app, "an app's name")
    if not request.command:
        raise InputError("a command must not be empty", place=f"{request.app}/{request.job}")
    for path, what in ((request.working_folder, "a working folder"), (request.run_folder, "a run folder")):
        check_path(path, what)
    if request.incarnation < 1:
        raise InputError("an incarnation must be 1 or more", value=str(request.incarnation))
    if request.job < 0 or any(wanted.rank < 0 for wanted in request.containers):
        raise InputError("a job's number and ranks must be 0 or more", value=str(request.job))
    if request.HasField("live") and not set(request.live.members) >= {one.container_id for one in request.containers}:
        rule = "containers of a job that changes its size live must be members of their generation"
        raise InputError(rule, value=", ".join(request.live.members)[:100], place=f"{request.app}/{request.job}")
    run_folder(request, node)
    slots = [wanted.slot for wanted in request.containers]
    if not slots or len(set(slots)) < len(slots):
        raise InputError("a start must name at least one slot, and each once", value=str(slots))
    for wanted in request.containers:
        check_name(wanted.container_id, "a container id")
        if node.machine.slot(wanted.slot) is None:
            raise InputError(f"a slot must be one of {len(node.machine.slots)} of {node.name}", value=str(wanted.slot))
        of_lease = (request.app, node.name, wanted.slot, wanted.epoch, request.login)
        check_container_token(wanted.container_token, node.secret, *of_lease)
    account = account_of(request.login)
    check_working_folder(request, account, node)
    check_owner(node.app_folder(request.app), account)


def check_working_folder(request: pb.StartContainersRequest, account: Account | None, node: Node) -> None:
    """Check that this node has the working folder of a request.

    Raises:
        LacksError: it does not.
    """
    with rights_of(account):
        if not Path(request.working_folder).is_dir():
            raise LacksError("a working folder must exist", value=repr(request.working_folder), place=node.name)


def check_program(request: pb.StartContainersRequest, account: Account | None, node: Node) -> None:
    """Check that this node has the program of a request's command.

    Raises:
        LacksError: it does not.
    """
    env = {**base_environment(), **request.env, **({} if account is None else account.environment)}
    with rights_of(account):
        program = interpreter(request.command[0], env)
        if "/" in program:
            found = Path(request.working_folder, program).is_file()
        else:
            found = shutil.which(program, path=env.get("PATH")) is not None
    if not found:
        raise LacksError("the program of a command must exist", value=repr(program[:200]), place=node.name)


def _already_known(request: pb.StartContainersRequest, containers: Containers) -> list[pb.ContainerStatus]:
    """Return the present statuses if the same request was carried out before; else an empty list.

    Raises:
        InputError: a container id was used for another request.
    """
    known = [containers.get(wanted.container_id) for wanted in request.containers]
    found = []
    for wanted, container in zip(request.containers, known, strict=True):
        if container is None:
            continue
        status = container.status
        if (status.app, status.slot, status.epoch) != (request.app, wanted.slot, wanted.epoch):
            raise InputError("a container id must be used once", value=wanted.container_id)
        if container.prepared is not None:
            container.prepared.renew()
        found.append(status)
    if found and len(found) < len(known):
        raise InputError(
            "a start must name new containers only, or repeat an earlier start", value=found[0].container_id
        )
    return found


def _fence_off_older(wanted: pb.ContainerRequest, containers: Containers) -> None:
    holder = containers.holder(wanted.slot)
    if holder is not None and holder.status.epoch < wanted.epoch:
        containers.stop(holder, 0.0, f"slot {wanted.slot} was leased again in epoch {wanted.epoch}")


async def _free_slots(request: pb.StartContainersRequest, containers: Containers) -> None:
    """Wait until no container uses the slots.

    Raises:
        SlotBusyError: they were not free within the request's ``wait_seconds``.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + min(max(request.wait_seconds, 0.0), MAX_WAIT_SECONDS)
    while holders := [held for wanted in request.containers if (held := containers.holder(wanted.slot))]:
        try:
            await asyncio.wait_for(holders[0].done.wait(), max(0.0, deadline - loop.time()))
        except TimeoutError:
            status = holders[0].status
            value = f"{status.container_id} of {status.app}, {pb.ContainerState.Name(status.state).lower()}"
            raise SlotBusyError(f"slot {status.slot} must be free before a start", value=value) from None


def _launch(request: pb.StartContainersRequest, node: Node, containers: Containers) -> list[pb.ContainerStatus]:
    check_program(request, account_of(request.login), node)
    folder = run_folder(request, node)
    new = [_new_container(request, wanted, folder, node) for wanted in request.containers]
    if taken := [container.id for container in new if container.folder.exists()]:
        raise InputError("a container id must be used once", value=taken[0])
    joins = bool(request.live.store)  # a running gang, whose workers meet at its store
    port = None if request.master_port or joins else node.system.reserve_port()
    first = min(new, key=lambda container: container.status.rank)
    first.port = port
    master_port = request.master_port if port is None else port.number
    store = _store(request, node, containers, first, master_port)
    for local_rank, container in enumerate(new):
        env = environment(request, node, container, local_rank, master_port) | live_environment(request, store)
        if store:
            container.status.live.store = store
        with rights_of(container.account):
            argv = (interpreter(request.command[0], env), *request.command[1:])
        command = ContainerCommand(
            argv=argv,
            cwd=request.working_folder,
            env=env,
            stdout=str(_output(request, node, folder, STDOUT)),
            stderr=str(_output(request, node, folder, STDERR)),
            zygote=ZygoteKind.WORKERS if can_fork(argv, env) else None,
        )
        try:
            containers.launch(container, command)
        except OSError as error:
            for started in new[:local_rank]:
                containers.stop(started, 0.0, "its gang could not be started whole")
            if port is not None:
                port.close()
            raise not_written("folders of a container must be writable", error) from error
    return [container.status for container in new]


def _store(
    request: pb.StartContainersRequest, node: Node, containers: Containers, first: Container, master_port: int
) -> str:
    """Return host:port of the gang's store, and start the store if it belongs on this node; empty: there is none.

    Raises:
        OSError: it could not be started; nothing was started.
    """
    if not request.HasField("live") or request.live.store:
        return request.live.store
    try:
        env = environment(request, node, first, 0, master_port)
        return start_store(request, first.folder.parent, env, node, containers)
    except OSError as error:
        if first.port is not None:
            first.port.close()
        raise not_written("folders of a store must be writable", error) from error


def live_environment(request: pb.StartContainersRequest, store: str) -> dict[str, str]:
    """Return the variables for workers of a job that changes its size live; empty for other jobs."""
    if not request.HasField("live"):
        return {}
    return {
        "EUNOMIA_ELASTIC": "live",
        "EUNOMIA_GENERATION": str(request.live.generation),
        "EUNOMIA_MEMBERS": json.dumps(list(request.live.members)),
        "EUNOMIA_STORE": store,
    }


def _output(request: pb.StartContainersRequest, node: Node, folder: Path, stream: str) -> Path:
    """Return the output file of a stream: separate for each start if the app master has created the folder for it."""
    attempt = request.env.get("EUNOMIA_ATTEMPT", "")
    with as_owner(node.app_folder(request.app)):
        if attempt.isdecimal() and (folder / OUTPUT_FOLDER).is_dir():
            return own_output(folder, int(attempt), request.incarnation, node.name, stream)
    return folder / stream


def _new_container(
    request: pb.StartContainersRequest, wanted: pb.ContainerRequest, folder: Path, node: Node
) -> Container:
    status = pb.ContainerStatus(
        container_id=wanted.container_id,
        app=request.app,
        job=request.job,
        incarnation=request.incarnation,
        slot=wanted.slot,
        epoch=wanted.epoch,
        rank=wanted.rank,
        state=pb.NEW,
        live=pb.LiveStatus(began=request.live.generation) if request.HasField("live") else None,
    )
    account = account_of(request.login)
    own = folder / "containers" if account is None else node.records_folder(request.app)
    container = Container(
        status, own / wanted.container_id, account=account, run_folder=folder if account else None, system=node.system
    )
    container.gang_slots = frozenset(mate.slot for mate in request.containers)
    container.members = tuple(request.live.members)
    container.prepared = Prepared() if request.prepare else None
    return container


def environment(
    request: pb.StartContainersRequest, node: Node, container: Container, local_rank: int, master_port: int
) -> dict[str, str]:
    """Build the complete environment of a worker.

    As with ``torchrun``, every worker sees all GPUs of its gang on this machine; its own one is at index LOCAL_RANK.
    """
    slots = [node.machine.slot(wanted.slot) for wanted in request.containers]
    uuids = [slot.uuid for slot in slots if slot is not None]
    ranks: Mapping[str, object] = {
        "RANK": container.status.rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": request.world_size or len(request.containers),
        "LOCAL_WORLD_SIZE": len(request.containers),
        "GROUP_RANK": request.group_rank,
        "MASTER_ADDR": request.master_address or "127.0.0.1",
        "MASTER_PORT": master_port,
    }
    own: Mapping[str, object] = {
        MARK: container.mark,
        "EUNOMIA_CONTAINER_DIR": container.worker_folder,
        "EUNOMIA_RUN_DIR": container.run_folder,
        "EUNOMIA_JOB": f"{request.app}/{request.job}",
        "EUNOMIA_INCARNATION": request.incarnation,
        "EUNOMIA_NODE": node.name,
        "CUDA_VISIBLE_DEVICES": ",".join(filter(None, uuids)),  # empty on CPU slots: such a worker touches no GPU
    }
    interfaces = {}
    if request.world_size > len(request.containers) and (interface := interface_to(request.master_address)):
        interfaces = dict.fromkeys(INTERFACES, interface)
    fixed = {name: str(value) for name, value in {**ranks, **own}.items()}
    of_account = {} if container.account is None else container.account.environment
    return {**base_environment(), **dict.fromkeys(THREADS, "1"), **interfaces, **request.env, **of_account, **fixed}
