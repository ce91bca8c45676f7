"""A machine, an arbiter, app masters and a user: one run in virtual time, with a stop at one point."""

import asyncio
import contextlib
import csv
import functools
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from chaos.crash_points.auditor import Auditor
from chaos.crash_points.gangs import Gang
from chaos.crash_points.joining import SECOND, USED, JoiningMachine, Operator, patched, refusal
from chaos.crash_points.live_gang import LiveGang
from chaos.crash_points.network import HERE, Network, Process, task_factory
from chaos.crash_points.system import VirtualSystem, repeatable
from chaos.crash_points.virtual import Crash, Threads, VirtualLoop
from chaos.crash_points.workers import QuickEpochs, Workers, is_store
from eunomia.arbiter import Arbiter
from eunomia.contract.events import Event
from eunomia.errors import EunomiaError
from eunomia.journal.journal import Journal, read_journal
from eunomia.journal.values import Note
from eunomia.model.cluster import Cluster
from eunomia.model.shapes import builds, value
from eunomia.platform.profiles import Profile
from eunomia.units import Seconds
from eunomia_appmaster.app.master_folders import trials_file
from eunomia_appmaster.launcher.access import TokenFileAccess
from eunomia_appmaster.launcher.app_masters import AppMasters
from eunomia_appmaster.launcher.container import Container
from eunomia_appmaster.launcher.node import Node
from eunomia_appmaster.launcher.server import ContainerManager
from eunomia_appmaster.launcher.stalls import Stalls
from eunomia_appmaster.launcher.stores import keep_stores
from eunomia_appmaster.launcher.tracker import Tracker
from eunomia_appmaster.master import process
from eunomia_appmaster.master.settings import Settings as MasterSettings
from eunomia_appmaster.node.kept_files import sealed_token
from eunomia_appmaster.node.local_machine import LocalMachine, LocalSlot
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc
from eunomia_appmaster.service import service
from eunomia_appmaster.service.admission import NodeAdmission
from eunomia_appmaster.service.clients import ClientProtocol
from eunomia_appmaster.service.layout import Layout
from eunomia_appmaster.service.masters import ApplicationMasterProtocol
from eunomia_appmaster.service.settings import Settings
from eunomia_appmaster.service.tracker import ResourceTracker

ARBITER, APP_MASTER, LAUNCHER = "arbiter", "app_master", "launcher"
"""Of a launcher its service to app masters is stopped; its talk with the arbiter goes on."""
STORE = "store"
"""Of jobs that change live; stopped at the points of app masters and launchers."""
RESTART_SECONDS = 0.1
CUT_SECONDS = 6.0
LONGEST_SECONDS = 120.0
"""Virtual; a run that takes longer hangs."""
NODE = "box"
PROFILE_SETTINGS = ("rounds.lease=2s", "rounds.bid_deadline=0.5s", "rounds.suspend_grace=3s")


@value
class AppSpec:
    """An app of the run: its file, and when it is submitted (virtual seconds)."""

    text: str
    at: float


@builds
class Outcome:
    """How a run ended.

    Attributes:
        points: that the processes of the watched kind reached, in order.
        end: what every run has to end with: apps, jobs, results.
        broken: rules that were broken on the way, unexpected errors.
        seconds: virtual, until all was over.
        sizes: of each incarnation of a job that changes live: steps done and number of workers, as each generation made
            its first step.
    """

    points: list[str]
    end: dict[str, Any]
    broken: list[str]
    seconds: float
    sizes: dict[str, list[tuple[int, int]]]


class CrashJournal(Journal):
    """The journal, with a point before and after each commit."""

    process: Process
    auditor: Auditor
    system: VirtualSystem

    def moment(self) -> tuple[float, float]:
        """Returns the virtual time."""
        return self.system.unix_time(), self.system.uptime()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        """Write with a point before and after the commit."""
        self.process.check()
        with super().transaction() as database:
            yield database
            self.process.point("journal: before the commit")
        self.process.point("journal: after the commit")

    def append(self, now: Seconds, events: Any, decision: Any, *, at: float | None = None, notes: Any = ()) -> int:
        """Journal a step, and tell the auditor as soon as it is on the disk."""
        self.process.check()
        notes = list(notes)
        with contextlib.ExitStack() as stack:
            stack.callback(self._tell_auditor, self.last_step, events, decision, notes)
            return super().append(now, events, decision, at=at, notes=notes)

    def _tell_auditor(self, before: int, events: list[Event], decision: Any, notes: list[Note]) -> None:
        if self.last_step > before:  # it is on the disk, whatever happened afterwards
            self.auditor.journaled(events, decision, [note.key for note in notes])


