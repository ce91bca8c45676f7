"""The stores of jobs that change their size live: started with a job's first workers, ended after its last."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog

from eunomia_appmaster.launcher.container import NO_SLOT, Container
from eunomia_appmaster.launcher.containers import ContainerCommand, Containers
from eunomia_appmaster.launcher.node import Node
from eunomia_appmaster.launcher.owners import account_of, rights_of
from eunomia_appmaster.launcher.processes import MARK
from eunomia_appmaster.launcher.zygote import ZygoteKind
from eunomia_appmaster.launcher.zygote_client import THREADS, can_fork, interpreter
from eunomia_appmaster.protocol import launcher_pb2 as pb

log = structlog.get_logger()

MODULE: Final = "eunomia_appmaster.launcher.store_process"
LOOPBACK: Final = "127.0.0.1"
_PREFIX = "store:"  # app masters' own ids contain no colon


def store_id(app: str, job: int, incarnation: int) -> str:
    """Return the container id of an incarnation's store."""
    return f"{_PREFIX}{app}:{job}:{incarnation}"


def start_store(
    request: pb.StartContainersRequest, folder: Path, env: dict[str, str], node: Node, containers: Containers
) -> str:
    """Start the store of an incarnation; returns its host and port, where it will listen in a moment.

    Args:
        request: request that starts the incarnation's first workers.
        folder: folder for the records of the job's containers.
        env: the environment of these workers.
        node: this machine.
        containers: containers of this machine.

    Raises:
        OSError: its files could not be written, or no port is free.
    """
    account = account_of(request.login)
    host = (request.master_address or LOOPBACK) if request.live.reachable else LOOPBACK
    name = store_id(request.app, request.job, request.incarnation)
    status = pb.ContainerStatus(
        container_id=name,
        app=request.app,
        job=request.job,
        incarnation=request.incarnation,
        slot=NO_SLOT,
        state=pb.NEW,
    )
    run_folder = folder.parent if account is None else Path(env["EUNOMIA_RUN_DIR"])
    store = Container(status, folder / name, account=account, run_folder=run_folder, system=node.system)
    store.port = node.system.reserve_port()
    with rights_of(account):
        program = interpreter("python", env)
    argv = (program, "-m", MODULE, host, str(store.port.number))
    own = {MARK: store.mark, **dict.fromkeys(THREADS, "1")}
    command = ContainerCommand(
        argv=argv,
        cwd=str(store.worker_folder),
        env={name: given for name, given in env.items() if name not in _OF_WORKERS} | own,
        stdout=str(store.worker_folder / "store.log"),
        stderr=str(store.worker_folder / "store.log"),
        zygote=ZygoteKind.WORKERS if can_fork(argv, own) else None,
    )
    try:
        containers.launch(store, command)
    except OSError:
        store.port.close()
        raise
    where = f"[{host}]" if ":" in host else host
    return f"{where}:{store.port.number}"


_OF_WORKERS = ("EUNOMIA_CONTAINER_DIR", "CUDA_VISIBLE_DEVICES")  # it writes no pulse, and uses no GPU


def is_store(container: Container) -> bool:
    """Return whether a container is a job's store."""
    return container.id.startswith(_PREFIX)


async def keep_stores(containers: Containers) -> None:
    """End the stores of jobs that have no worker here any more, and report those that died; runs until cancelled."""
    while True:
        look(containers)
        await containers.news.next()


def look(containers: Containers) -> None:
    """End the stores of jobs without workers here; report stores that have ended to the workers' app masters."""
    for store in list(containers):
        if not is_store(store):
            continue
        workers = list(_workers_of(store, containers))
        if not workers and not store.completed and store.seconds_left != 0.0:  # also before a later deadline
            containers.stop(store, 0.0, "its job's workers have ended")
        lost = [worker for worker in workers if store.completed and not worker.status.live.store_lost]
        for worker in lost:
            worker.status.live.store_lost = True
            worker.status.version = containers.news.announce()
        if lost:
            log.warning("store.lost", store=store.id, exit=str(store.status.exit).strip())


def _workers_of(store: Container, containers: Containers) -> Iterator[Container]:
    mine = (store.status.app, store.status.job, store.status.incarnation)
    for container in containers.on_slots():
        status = container.status
        if not container.completed and (status.app, status.job, status.incarnation) == mine:
            yield container
