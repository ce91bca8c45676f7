"""An arbiter's service in a thread, with a launcher and app masters that do what a test tells them, over real gRPC."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import grpc

from eunomia.journal.journal import Journal
from eunomia.platform.profiles import Profile
from eunomia.units import Seconds
from eunomia_appmaster.journal_check import check_folder
from eunomia_appmaster.node.connections import watch
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc
from eunomia_appmaster.protocol import launcher_pb2 as lpb
from eunomia_appmaster.protocol import launcher_pb2_grpc as lrpc
from eunomia_appmaster.protocol.versions import PROTOCOL, PYTHON, VERSION
from eunomia_appmaster.service.server import start_server
from eunomia_appmaster.service.service import Service
from eunomia_appmaster.service.settings import Settings

NODE = "box7"
PATIENCE_SECONDS = 60.0
T = TypeVar("T")


def eventually(look: Callable[[], T], what: str = "") -> T:
    """Wait until ``look`` answers with something true."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (seen := look()):
        assert time.monotonic() < deadline, f"never came true: {what or look}"
        time.sleep(0.01)
    return seen


class Arbiter:
    """The service on an event loop in a thread of its own."""

    def __init__(self, state_dir: Path, policy: str = "default", **settings: Any) -> None:
        quick = {"heartbeat": Seconds(0.2), "node_heartbeat": Seconds(0.3), "durable": False}
        values: dict[str, Any] = quick | {"address": "127.0.0.1:0"} | settings
        self.settings = Settings(state_dir=state_dir, policy=policy, **values)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.service, self._server, self._work = self.run(self._start())
        self.address = self.service.address

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    async def _start(self) -> tuple[Service, Any, "asyncio.Task[None]"]:
        journal = Journal.open(self.settings.journal, durable=False)
        profile = Profile.load(self.settings.policy, settings=self.settings.overrides)
        service = Service(self.settings, journal, profile, Profile.fallback())
        server, service.address = await start_server(service, self.settings.address)
        self._watching = asyncio.create_task(watch(service.connections))
        return service, server, asyncio.create_task(service.run())

    def call(self, function: Callable[[], T]) -> T:
        """Call something on the loop, under the driver's lock."""

        async def under_lock() -> T:
            async with self.service.driver.lock:
                return function()

        return self.run(under_lock())

    def saved(self) -> bytes:
        return self.call(lambda: self.service.driver.arbiter.save())

    def close(self, *, checkpoint: bool = True) -> None:
        """End; without a checkpoint, the next arbiter has the steps alone."""
        self.run(self._close(checkpoint))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        self._loop.close()

    async def _close(self, checkpoint: bool) -> None:
        self._work.cancel()
        self._watching.cancel()
        await asyncio.gather(self._work, self._watching, return_exceptions=True)
        await self._server.stop(0)
        if not checkpoint and self.service._driver is not None:
            self.service.journal.checkpoint = lambda state: None  # type: ignore[method-assign,misc,assignment]
        await self.service.close()