class World:
    """One run.

    Args:
        folder: for all files; empty.
        apps: that are submitted.
        slots: of each machine.
        nodes: how many machines; all but the first join the cluster.
        cut_at: virtual seconds after which the last node's launcher is cut off, for ``CUT_SECONDS``; None: it is not.
        scene: ``joins`` or ``leaves``: a further machine joins with a token, and is removed; see ``Script``.
        kind: of which processes the points are counted; None: none is stopped.
        stop_at: number of the point at which the process is stopped, from 1; None: none is.
    """

    def __init__(
        self,
        folder: Path,
        specs: Sequence[AppSpec],
        *,
        slots: int,
        nodes: int = 1,
        cut_at: float | None = None,
        scene: str = "",
        kind: str | None = None,
        stop_at: int | None = None,
    ) -> None:
        self.folder = folder
        (folder / "train.py").write_text("")
        self.loop = VirtualLoop()
        self.loop.set_task_factory(task_factory)
        self.threads = Threads(self.loop)
        self.auditor = Auditor()
        self.network = Network(self.loop, self.threads, self._servicer, self.auditor.answered)
        self.system = VirtualSystem(self.threads, self.network, self._exited)
        self.points: list[str] = []
        self.faults: list[str] = []
        self.log: list[dict[str, Any]] = []
        self._specs = specs
        self._slots = slots
        self._nodes = nodes
        self._cut_at = cut_at
        self._scene = scene
        self._joining: JoiningMachine | None = None
        self._kind = kind
        self._stop_at = stop_at
        self._profile = _profile()
        self._settings = Settings(
            state_dir=folder / "state",
            address="127.0.0.1:1",
            durable=False,
            checkpoint_steps=8,
            seed=3,
            node_silence=Seconds(90.0 if cut_at is None else CUT_SECONDS / 3.0),
            node_lease=Seconds(90.0 if cut_at is None else CUT_SECONDS / 3.0),
        )
        self._arbiter: Process | None = None
        self._service: service.Service | None = None
        self._servicers: tuple[Any, ...] = ()
        self._masters: dict[str, tuple[Process, Any]] = {}
        self._workers: list[Workers] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._managers: dict[str, ContainerManager] = {}
        """By address."""
        self._launchers: dict[str, Process] = {}
        self._layout: Layout | None = None
        """The last one that the arbiter knew."""

    def run(self) -> Outcome:
        """Run to the end."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(repeatable(self.log, self.loop.time))
            stack.enter_context(contextlib.closing(self.loop))
            if self._scene:
                self.network.refuse = lambda method, metadata: refusal(self._service, method, metadata)
                stack.enter_context(patched(self.network, self._answers))
            try:
                self.loop.run_until_complete(self._run())
            finally:
                if self._joining is not None:
                    self._joining.let_go()
                masters = (master for master, _ in self._masters.values())
                for process_ in [self._arbiter, *masters, *self._launchers.values()]:
                    if process_ is not None:
                        process_.at_death = []
                        process_.kill()
                self.loop.run_until_complete(self._settle())
        return self._outcome

    async def _settle(self) -> None:
        await asyncio.sleep(0.1)
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.sleep(0.1)

    async def _run(self) -> None:
        self._begin_arbiter()
        self.auditor.live = self._live
        (self.folder / "launcher.token").write_text(sealed_token("launcher"))
        gangs: dict[tuple[str, int, int], Gang] = {}
        trackers = []
        for number in range(self._nodes):
            trackers.append(self._begin_launcher(number, gangs))
            while self._nodes > 1 and self.layout is None:
                await asyncio.sleep(0.01)  # so that the others join
        if self._cut_at is not None:
            self.loop.call_at(self._cut_at, self._cut, trackers)
        end: dict[str, Any] = {}
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                if self._scene:
                    await self._join(gangs)
                clients = [asyncio.create_task(self._submit(number, spec)) for number, spec in enumerate(self._specs)]
                await asyncio.gather(*clients)
                if self._scene == "leaves" and self._joining is not None:
                    await self._leave(self._joining)
                await self._until_over()
        except TimeoutError:
            self.faults.append(f"it did not end within {LONGEST_SECONDS:.0f} s")
        seconds = self.loop.time()
        end = self._end()
        for task in (*trackers, *self._keepers):
            task.cancel()
        broken = [*self.auditor.broken, *self.faults, *self.network.faults, *self.threads.failures]
        live = {key: gang for key, gang in gangs.items() if isinstance(gang, LiveGang)}
        sizes = {f"{app}/{job} {incarnation}": gang.sizes for (app, job, incarnation), gang in live.items()}
        self._outcome = Outcome(points=self.points, end=end, broken=broken, seconds=seconds, sizes=sizes)

    async def _join(self, gangs: dict[tuple[str, int, int], Gang]) -> None:
        """Let the further machine join with a token."""
        while self.layout is None:
            await asyncio.sleep(0.01)
        self._operator = Operator(self.network, self._settings.address)
        self._joining = JoiningMachine(self, _machine(self._slots), gangs)
        self._joining.text = await self._operator.token()
        self._joining.begin()
        while self.layout is None or SECOND not in self.layout.slots:
            await asyncio.sleep(0.01)

    async def _leave(self, machine: JoiningMachine) -> None:
        """Remove the machine once a worker runs there, and try its token again."""
        while not any(not one.completed for one in machine.workers or ()):
            await asyncio.sleep(0.01)
        await asyncio.sleep(1.0)
        await self._operator.remove(SECOND)
        while not machine.removed:
            await asyncio.sleep(0.01)
        if USED not in (why := await self._operator.refusal(machine)):
            self.faults.append(f"the token of a removed node must be refused, but got {why or 'another join'}")

    def _answers(self, address: str) -> bool:
        return address in self._managers and not self._launchers[address].dead

    def _begin_launcher(self, number: int, gangs: dict[tuple[str, int, int], Gang]) -> "asyncio.Task[None]":
        name, settings = f"{NODE}{number or ''}", self._settings
        folder = self.folder / name if number else None
        node = Node(settings.state_dir, name, _machine(self._slots), folder=folder, system=self.system)
        node.epochs = QuickEpochs(self.folder / f"{name}.epochs.json")
        workers = Workers(node, self, gangs)
        self._workers.append(workers)
        address = f"127.0.0.1:{2 + number}"
        self._managers[address] = ContainerManager(node, workers, Stalls(workers))
        self._serve_workers(address, workers)
        self._keepers.append(self.loop.create_task(keep_stores(workers)))
        node.publish(address)
        return self._track(workers)

    def _cut(self, trackers: "list[asyncio.Task[None]]") -> None:
        trackers.pop().cancel()
        address = list(self._launchers)[-1]
        self._launchers[address].dead = True  # its processes live on, and nothing is given up
        self.loop.call_later(CUT_SECONDS, self._mend, address, trackers)

    def _mend(self, address: str, trackers: "list[asyncio.Task[None]]") -> None:
        self._serve_workers(address, self._workers[-1])
        trackers.append(self._track(self._workers[-1]))

    def _track(self, workers: Workers) -> "asyncio.Task[None]":
        masters = AppMasters(workers.node, workers, self._settings.address)
        access = TokenFileAccess(self._settings.address, self.folder / "launcher.token")
        return asyncio.create_task(Tracker(workers.node, workers, masters, access).run())

    def _serve_workers(self, address: str, workers: Workers) -> None:
        here = self._launchers[address] = Process(LAUNCHER, workers.node.name, self.loop, self._hit)
        here.at_death.append(lambda: self._launcher_died(address, workers))

    def _launcher_died(self, address: str, workers: Workers) -> None:
        workers.restart()
        if not self.loop.is_closed():
            self.loop.call_later(RESTART_SECONDS, self._serve_workers, address, workers)

    @property
    def layout(self) -> Layout | None:
        """The last layout that an arbiter knew."""
        if self._service is not None:
            self._layout = self._service.nodes.layout or self._layout
        return self._layout

    def gpu(self, node: str, slot: int) -> int | None:
        """Returns the number of a slot in the cluster."""
        return None if self.layout is None else self.layout.gpu(node, slot)

    def _live(self) -> Iterator[tuple[int | None, Container]]:
        for workers in self._workers:
            for container in workers:
                yield self.gpu(workers.node.name, container.status.slot), container

    async def _until_over(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            live = self._service
            if self._arbiter is None or self._arbiter.dead:
                continue  # what it knew last may not have been journaled
            if live is None or not live.ready.is_set() or live.apps.live or len(list(live.apps)) < len(self._specs):
                continue
            quiet = not list(live.view.leases()) and all(container.completed for _, container in self._live())
            if quiet and self.threads.owner is None and not live.driver._events:
                return

    # --- the arbiter ---------------------------------------------------------------------------------------------

    def _begin_arbiter(self) -> None:
        self._arbiter = Process(ARBITER, "arbiter", self.loop, self._hit)
        self._arbiter.at_death.append(self._arbiter_died)
        self._servicers, self._service = (), None
        self._arbiter.begin(self._serve(self._arbiter))

    async def _serve(self, here: Process) -> None:
        journal: Any = None
        try:
            journal = CrashJournal.open(self._settings.journal, durable=False)
            journal.process, journal.auditor, journal.system = here, self.auditor, self.system
            here.at_death.insert(0, journal.close)
            made = service.Service(self._settings, journal, self._profile, _fallback(), system=self.system)
            self._servicers = (ResourceTracker(made), ApplicationMasterProtocol(made), ClientProtocol(made))
            self._servicers += (NodeAdmission(made),) if self._scene else ()
            self._service = made
            await made.run()
        except Crash:
            raise
        except Exception as error:
            self.faults.append(f"the arbiter ended: {error!r}")
            here.kill()

    def _exited(self, code: int) -> None:
        """The arbiter ended itself, since it cannot go on."""
        reasons = [entry.get("exception", "") for entry in self.log if entry["level"] == "error"]
        why = reasons[-1].strip().splitlines()[-1] if reasons else ""
        if self._arbiter is not None and HERE.get() is self._arbiter and not self._arbiter.dead:
            self.faults.append(f"the arbiter ended itself with {code}: {why}")
            self._arbiter.kill()

    def _arbiter_died(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_later(RESTART_SECONDS, self._begin_arbiter)

    def _servicer(self, target: str, method: str) -> tuple[Callable[..., Any], Process | None] | None:
        if target in self._managers:
            launcher = self._launchers[target]
            return None if launcher.dead else (getattr(self._managers[target], method), launcher)
        if self._arbiter is None or self._arbiter.dead:
            return None
        for servicer in self._servicers:
            if hasattr(servicer, method):
                return getattr(servicer, method), self._arbiter
        return None

    def _hit(self, here: Process, what: str) -> None:
        if here.kind != self._kind and (self._kind != STORE or here.kind not in (APP_MASTER, LAUNCHER)):
            return
        self.points.append(f"{here.name}: {what}")
        if len(self.points) == self._stop_at:
            if self._kind == STORE:
                self._kill_stores()
                return
            here.kill()
            raise Crash

    def _kill_stores(self) -> None:
        for workers in self._workers:
            for container in [each for each in workers if is_store(each) and not each.completed]:
                workers.lose(container)

    # --- app masters ---------------------------------------------------------------------------------------------

    def start_master(self, app: str, env: dict[str, str], _: Path) -> "MasterProcess":
        """Start an attempt of an app's master."""
        here = MasterProcess(APP_MASTER, app, self.loop, self._hit)
        here.at_death.append(lambda: here.ended(None))

        def work() -> None:
            made = process.AppMaster(MasterSettings.read(Path(env["EUNOMIA_APP_DIR"]), env), system=self.system)
            self._masters[app] = (here, made)
            code = made.run()
            self.loop.call_soon(here.ended, code)

        def guarded() -> None:
            try:
                work()
            except EunomiaError as error:
                self.faults.append(f"the master of {app} ended: {error}")
                self.loop.call_soon(here.ended, error.exit_code)

        self._masters[app] = (here, None)
        here.thread(self.threads, guarded)
        return here

    def stop_master(self, app: str) -> None:
        """SIGTERM."""
        _, made = self._masters[app]
        if made is not None:
            made.stop()

    def kill_master(self, app: str) -> None:
        """SIGKILL."""
        self._masters[app][0].kill()

    # --- the user ------------------------------------------------------------------------------------------------

    async def _submit(self, number: int, spec: AppSpec) -> None:
        await asyncio.sleep(spec.at)
        channel: Any = self.network.aio_channel(self._settings.address)
        stub = rpc.ClientProtocolStub(channel)
        request = pb.SubmitRequest(
            app_file=spec.text,
            file_name="app.toml",
            folder=str(self.folder),
            user="ana",
            request_id=f"request-{number}",
        )
        while True:
            try:
                await stub.Submit(request, timeout=30.0)
                return
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    self.faults.append(f"a submission was refused: {error.code()}, {error.details()}")
                    return
            await asyncio.sleep(0.1)

    # --- the end -------------------------------------------------------------------------------------------------

    def _end(self) -> dict[str, Any]:
        if self._service is None or self._service._driver is None:
            return {}
        live = self._service.driver.arbiter
        with read_journal(self._settings.journal) as journal:
            self.auditor.over(journal, live, self._fresh(live), self._fresh(live))
        scene = {} if self._joining is None else {"machine": self._joining.end(self._service)}
        return scene | {
            "apps": {app.name: self._app(app) for app in self._service.apps},
            "holders": live.state.holdings.live.lease.tolist(),
            "jobs": sorted(live.state.names.jobs),
        }

    def _fresh(self, live: Arbiter) -> Arbiter:
        """One of the same cluster, profile and seed, that has made no step."""
        cluster = self._begun_cluster()
        fallback = _fallback().stages(cluster)
        return Arbiter(cluster, self._profile.stages(cluster), fallback, seed=live.state.counters.seed)

    def _begun_cluster(self) -> Cluster:
        """Returns the cluster with which the journal begins; other machines have joined."""
        with read_journal(self._settings.journal) as journal:
            return Layout.decoded(journal.meta["layout"]).cluster

    def _app(self, app: Any) -> dict[str, Any]:
        path = trials_file(self._settings.apps / app.name)
        rows = list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []
        kept = ("job", "parameters", "state", "rung", "iterations", "metric", "best", "why")
        return {
            "state": app.state,
            "why": app.why,
            "jobs": dict(sorted(app.ended_jobs.items())),
            "best": (app.standing.get("best_job"), app.standing.get("best")),
            "trials": [{name: row[name] for name in kept} for row in rows],
        }


