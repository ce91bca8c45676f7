"""App masters as processes of their own: a real launcher, real workers, and an arbiter that a test plays by hand."""

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from concurrent import futures
from importlib import util
from pathlib import Path
from typing import Any

import grpc
from tests.appmaster import job_output

from eunomia_appmaster.app.master_folders import activity_files, trials_file
from eunomia_appmaster.app.submission import Submission
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc
from eunomia_appmaster.protocol import launcher_pb2 as launcher_pb
from eunomia_appmaster.protocol import launcher_pb2_grpc as launcher_rpc
from eunomia_appmaster.protocol.tokens import container_token

HERE = Path(__file__).parent


def _load(name: str) -> Any:
    spec = util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


launcher_lab = _load("launcher_lab")
eventually = launcher_lab.eventually
NODE: str = launcher_lab.NODE


class HandPlayedArbiter(launcher_lab.Arbiter, rpc.ApplicationMasterProtocolServicer):  # type: ignore[misc, name-defined]
    """Grants and revokes what the test says, and keeps what app masters report."""

    def __init__(self, slots: int) -> None:
        super().__init__()
        self.slot_count = slots
        self.epoch = 100
        self.requests: list[pb.AllocateRequest] = []
        self.finished: list[pb.FinishApplicationMasterRequest] = []
        self.registered: list[pb.RegisterApplicationMasterRequest] = []
        self.leases: dict[int, pb.Lease] = {}
        self.command = pb.AM_NONE
        self._response = pb.AllocateResponse(response_id=0)
        self._pending = pb.AllocateResponse()
        self._calls = 0
        self._condition = threading.Condition()

    def start(self) -> "HandPlayedArbiter":
        self._server = grpc.server(futures.ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
        launcher_rpc.add_ResourceTrackerServicer_to_server(self, self._server)
        rpc.add_ApplicationMasterProtocolServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        self._server.start()
        return self

    # -- what a test does

    def grant(
        self,
        app: str,
        lease: int,
        *gpus: int,
        job: str | None = None,
        ends_at: float | None = None,
        probe: int | None = None,
    ) -> None:
        """Grant a lease, or change it; ``probe``: iterations of a measurement on these slots of it."""
        with self._condition:
            self.epoch += 1
            containers = [
                pb.Container(
                    node_id=NODE,
                    slot=gpu,
                    gpu=gpu,
                    gpu_type="cpu",
                    version=self.epoch,
                    container_token=container_token(launcher_lab.SECRET, app, NODE, gpu, self.epoch),
                )
                for gpu in gpus
            ]
            self.leases[lease] = pb.Lease(
                id=lease, epoch=self.epoch, job=job, containers=containers, ends_at=ends_at, probe_iterations=probe
            )
            self._pending.allocated_leases.append(self.leases[lease])
            self._condition.notify_all()

    def revoke(self, app: str, lease: int, *gpus: int, seconds: float = 10.0) -> None:
        """Take slots of a lease back: the launcher and the app master hear of it."""
        with self._condition:
            self.epoch += 1
            kept = [container for container in self.leases[lease].containers if container.gpu not in gpus]
            self.leases[lease].epoch = self.epoch
            del self.leases[lease].containers[:]
            for container in kept:
                container.version = self.epoch
                container.container_token = container_token(launcher_lab.SECRET, app, NODE, container.slot, self.epoch)
            self.leases[lease].containers.extend(kept)
            self._pending.preempt.strict_contract.leaving.add(
                lease=lease, epoch=self.epoch, gpus=gpus, deadline_seconds=seconds
            )
            self._pending.allocated_leases.append(self.leases[lease])
            self._condition.notify_all()
        old = self.epoch - 1
        self.order(revocations=[launcher_pb.Revocation(slot=gpu, epoch=old, deadline_seconds=seconds) for gpu in gpus])

    def free(self, *gpus: int) -> None:
        """Wait until nothing runs on these slots."""
        eventually(lambda: not any(self.slots[gpu].busy for gpu in gpus if gpu in self.slots), "slots free")

    def say(self, **fields: Any) -> None:
        """Put something else into the next answer."""
        with self._condition:
            self._pending.MergeFrom(pb.AllocateResponse(**fields))
            self._condition.notify_all()

    def forget_app_masters(self) -> None:
        """Behave as a restarted arbiter: every app master has to register again."""
        with self._condition:
            self.command = pb.AM_RESYNC
            self._condition.notify_all()

    def reports(self, field: str) -> list[Any]:
        """Everything of one kind that was reported, in order."""
        found: list[Any] = []
        for request in list(self.requests):
            content = getattr(request, field)
            if isinstance(content, Sequence) or hasattr(content, "__iter__"):
                found += list(content)
            elif request.HasField(field):  # type: ignore[arg-type]
                found.append(content)
        return found

    # -- what app masters call

    def RegisterApplicationMaster(
        self, request: pb.RegisterApplicationMasterRequest, context: grpc.ServicerContext
    ) -> pb.RegisterApplicationMasterResponse:
        with self._condition:
            self.registered.append(request)
            self.command = pb.AM_NONE
            self._response = pb.AllocateResponse(response_id=0)
            self._pending = pb.AllocateResponse()
            machine = pb.Machine(name=NODE, gpu_type="cpu", gpus=self.slot_count, rack="r1")
            return pb.RegisterApplicationMasterResponse(
                cluster=pb.ClusterDescription(machines=[machine]),
                leases=self.leases.values(),
                now=5.0,
                arrived_at=1.0,
                user="ana",
                weight=1.0,
                user_weight=1.0,
                heartbeat_seconds=0.5,
            )

    def Allocate(self, request: pb.AllocateRequest, context: grpc.ServicerContext) -> pb.AllocateResponse:
        with self._condition:
            self.requests.append(request)
            if self.command != pb.AM_NONE:
                return pb.AllocateResponse(a_m_command=self.command)
            if request.response_id == self._response.response_id - 1:
                return self._response
            self._calls += 1
            mine = self._calls
            self._condition.notify_all()
            empty = pb.AllocateResponse()
            self._condition.wait_for(
                lambda: self._pending != empty or self._calls != mine or self.command != pb.AM_NONE, 0.5
            )
            if self.command != pb.AM_NONE:
                return pb.AllocateResponse(a_m_command=self.command)
            if self._calls != mine:
                return pb.AllocateResponse(response_id=request.response_id, now=6.0)
            self._response = pb.AllocateResponse(response_id=request.response_id + 1, now=6.0)
            self._response.MergeFrom(self._pending)
            self._pending = pb.AllocateResponse()
            return self._response

    def FinishApplicationMaster(
        self, request: pb.FinishApplicationMasterRequest, context: grpc.ServicerContext
    ) -> pb.FinishApplicationMasterResponse:
        with self._condition:
            self.finished.append(request)
            self.command = pb.AM_SHUTDOWN
        return pb.FinishApplicationMasterResponse(is_unregistered=True)


class MasterLab(launcher_lab.Lab):  # type: ignore[misc, name-defined]
    """A launcher, a hand-played arbiter, and app masters that the launcher starts."""

    def __init__(self, folder: Path, slots: int = 3) -> None:
        self.made = HandPlayedArbiter(slots)
        launcher_lab.Arbiter = lambda: self.made
        super().__init__(folder, slots=slots)
        self.arbiter: HandPlayedArbiter = self.made
        (folder / "tiny_worker.py").write_bytes((HERE / "tiny_worker.py").read_bytes())

    def submit(self, app: str, text: str, *, master: Path | None = None) -> Path:
        """Write an app's folder and have its master started; ``master``: a script in its place."""
        app_dir: Path = self.state / "apps" / app
        app_dir.mkdir(parents=True)
        name = f"{app}.toml"
        Submission(file_name=name, folder=self.folder, user="ana", env={}, app_file=text).write(app_dir)
        program = ["-m", "eunomia_appmaster.master"] if master is None else [str(master)]
        command = ["python", *program, "--app-dir", str(app_dir)]
        roots = [str(launcher_lab.ROOT / root) for root in ("core", "solvers", "plugins", "appmaster", "hpo_adapters")]
        order = launcher_pb.AppMasterOrder(
            app=app, attempt=1, command=command, token="app token", env={"PYTHONPATH": ":".join(roots)}
        )
        self.arbiter.order(start_app_masters=[order])
        eventually(lambda: self.arbiter.registered, "registration of the app master")
        return app_dir

    def master_output(self, app: str) -> str:
        """What the app master itself said."""
        return job_output.master_output(self.state / "apps" / app)

    def activity(self, app: str, event: str | None = None) -> list[dict[str, Any]]:
        """Lines of activity.jsonl."""
        files = [path for path in activity_files(self.state / "apps" / app) if path.exists()]
        lines = [line for path in files for line in path.read_text().splitlines()]
        found = [json.loads(line) for line in lines]
        return [line for line in found if event is None or line["event"] == event]

    def trials(self, app: str) -> list[dict[str, str]]:
        """Rows of trials.csv."""
        import csv

        with trials_file(self.state / "apps" / app).open() as file:
            return list(csv.DictReader(file))


@contextlib.contextmanager
def master_lab(folder: Path, slots: int = 3) -> Iterator[MasterLab]:
    """Open a laboratory; its logs are printed when a test fails in it."""
    made = MasterLab(folder, slots)
    try:
        yield made
    except BaseException:
        print(made.output())
        for app in (made.state / "apps").iterdir():
            print(made.master_output(app.name))
        raise
    finally:
        made.close()