class Launcher:
    """Registers a node, and gives slots back on orders, unless they are held busy."""

    def __init__(self, lab: "Lab", slots: int = 4, launcher_id: str = "first", node: str = NODE) -> None:
        self._lab = lab
        self.node = node
        self.launcher_id = launcher_id
        self.slots = slots
        self.busy: set[int] = set()
        self.closed: dict[int, int] = {}
        self.masters: dict[str, lpb.AppMasterStatus] = {}
        self.containers: list[lpb.ContainerStatus] = []
        self.revoked: list[lpb.Revocation] = []
        self.started: dict[tuple[str, int], lpb.AppMasterOrder] = {}
        self.stopped: set[str] = set()
        self.fenced: dict[int, int] = {}
        self.tuned: dict[int, int] = {}
        self.not_tuned: dict[int, str] = {}
        self.unkilled: dict[int, list[lpb.UnkilledProcess]] = {}
        self.registration_id = ""
        self.response_id = 0
        self.version = 0

    def stub(self) -> lrpc.ResourceTrackerStub:
        return lrpc.ResourceTrackerStub(self._lab.channel)

    @property
    def token(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self._lab.arbiter.service.tokens.launcher}"),)

    def states(self) -> list[lpb.SlotState]:
        return [
            lpb.SlotState(
                slot=slot,
                closed_epoch=self.closed.get(slot, 0),
                busy=slot in self.busy,
                tuned_epoch=self.tuned.get(slot, 0),
                not_tuned=self.not_tuned.get(slot, ""),
                unkilled=self.unkilled.get(slot, ()),
            )
            for slot in range(self.slots)
        ]

    def registration(self, **more: Any) -> lpb.RegisterNodeRequest:
        values: dict[str, Any] = {
            "node": self.node,
            "host": self.node,
            "container_manager_address": "127.0.0.1:1",
            "slots": [lpb.Slot(index=index, gpu_type="cpu", cpus=1, memory_gib=2) for index in range(self.slots)],
            "cpus": float(self.slots),
            "memory_gib": 2.0 * self.slots,
            "slot_states": self.states(),
            "app_masters": list(self.masters.values()),
            "containers": self.containers,
            "launcher_id": self.launcher_id,
            "version": VERSION,
            "python": PYTHON,
            "protocol": PROTOCOL,
            "storage_hash": self._lab.arbiter.service.storage.hash,
        }
        return lpb.RegisterNodeRequest(**(values | more))

    def register(self, **more: Any) -> None:
        request = self.registration(**more)
        answer = self.stub().RegisterNode(request, metadata=self.token, timeout=PATIENCE_SECONDS)
        self.registration_id, self.response_id = answer.registration_id, 0

    def beat(self) -> lpb.NodeHeartbeatResponse:
        """One heartbeat: obey what it is answered with."""
        answer = self.stub().NodeHeartbeat(
            lpb.NodeHeartbeatRequest(
                node=self.node,
                registration_id=self.registration_id,
                response_id=self.response_id,
                slot_states=self.states(),
                app_masters=list(self.masters.values()),
                containers=self.containers,
            ),
            metadata=self.token,
            timeout=PATIENCE_SECONDS,
        )
        self.response_id = answer.response_id
        self.tuned |= {tune.slot: tune.epoch for tune in answer.tunes}
        for order in answer.revocations:
            self.revoked.append(order)
            self.closed[order.slot] = max(order.epoch, self.closed.get(order.slot, 0))
        for fence in answer.fences:
            self.fenced[fence.slot] = fence.epoch
            self.closed[fence.slot] = max(fence.epoch, self.closed.get(fence.slot, 0))
        for start in answer.start_app_masters:
            self.started[start.app, start.attempt] = start
            self.master(start.app, start.attempt, lpb.APP_MASTER_RUNNING)
        for stop in answer.stop_app_masters:
            self.stopped.add(stop.app)
        return answer

    def master(self, app: str, attempt: int, state: "lpb.AppMasterState.ValueType", **more: Any) -> None:
        self.version += 1
        self.masters[app] = lpb.AppMasterStatus(app=app, attempt=attempt, state=state, version=self.version, **more)

    def report(self) -> None:
        """Say at once how things stand, without asking for orders."""
        self.stub().ReportContainers(
            lpb.ReportContainersRequest(
                node=self.node,
                registration_id=self.registration_id,
                slot_states=self.states(),
                app_masters=list(self.masters.values()),
                containers=self.containers,
            ),
            metadata=self.token,
            timeout=PATIENCE_SECONDS,
        )


