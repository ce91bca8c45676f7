"""A launcher as a process of its own, between a tiny arbiter and a local runtime, both over real gRPC."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any, TypeVar

import grpc

from eunomia_appmaster.node.job_limits import JobLimits
from eunomia_appmaster.node.kept_files import sealed_token
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2_grpc as rpc
from eunomia_appmaster.protocol.tokens import container_token, node_token
from eunomia_appmaster.runtimes import ContainerSpec, ContainerStatus, GangSpec, LocalRuntime, WatchPosition

ROOT = Path(__file__).parent.parent.parent
SECRET = b"secret of sixteen bytes and more"
NODE = "box7"
PATIENCE_SECONDS = 120.0
Thing = TypeVar("Thing")


def eventually(look: Callable[[], Thing], what: str = "") -> Thing:
    """Wait until ``look`` answers with something true."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (seen := look()):
        assert time.monotonic() < deadline, f"never came true: {what or look}"
        time.sleep(0.02)
    return seen


class Arbiter(rpc.ResourceTrackerServicer):
    """As much of an arbiter as a launcher needs; its orders stand until they are replaced."""

    def __init__(self, token: str = "right", heartbeat_seconds: float = 0.5) -> None:
        self.token = token
        self.heartbeat_seconds = heartbeat_seconds
        self.registrations: list[pb.RegisterNodeRequest] = []
        self.containers: dict[str, pb.ContainerStatus] = {}
        self.history: list[tuple[str, int]] = []
        self.masters: dict[str, pb.AppMasterStatus] = {}
        self.slots: dict[int, pb.SlotState] = {}
        self.refused = 0
        self.draining = False
        self.limits: pb.JobLimits | None = None
        """The limits on jobs that it hands out; None: none."""
        self.lease = (0.0, 0.0)
        """Seconds of the leases that it gives, and of their grace; 0: without an end."""
        self.left = 0.0
        """What the launcher said last of its lease."""
        self._orders = pb.NodeHeartbeatResponse(response_id=1)
        self._news = threading.Condition()
        self._over = False
        self._server: grpc.Server | None = None
        self.port = 0

    def start(self) -> "Arbiter":
        self._server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        rpc.add_ResourceTrackerServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        self._server.start()
        return self

    def stop(self) -> None:
        with self._news:
            self._over = True
            self._news.notify_all()
        if self._server is not None:
            self._server.stop(0).wait()

    def order(self, **orders: Any) -> None:
        with self._news:
            self._orders = pb.NodeHeartbeatResponse(response_id=self._orders.response_id + 1, **orders)
            self._news.notify_all()

    def ShowStorage(self, request: pb.ShowStorageRequest, context: grpc.ServicerContext) -> pb.ShowStorageResponse:
        self._authorise(context)
        return pb.ShowStorageResponse()

    def RegisterNode(self, request: pb.RegisterNodeRequest, context: grpc.ServicerContext) -> pb.RegisterNodeResponse:
        self._authorise(context)
        self.registrations.append(request)
        self.containers.clear()
        self.masters.clear()
        self._take(request)
        return pb.RegisterNodeResponse(
            container_secret=SECRET,
            heartbeat_seconds=self.heartbeat_seconds,
            registration_id=str(len(self.registrations)),
            limits=self.limits,
            lease_seconds=self.lease[0],
            lease_grace_seconds=self.lease[1],
        )

    def NodeHeartbeat(self, request: Any, context: grpc.ServicerContext) -> pb.NodeHeartbeatResponse:
        self._authorise(context)
        self._known(request, context)
        self._take(request)
        with self._news:
            self._news.wait_for(
                lambda: self._over or self._orders.response_id != request.response_id, self.heartbeat_seconds
            )
            self.left = request.lease_left_seconds
            answer = pb.NodeHeartbeatResponse(lease_seconds=self.lease[0], lease_grace_seconds=self.lease[1])
            answer.MergeFrom(self._orders)
            return answer

    def ReportContainers(self, request: Any, context: grpc.ServicerContext) -> pb.ReportContainersResponse:
        self._authorise(context)
        self._known(request, context)
        self._take(request)
        return pb.ReportContainersResponse()

    def _authorise(self, context: grpc.ServicerContext) -> None:
        if ("authorization", f"Bearer {self.token}") not in context.invocation_metadata():
            self.refused += 1
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "a token must be the arbiter's")

    def _known(self, request: Any, context: grpc.ServicerContext) -> None:
        if request.registration_id != str(len(self.registrations)):
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "a node must register first")

    def _take(self, request: Any) -> None:
        self.draining = request.draining
        self.slots.update({state.slot: state for state in request.slot_states})  # first: tests wait for the containers
        for status in request.containers:
            known = self.containers.get(status.container_id)
            if known is None or status.version > known.version:
                self.containers[status.container_id] = status
                self.history.append((status.container_id, status.state))
        for master in request.app_masters:
            known_master = self.masters.get(master.app)
            if known_master is None or master.version > known_master.version or master.version == 1:
                self.masters[master.app] = master


