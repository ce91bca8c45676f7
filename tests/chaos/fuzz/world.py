"""An arbiter's service in this process, called as its gRPC server calls it: token, bytes, handler, bytes."""

import asyncio
import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import grpc
from google.protobuf.message import Message

from chaos.fuzz.values import ATTACKERS, WITNESS
from eunomia.contract.bundles import offer_classes
from eunomia.contract.codec import encode
from eunomia.journal.journal import Journal
from eunomia.platform.profiles import Profile
from eunomia.units import NONE, AppId, Seconds, Stage
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc, launcher_pb2_grpc
from eunomia_appmaster.protocol import launcher_pb2 as lpb
from eunomia_appmaster.protocol.versions import PROTOCOL, PYTHON, VERSION
from eunomia_appmaster.service.clients import ClientProtocol
from eunomia_appmaster.service.guard import Guard, Method
from eunomia_appmaster.service.masters import ApplicationMasterProtocol
from eunomia_appmaster.service.server import start_server
from eunomia_appmaster.service.service import Service
from eunomia_appmaster.service.settings import Settings
from eunomia_appmaster.service.tracker import ResourceTracker

NODE: Final = "box7"
SLOTS: Final = 8
MASTER: Final = "/eunomia.arbiter.ApplicationMasterProtocol/"
CLIENT: Final = "/eunomia.arbiter.ClientProtocol/"
TRACKER: Final = "/eunomia.launcher.ResourceTracker/"
Metadata = tuple[tuple[str, str], ...]


@dataclasses.dataclass(slots=True)
class Answer:
    """What a call came to: a status' name, and the answer or why there is none."""

    code: str
    content: bytes = b""
    words: str = ""