class Beating:
    """Heartbeats in a thread, so that a test can look at other things."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        self._end = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._beat, self._report)]
        for thread in self._threads:
            thread.start()

    def _beat(self) -> None:
        while not self._end.is_set():
            with contextlib.suppress(grpc.RpcError):
                self.launcher.beat()

    def _report(self) -> None:
        while not self._end.wait(0.05):
            with contextlib.suppress(grpc.RpcError):
                self.launcher.report()

    def end(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)


class Master:
    """An app master that sends the given reports."""

    def __init__(self, lab: "Lab", app: str, attempt: int = 1) -> None:
        self._lab = lab
        self.app = app
        self.attempt, self.part = attempt, 0
        self.response_id = 0
        self.leases: dict[int, pb.Lease] = {}
        self.leaving: list[pb.LeavingSlots] = []
        self.offers: list[pb.Offer] = []
        self.closed: list[int] = []
        self.ended: list[int] = []
        self.renewed: list[pb.LeaseRenewal] = []

    @property
    def token(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self._lab.arbiter.service.tokens.app(self.app)}"),)

    def stub(self) -> rpc.ApplicationMasterProtocolStub:
        return rpc.ApplicationMasterProtocolStub(self._lab.channel)

    def register(self, plugins: list[tuple[str, str]] | None = None) -> pb.RegisterApplicationMasterResponse:
        versions = [pb.PluginVersion(name=name, version=version) for name, version in plugins or ()]
        request = pb.RegisterApplicationMasterRequest(
            app=self.app, attempt=self.attempt, part=self.part, agent_plugins=versions
        )
        answer = self.stub().RegisterApplicationMaster(request, metadata=self.token, timeout=PATIENCE_SECONDS)
        self.response_id = 0
        self.leases = {lease.id: lease for lease in answer.leases}
        return answer

    def call(self, response_id: int | None = None, **reports: Any) -> pb.AllocateResponse:
        """One heartbeat, as it is."""
        number = self.response_id if response_id is None else response_id
        request = pb.AllocateRequest(app=self.app, attempt=self.attempt, response_id=number, **reports)
        return self.stub().Allocate(request, metadata=self.token, timeout=PATIENCE_SECONDS)

    def beat(self, **reports: Any) -> pb.AllocateResponse:
        """One heartbeat, and note what it says."""
        answer = self.call(**reports)
        assert answer.a_m_command == pb.AM_NONE, answer
        self.response_id = answer.response_id
        self.leases |= {lease.id: lease for lease in answer.allocated_leases}
        self.leaving += answer.preempt.strict_contract.leaving
        self.offers += answer.offers
        self.closed += answer.closed_offers
        self.ended += answer.ended_leases
        for gone in answer.ended_leases:
            self.leases.pop(gone, None)
        self.renewed += answer.renewed
        return answer

    def beat_until(self, look: Callable[[], T], **reports: Any) -> T:
        """Heartbeats until something came true; reports go with the first."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        self.beat(**reports)
        while not (seen := look()):
            assert time.monotonic() < deadline, "never came true"
            self.beat()
        return seen

    def finish(self, **more: Any) -> pb.FinishApplicationMasterResponse:
        values: dict[str, Any] = {"final_application_status": pb.SUCCEEDED, **more}
        request = pb.FinishApplicationMasterRequest(app=self.app, attempt=self.attempt, **values)
        return self.stub().FinishApplicationMaster(request, metadata=self.token, timeout=PATIENCE_SECONDS)