class Lab:
    """One state folder with its launcher and arbiter."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        slots: int = 3,
        zygote: bool = False,
        more_path: str = "",
        limits: JobLimits | None = None,
    ) -> None:
        self.folder = folder
        self._more_path = more_path
        self.state = folder / "state"
        self.arbiter = Arbiter().start()
        self.arbiter.limits = None if limits is None else limits.message()
        self._options = [*options, *([] if zygote else ["--no-zygote"]), "--slots", str(slots), "--stop-seconds", "0.3"]
        self.runtimes: dict[str, LocalRuntime] = {}
        self.launcher: subprocess.Popen[bytes] | None = None
        (folder / "token").write_text(sealed_token("right"))
        self.start()

    def start(self) -> None:
        """Start the launcher and wait until it is registered."""
        before = len(self.arbiter.registrations)
        command = [sys.executable, "-m", "eunomia_appmaster.launcher", "--state", str(self.state), "--cpu-only"]
        command += ["--arbiter", f"127.0.0.1:{self.arbiter.port}", "--token-file", str(self.folder / "token")]
        env = {**os.environ, "PYTHONPATH": f"{ROOT / 'core'}:{ROOT / 'appmaster'}:{self._more_path}"}
        with (self.folder / "launcher.log").open("ab") as log:
            self.launcher = subprocess.Popen(
                [*command, "--node", NODE, *self._options], env=env, cwd="/", stdout=log, stderr=log
            )
        eventually(lambda: len(self.arbiter.registrations) > before, "registration")

    def kill(self) -> None:
        """Kill the launcher with SIGKILL."""
        assert self.launcher is not None
        self.launcher.kill()
        self.launcher.wait()

    def close(self) -> None:
        """End everything, and see that nothing is left."""
        assert self.launcher is not None
        if self.launcher.poll() is not None:
            self.start()
        self.launcher.send_signal(signal.SIGTERM)
        self.launcher.wait(PATIENCE_SECONDS)
        self.arbiter.stop()
        for runtime in self.runtimes.values():
            runtime.close()

    def output(self) -> str:
        """What the launcher itself said."""
        return (self.folder / "launcher.log").read_text()

    def runtime(self, app: str = "ana") -> LocalRuntime:
        if app not in self.runtimes:
            self.runtimes[app] = LocalRuntime(
                app, node_token(SECRET, app, NODE), self.state / "launcher" / "launcher.json"
            )
        return self.runtimes[app]

    def gang(self, *slots: int, script: str, app: str = "ana", epoch: int = 1, job: int = 1, **more: Any) -> GangSpec:
        """A gang of workers that run ``script``, ids made of job, incarnation and slot."""
        incarnation = more.pop("incarnation", 1)
        path = self.folder / f"{app}-{job}.py"
        path.write_text(script)
        containers = tuple(
            ContainerSpec(
                container_id=f"{app}-{job}.r{incarnation}.{slot}",
                slot=slot,
                epoch=epoch,
                token=container_token(SECRET, app, NODE, slot, epoch),
                rank=rank,
            )
            for rank, slot in enumerate(slots)
        )
        more = {"command": ("python", path.name), "working_folder": self.folder, **more}
        return GangSpec(job=job, incarnation=incarnation, containers=containers, **more)

    def run_folder(self, app: str = "ana", job: int = 1) -> Path:
        return self.state / "apps" / app / str(job)

    def stdout(self, app: str = "ana", job: int = 1) -> str:
        path = self.run_folder(app, job) / "stdout.log"
        return path.read_text() if path.exists() else ""

    def stderr(self, app: str = "ana", job: int = 1) -> str:
        path = self.run_folder(app, job) / "stderr.log"
        return path.read_text() if path.exists() else ""

    def status(self, container_id: str, app: str = "ana") -> ContainerStatus:
        watch = self.runtime(app).watch(WatchPosition(), wait_seconds=0)
        return next(status for status in watch.statuses if status.container_id == container_id)

    def completed(self, container_id: str, app: str = "ana") -> ContainerStatus:
        """Watch until the container is completed."""
        position = WatchPosition()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            watch = self.runtime(app).watch(position, wait_seconds=5)
            position = watch.position
            for status in watch.statuses:
                if status.container_id == container_id and status.completed:
                    return status
        raise AssertionError(f"{container_id} did not complete:\n{self.stderr(app)}\n{self.output()}")

    def container_record(self, container_id: str, app: str = "ana", job: int = 1) -> dict[str, Any]:
        folder = self.run_folder(app, job) / "containers" / container_id
        record: dict[str, Any] = json.loads((folder / "container.json").read_text())
        return record


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextlib.contextmanager
def lab(folder: Path, *options: str, **more: Any) -> Iterator[Lab]:
    """Open a laboratory; its log is printed when a test fails in it."""
    made = Lab(folder, *options, **more)
    try:
        yield made
    except BaseException:
        print(made.output())
        raise
    finally:
        made.close()