class HeardContext:
    """What a handler sees of a call."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.code, self.words = "OK", ""

    def invocation_metadata(self) -> Metadata:
        """What was sent along."""
        return self._metadata

    def peer(self) -> str:
        """Who calls."""
        return "ipv4:127.0.0.1:1"

    async def abort(self, code: grpc.StatusCode, words: str = "", trailing: Metadata = ()) -> None:
        """End the call."""
        self.code, self.words = code.name, words
        words.encode()  # it goes over the wire
        raise grpc.aio.AbortError


class World:
    """A service with a witness that holds slots, and attackers whose tokens are known; an async context manager.

    Args:
        folder: empty; for journal and apps.
        policy: what it serves by.
        overrides: ``KEY=VALUE`` for the profile.
    """

    def __init__(self, folder: Path, policy: str, overrides: tuple[str, ...] = ()) -> None:
        self.folder = folder
        (folder / "train.py").write_text("")
        settings = Settings(
            state_dir=folder / "state",
            address="127.0.0.1:0",
            policy=policy,
            overrides=overrides,
            heartbeat=Seconds(0.0),
            node_heartbeat=Seconds(0.02),
            node_silence=Seconds(3600.0),
            durable=False,
        )
        journal = Journal.open(settings.journal, durable=False)
        self.service = Service(settings, journal, Profile.load(policy, settings=overrides), Profile.fallback())
        self.guard = Guard(self.service.tokens)
        self.methods = self._methods()
        self.real: list[tuple[str, bytes]] = []
        """Calls of those who meant well, as they were sent."""
        self.attackers = [f"app-{number}" for number in range(ATTACKERS)]
        self._work: list[asyncio.Task[Any]] = []
        self._server: grpc.aio.Server | None = None
        self.registration = ""

    async def __aenter__(self) -> Self:
        self._work.append(asyncio.create_task(self.service.run()))
        self._server, self.service.address = await start_server(self.service, "127.0.0.1:0")
        await self._register_node()
        self._work.append(asyncio.create_task(self._launch()))
        await self.service.ready.wait()
        await self.enter(WITNESS, jobs=1)
        for name in self.attackers:
            await self.enter(name, jobs=3)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        if self._server is not None:
            await self._server.stop(0)
        await self.service.close()

    # --- calls -----------------------------------------------------------------------------------------------------

    async def send(self, method: str, content: bytes, metadata: Metadata) -> Answer:
        """Call as the server would: nothing reaches a handler that gRPC and the guard would not let through."""
        refusal = self.guard.refusal(method, metadata)
        if refusal is not None:
            return Answer(refusal[0].name, words=refusal[1])
        call = self.methods.get(method)
        if call is None:
            return Answer("UNIMPLEMENTED")
        context = HeardContext(metadata)
        try:
            answer = await call(content, context)  # type: ignore[arg-type]
        except grpc.aio.AbortError:
            return Answer(context.code, words=context.words)
        return Answer("OK", answer.SerializeToString())

    async def tell(self, method: str, message: Message, metadata: Metadata) -> bytes:
        """Call with a message that is meant well; it is kept as an example."""
        content = message.SerializeToString()
        self.real.append((method, content))
        answer = await self.send(method, content, metadata)
        while answer.code == "RESOURCE_EXHAUSTED":
            await asyncio.sleep(0.05)
            answer = await self.send(method, content, metadata)
        if answer.code != "OK":
            raise RuntimeError(f"{method}: {answer.code} {answer.words}")
        return answer.content

    def token(self, app: str) -> Metadata:
        """What an app's master sends along."""
        return (("authorization", f"Bearer {self.service.tokens.app(app)}"),)

    @property
    def operator(self) -> Metadata:
        """What a command sends along."""
        return (("authorization", f"Bearer {self.service.tokens.operator}"),)

    @property
    def launcher(self) -> Metadata:
        """What the launcher sends along."""
        return (("authorization", f"Bearer {self.service.tokens.launcher}"),)

    def _methods(self) -> Mapping[str, Method]:
        found: dict[str, Method] = {}

        class _Registry:
            """Stands in for a server when handlers are added to it."""

            def add_generic_rpc_handlers(self, handlers: Any) -> None:
                """Nothing: the other method brings the same."""

            def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
                """Keep each handler's method by its full name."""
                for name, handler in handlers.items():
                    found[f"/{service}/{name}"] = guard.reader(f"/{service}/{name}", handler)

        guard, registry = self.guard, _Registry()
        launcher_pb2_grpc.add_ResourceTrackerServicer_to_server(ResourceTracker(self.service), registry)  # type: ignore[arg-type]
        arbiter_pb2_grpc.add_ApplicationMasterProtocolServicer_to_server(
            ApplicationMasterProtocol(self.service),
            registry,  # type: ignore[arg-type]
        )
        arbiter_pb2_grpc.add_ClientProtocolServicer_to_server(ClientProtocol(self.service), registry)  # type: ignore[arg-type]
        return found

    # --- those who mean well ---------------------------------------------------------------------------------------

    async def enter(self, name: str, *, jobs: int) -> None:
        """Submit an app, register its master, and report of every kind once."""
        text = f'[app]\nname = "{name}"\nuser = "{name}"\n[job]\ncommand = "python train.py"\nslots = 2\n'
        submit = pb.SubmitRequest(app_file=text, file_name="app.toml", folder=str(self.folder), user=name)
        await self.tell(CLIENT + "Submit", submit, self.operator)
        service = self.service
        plugins = [service.stage_plugins.of(Stage.ELASTICITY), service.stage_plugins.of(Stage.VALUATION)]
        versions = [pb.PluginVersion(name=plugin.name, version=plugin.version) for plugin in plugins]
        register = pb.RegisterApplicationMasterRequest(app=name, attempt=1, agent_plugins=versions)
        await self.tell(MASTER + "RegisterApplicationMaster", register, self.token(name))
        numbers = range(1, jobs + 1)
        added = [pb.JobAdded(job=f"{name}/{number}", least=1, most=2, iterations=1e6, kind=name) for number in numbers]
        await self._beat(name, jobs_added=added, forecast=_forecast(jobs))
        if name != self.attackers[0]:
            return
        job = f"{name}/1"
        reports: list[dict[str, Any]] = [
            {"jobs_progress": [pb.JobProgress(job=job, iterations_done=3, rate=2.0)], "progress": 0.5},
            {"rates": [pb.MeasuredRate(job=job, gpus=2, locality=pb.MACHINE, rate=3.0, gpu_type="cpu")]},
            {"adaptations": [pb.Adaptation(job=job, batch_size=64)]},
            {"jobs_failed": [pb.JobFailed(job=job, again_in_seconds=0.5, why="out of memory")]},
            {"jobs_paused": [job]},
            {"jobs_resumed": [pb.JobResumed(job=job, iterations=2e6)]},
            {"division": pb.Division(jobs=[pb.JobSlots(job=job, gpus=[0, 1])])},
            {"release": [pb.Release(lease=1, epoch=1, gpus=[0, 1])], "ask": [pb.Ask(num_containers=2)]},
            {"bid": pb.Bid(offer=1, bundles=self.table())},
            {"bid": pb.Bid(offer=1, encoded=json.dumps(encode(None)))},
            {"standing": pb.Standing(metric="loss", best=0.5, best_job=job, best_params_json="{}", trials=3)},
            {"jobs_finished": [f"{name}/3"]},
        ]
        for report in reports:
            await self._beat(name, **report)
        for method, message in (
            ("List", pb.ListRequest(ended=True, jobs=True, slots=True)),
            ("Explain", pb.ExplainRequest(job=f"{name}/2")),
            ("Health", pb.HealthRequest()),
            ("Resume", pb.ResumeRequest()),
        ):
            await self.tell(CLIENT + method, message, self.operator)

    async def _beat(self, name: str, **reports: Any) -> None:
        number = self.service.sessions[name].response_id
        request = pb.AllocateRequest(app=name, attempt=1, response_id=number, **reports)
        await self.tell(MASTER + "Allocate", request, self.token(name))

    def table(self) -> pb.BundleTable:
        """A small bid that fits the open offer, if there is one."""
        offer, view = self.service.view.open_offer, self.service.view
        table = pb.BundleTable(now=3.0, rho=[1.5], part_start=[0, 1], part_class=[0], part_gpus=[1], part_machines=[1])
        if offer is not None and offer.gpus.size:
            classes = offer_classes(view.cluster, offer)
            for field in ("start", "machine", "free", "gpu_type", "rack"):
                getattr(table.classes, field).extend(getattr(classes, field).tolist())
        return table

    # --- the machine -----------------------------------------------------------------------------------------------

    async def _register_node(self) -> None:
        slots = [lpb.Slot(index=index, gpu_type="cpu", cpus=1, memory_gib=2) for index in range(SLOTS)]
        request = lpb.RegisterNodeRequest(
            node=NODE, host=NODE, container_manager_address="127.0.0.1:1", slots=slots, cpus=8, memory_gib=16
        )
        request.version, request.python, request.protocol, request.head = VERSION, PYTHON, PROTOCOL, True
        request.slot_states.extend(lpb.SlotState(slot=index) for index in range(SLOTS))
        content = await self.tell(TRACKER + "RegisterNode", request, self.launcher)
        self.registration = lpb.RegisterNodeResponse.FromString(content).registration_id

    async def _launch(self) -> None:
        """Obey as a launcher does: what is revoked is given back at the next heartbeat."""
        closed, response_id = dict.fromkeys(range(SLOTS), 0), 0
        running: list[lpb.AppMasterStatus] = []
        while True:
            request = lpb.NodeHeartbeatRequest(node=NODE, registration_id=self.registration, response_id=response_id)
            request.slot_states.extend(lpb.SlotState(slot=slot, closed_epoch=epoch) for slot, epoch in closed.items())
            request.app_masters.extend(running)
            answer = await self.send(TRACKER + "NodeHeartbeat", request.SerializeToString(), self.launcher)
            if answer.code == "OK":
                orders = lpb.NodeHeartbeatResponse.FromString(answer.content)
                response_id = orders.response_id
                for slot, epoch in _closed_by(orders):
                    closed[slot] = max(closed[slot], epoch)
                running = [
                    lpb.AppMasterStatus(
                        app=start.app, attempt=start.attempt, state=lpb.APP_MASTER_RUNNING, version=response_id
                    )
                    for start in orders.start_app_masters
                ]
            else:  # an attacker has registered in its name
                with contextlib.suppress(RuntimeError):
                    await self._register_node()
            await asyncio.sleep(0.02)

    # --- what must not change --------------------------------------------------------------------------------------

    def said_by(self, name: str, *, slots: bool) -> str:
        """Digest of all that only an app itself may say, and on demand of what it holds.

        Args:
            name: of the app.
            slots: its leases too; only where no round may take them away.
        """
        service, state = self.service, self.service.driver.arbiter.state
        row = state.app_row(AppId(name))
        app = service.apps.get(name)
        session = service.sessions.get(name)
        facts: list[Any] = [row, app and dataclasses.asdict(app) | {"rho": None}]
        facts += [session and (session.attempt, session.response_id, session.bids)]
        if row != NONE:
            facts.append(encode(state.reports.forecasts.get(row)))
            jobs = sorted(state.owners.jobs_of.get(row, ()))
            table = state.jobs.live
            columns = ("app", "least", "most", "iterations", "seconds_per_iteration", "gpu_type", "batch_size")
            facts += [[str(state.job_id(job)), *(float(getattr(table, name)[job]) for name in columns)] for job in jobs]
            facts += [encode(state.reports.measured.get(job)) for job in jobs]
            facts += [None if state.open is None else encode(state.open.bids.get(row))]
            if slots:
                facts += [
                    (lease.id, lease.epoch, lease.job, lease.gpus, lease.state.name) for lease in state.app_leases(row)
                ]
                held = state.holdings.live
                facts += [(held.app == row).nonzero()[0].tolist(), held.epoch[held.app == row].tolist()]
        return hashlib.sha256(repr(facts).encode()).hexdigest()


def _closed_by(orders: lpb.NodeHeartbeatResponse) -> Iterator[tuple[int, int]]:
    """Slots with the epochs that are over there."""
    for revocation in orders.revocations:
        yield revocation.slot, revocation.epoch
    for fence in orders.fences:
        yield fence.slot, fence.epoch


def _forecast(jobs: int) -> pb.Forecast:
    job = pb.JobForecast(iterations_left=1e6, seconds_per_iteration=0.5, least=1, most=2, slowdown=[1, 1, 2, 2])
    return pb.Forecast(phases=[pb.Phase(jobs=[job] * jobs)], total_gpu_seconds=5e5 * jobs, most=2 * jobs)