class MasterProcess(Process):
    """One attempt of an app master."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.at_end: list[Callable[[int | None], None]] = []

    def ended(self, code: int | None) -> None:
        """It has ended, by itself or not."""
        self.dead = True
        for tell in self.at_end:
            tell(code)


class ResolvedOnce(Profile):
    """A profile that writes itself out once: that takes longer than all else in a run together."""

    def resolved(self) -> str:
        """See ``Profile.resolved``."""
        return _resolved(self)


@functools.cache
def _resolved(profile: ResolvedOnce) -> str:
    return Profile.resolved(profile)


@functools.cache
def _profile() -> Profile:
    return ResolvedOnce.load("themis", settings=PROFILE_SETTINGS)


@functools.cache
def _fallback() -> Profile:
    return Profile.fallback()


def _machine(slots: int) -> LocalMachine:
    made = tuple(
        LocalSlot(index=index, gpu_type="cpu", uuid="", island=0, cpus=1.0, memory_gib=1.0) for index in range(slots)
    )
    return LocalMachine(host=NODE, slots=made, cpus=float(slots), memory_gib=float(slots))


def run_once(
    specs: Sequence[AppSpec],
    *,
    slots: int,
    nodes: int = 1,
    cut_at: float | None = None,
    scene: str = "",
    kind: str | None = None,
    stop_at: int | None = None,
) -> Outcome:
    """Run in a folder of its own, in memory where the machine has such a place."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        return World(
            Path(folder), specs, slots=slots, nodes=nodes, cut_at=cut_at, scene=scene, kind=kind, stop_at=stop_at
        ).run()