class Lab:
    """A state folder with an arbiter, a launcher and app masters."""

    def __init__(self, folder: Path, policy: str = "default", slots: int = 4, **settings: Any) -> None:
        self.folder = folder
        (folder / "train.py").write_text("")
        self.arbiter = Arbiter(folder / "state", policy, **settings)
        self.channel = grpc.insecure_channel(self.arbiter.address)
        self.launcher = Launcher(self, slots)
        self.beating: Beating | None = None

    def ready(self) -> "Lab":
        """Register the node and keep it beating."""
        self.launcher.register()
        self.beating = Beating(self.launcher)
        eventually(lambda: self.arbiter.service.ready.is_set(), "ready")
        return self

    def quiet(self) -> None:
        """Stop the launcher's heartbeats."""
        if self.beating is not None:
            self.beating.end()
            self.beating = None

    def client(self) -> rpc.ClientProtocolStub:
        return rpc.ClientProtocolStub(self.channel)

    @property
    def operator(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.arbiter.service.tokens.operator}"),)

    def submit(self, name: str = "ana", slots: str = "2", **more: Any) -> pb.SubmitResponse:
        text = f'[app]\nname = "{name}"\nuser = "ana"\n[job]\ncommand = "python train.py"\nslots = {slots}\n'
        values = {"app_file": text, "file_name": "app.toml", "folder": str(self.folder), "user": "ana", **more}
        return self.client().Submit(pb.SubmitRequest(**values), metadata=self.operator, timeout=PATIENCE_SECONDS)

    def master(self, name: str = "ana", slots: str = "2") -> Master:
        """Submit an app and be its master."""
        self.submit(name, slots)
        return Master(self, name)

    def seen(self, **more: Any) -> pb.ListResponse:
        request = pb.ListRequest(ended=True, jobs=True, slots=True, **more)
        return self.client().List(request, metadata=self.operator, timeout=PATIENCE_SECONDS)

    def app(self, name: str) -> pb.App:
        return self.seen(app=name).apps[0]

    def slots(self, state: str) -> list[int]:
        return [slot.gpu for slot in self.seen().slots if slot.state == state]

    def lose(self) -> None:
        """Stop the launcher's heartbeats, and have a machine that is silent for a moment count as lost."""
        self.quiet()
        for node in self.arbiter.service.nodes:
            node.lease.ends_at = 0.0
        self.arbiter.service.nodes.silence = Seconds(0.2)
        eventually(lambda: len(self.slots("down")) == self.launcher.slots, "the machine is lost")
        self.arbiter.service.nodes.silence = Seconds(30.0)

    def restart(self, *, checkpoint: bool = False, **settings: Any) -> None:
        """End the arbiter and start another on the same journal and address."""
        self.quiet()
        old = self.arbiter.settings
        self.arbiter.close(checkpoint=checkpoint)
        self.channel.close()
        kept = {"heartbeat": old.heartbeat, "node_silence": old.node_silence, "overrides": old.overrides}
        kept["node_lease"] = old.node_lease
        self.arbiter = Arbiter(old.state_dir, settings.pop("policy", old.policy), **(kept | settings))
        self.channel = grpc.insecure_channel(self.arbiter.address)

    def close(self) -> None:
        self.quiet()
        self.channel.close()
        self.arbiter.close()


class Two:
    """An arbiter with two nodes of two slots each, box7 and annex."""

    def __init__(self, lab: Any) -> None:
        self.lab = lab
        lab.ready()
        self.annex = Launcher(lab, 2, "of annex", "annex")
        self.annex.register()
        self.beating: Any = Beating(self.annex)

    def quiet(self) -> None:
        if self.beating is not None:
            self.beating.end()
            self.beating = None

    def call(self, name: str, request: Any) -> Any:
        return getattr(self.lab.client(), name)(request, metadata=self.lab.operator, timeout=30.0)

    def nodes(self) -> dict[str, pb.NodeView]:
        return {node.node: node for node in self.call("ListNodes", pb.ListNodesRequest()).nodes}

    def remove(self, **more: Any) -> pb.RemoveNodeResponse:
        return self.call("RemoveNode", pb.RemoveNodeRequest(node="annex", **more))

    def refused(self, name: str, request: Any) -> str:
        try:
            self.call(name, request)
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            return str(error.details())
        raise AssertionError(f"{name} was not refused")

    def lose(self) -> None:
        """Have the second node count as lost."""
        self.quiet()
        self.lab.arbiter.service.nodes.silence = Seconds(0.5)
        eventually(lambda: self.nodes()["annex"].state == "down", "annex is lost")
        self.lab.arbiter.service.nodes.silence = Seconds(30.0)

    def restart(self) -> None:
        self.quiet()
        self.lab.restart()
        if "annex" in self.lab.arbiter.service.nodes.layout.slots:
            self.annex.register()
            self.beating = Beating(self.annex)
        self.lab.ready()


def gang(job: str, gpus: int) -> pb.JobAdded:
    """A job of a fixed number of slots."""
    return pb.JobAdded(job=job, least=gpus, most=gpus, iterations=100.0)


@contextlib.contextmanager
def lab(folder: Path, policy: str = "default", **more: Any) -> Iterator[Lab]:
    made = Lab(folder, policy, **more)
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def two_nodes(folder: Path, node_lease: float) -> Iterator[Two]:
    """An arbiter with two nodes, whose journal the checker looks at in the end."""
    with lab(folder, slots=2, node_lease=Seconds(node_lease)) as made:
        two = Two(made)
        yield two
        two.quiet()
        assert check_folder(made.arbiter.settings.state_dir).findings == []
