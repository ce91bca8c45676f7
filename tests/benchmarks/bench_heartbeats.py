"""How long heartbeats take to be answered while many app masters call and auctions go on.

    python tests/benchmarks/bench_heartbeats.py 300
    python tests/benchmarks/bench_heartbeats.py 300 1000 --beside OLDER_CHECKOUT

The arbiter is a process of its own; this one plays the launcher and all app masters, over real gRPC on loopback. Each
master has one elastic job, reports progress with every heartbeat, and bids for every offer. Prints; asserts no timing.

What is measured is the DELAY of an answer. An empty answer is due ``heartbeat_seconds`` after it was asked for; its
delay is what it took beyond that: transport both ways, reading, folding, and whatever it waited for a step or a
processor. An answer with news has no due time, so it does not count; instead it is told how long after the first
master the last one heard of the same offer (spread). Both ends share this machine, so the delay contains this process'
own share of waiting for a processor.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil

from eunomia.contract.bundles import MachineClasses
from eunomia.platform.profiles import Profile
from eunomia.units import Stage
from eunomia_appmaster.master.wire import cluster_of
from eunomia_appmaster.node.kept_files import read_token
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc
from eunomia_appmaster.protocol import launcher_pb2 as lpb
from eunomia_appmaster.protocol import launcher_pb2_grpc as lrpc
from eunomia_appmaster.protocol.versions import PROTOCOL, PYTHON, VERSION

ROOT = Path(__file__).parent.parent.parent
SLOTS = 64
WARM_SECONDS = 5.0
OVERRIDES = ("rounds.lease=10s", "rounds.bid_deadline=1s", "rounds.suspend_grace=100ms")
FLOORS = ("core", "solvers", "plugins", "appmaster", "hpo_adapters", "testbed")


class Town:
    """An arbiter's process, and the launcher and app masters that call it."""

    def __init__(self, folder: Path, masters: int, *, durable: bool, root: Path = ROOT) -> None:
        self.folder = folder
        self._name = root.name
        self.masters = masters
        self.delays: list[float] = []
        self.news = 0
        self.heard: dict[int, list[float]] = defaultdict(list)
        self.refused: list[str] = []
        self.measuring = False
        self._classes: dict[int, MachineClasses] = {}
        self._ending = False
        self._tokens: dict[str, str] = {}
        self._registered: set[str] = set()
        command = [sys.executable, "-m", "eunomia_appmaster.service", "--state-dir", str(folder / "state")]
        command += ["--address", "127.0.0.1:0", "--policy", "themis"]
        for override in OVERRIDES:
            command += ["--set", override]
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join(str(root / floor) for floor in FLOORS),
            "EUNOMIA_LOG": "error",
        }
        with (folder / "arbiter.log").open("wb") as log:
            extra = [] if durable else ["--not-durable"]
            self.process = subprocess.Popen([*command, *extra], env=env, stdout=log, stderr=log)

    async def run(self, seconds: float) -> str:
        """Set all up, measure, and say what came of it."""
        run_dir = self.folder / "state" / "run"
        while not (run_dir / "address").exists():
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.1)
        options = [("grpc.use_local_subchannel_pool", 1)]
        address = (run_dir / "address").read_text().strip()
        self.channels = [grpc.aio.insecure_channel(address, options=options) for _ in range(8)]
        self.operator = _bearer((run_dir / "token").read_text())
        launcher = asyncio.create_task(self._launch(_bearer(read_token(run_dir / "launcher.token"))))
        (self.folder / "train.py").write_text("")
        client = rpc.ClientProtocolStub(self.channels[0])
        while not (await client.Health(pb.HealthRequest(), metadata=self.operator)).ready:
            await asyncio.sleep(0.05)
        plugins = _plugins()
        work = []
        for begin in range(0, self.masters, 50):
            numbers = range(begin, min(begin + 50, self.masters))
            await asyncio.gather(*(self._submit(client, number) for number in numbers))
            for number in numbers:
                stub = rpc.ApplicationMasterProtocolStub(self.channels[number % len(self.channels)])
                work.append(asyncio.create_task(self._master(stub, f"app-{number}", plugins)))
        while len(self._registered) < self.masters:
            await asyncio.sleep(0.1)
        await self._disturb(client)
        await asyncio.sleep(WARM_SECONDS)
        process, me = psutil.Process(self.process.pid), psutil.Process()
        before, mine, began = process.cpu_times(), me.cpu_times(), time.monotonic()
        first = await client.List(pb.ListRequest(), metadata=self.operator)
        steps = (await client.Health(pb.HealthRequest(), metadata=self.operator)).steps
        self.measuring = True
        await asyncio.sleep(seconds)
        self.measuring = False
        after, mine_after, wall = process.cpu_times(), me.cpu_times(), time.monotonic() - began
        health = await client.Health(pb.HealthRequest(), metadata=self.operator)
        self._ending = True
        for task in (*work, launcher):
            task.cancel()
        ends = await asyncio.gather(*work, return_exceptions=True)
        failed = [end for end in ends if isinstance(end, Exception)]
        for channel in self.channels:
            await channel.close(None)
        share = (after.user + after.system - before.user - before.system) / wall
        own = (mine_after.user + mine_after.system - mine.user - mine.system) / wall
        spreads = [1000.0 * (max(times) - min(times)) for times in self.heard.values() if len(times) > 1]
        cells = [
            self._name,
            f"{self.masters}",
            f"{len(self.delays) / wall:.0f}",
            f"{self.news / wall:.0f}",
            f"{_percentile(self.delays, 50):.1f}",
            f"{_percentile(self.delays, 99):.1f}",
            f"{statistics.median(spreads):.0f}" if spreads else "-",
            f"{(health.round - first.round) / wall:.1f}",
            f"{(health.steps - steps) / wall:.1f}",
            f"{100.0 * share:.0f} %",
            f"{100.0 * own:.0f} %",
            f"{process.memory_info().rss / 1e6:.0f}",
            f"{os.getloadavg()[0]:.1f}",
        ]
        notes = [str(failed[0])[:200]] if failed else []
        notes += [f"refused: {self.refused[0]}"] if self.refused else []
        notes += ["it fell back"] if health.fallback else []
        return f"| {' | '.join(cells)} |" + (f"  <!-- {'; '.join(notes)} -->" if notes else "")

    def close(self) -> None:
        """End the arbiter."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    async def _disturb(self, client: Any) -> None:
        """Begin what is to go on beside the heartbeats: here nothing."""

    async def _submit(self, client: Any, number: int) -> None:
        text = f'[app]\nname = "app-{number}"\n[job]\ncommand = "python train.py"\nslots = {{ min = 1, max = 4 }}\n'
        request = pb.SubmitRequest(app_file=text, file_name="app.toml", folder=str(self.folder), user=f"u{number % 20}")
        while True:
            try:
                await client.Submit(request, metadata=self.operator, timeout=60.0)
                return
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise
                await asyncio.sleep(0.1)

    # --- app masters -----------------------------------------------------------------------------------------------

    async def _master(self, stub: Any, app: str, plugins: list[pb.PluginVersion]) -> None:
        while app not in self._tokens:
            await asyncio.sleep(0.1)
        token = _bearer(self._tokens[app])
        request = pb.RegisterApplicationMasterRequest(app=app, attempt=1, agent_plugins=plugins)
        welcome = await stub.RegisterApplicationMaster(request, metadata=token, timeout=120.0)
        self._registered.add(app)
        cluster = cluster_of(welcome.cluster)
        heartbeat, number, done, bid = welcome.heartbeat_seconds, 0, 0.0, None
        job = f"{app}/1"
        left = pb.JobForecast(iterations_left=1e6, seconds_per_iteration=0.5, least=1, most=4)
        forecast = pb.Forecast(phases=[pb.Phase(jobs=[left])], total_gpu_seconds=5e5, most=4)
        first: dict[str, Any] = {
            "jobs_added": [pb.JobAdded(job=job, least=1, most=4, iterations=1e6, kind=app)],
            "forecast": forecast,
        }
        while not self._ending:
            done += 1.0
            report = {} if first else {"jobs_progress": [pb.JobProgress(job=job, iterations_done=done, rate=1.0)]}
            request = pb.AllocateRequest(app=app, attempt=1, response_id=number, bid=bid, **first, **report)
            asked = time.monotonic()
            answer = await stub.Allocate(request, metadata=token, timeout=60.0)
            took = time.monotonic() - asked
            first, bid, number = {}, None, answer.response_id
            self._note(answer, took - heartbeat)
            if answer.a_m_command:
                raise RuntimeError(f"{app}: {answer}")
            for offer in answer.offers:
                bid = self._bid(cluster, offer)

    def _note(self, answer: pb.AllocateResponse, delay: float) -> None:
        self.refused += [*answer.refused, *([answer.bid_error] if answer.bid_error else [])]
        if not self.measuring:
            return
        for offer in answer.offers:
            self.heard[offer.id].append(time.monotonic())
        plain = pb.AllocateResponse(response_id=answer.response_id, now=answer.now, mark=answer.mark)
        if answer == plain:
            self.delays.append(delay)
        else:
            self.news += 1

    def _bid(self, cluster: Any, offer: pb.Offer) -> pb.Bid:
        """One GPU of the first class: a bid that fits, with no agent's work in it."""
        classes = self._classes.get(offer.id)
        if classes is None:
            gpus = np.array(list(offer.gpus), dtype=np.int64)
            machine, free = np.unique(cluster.machine[gpus], return_counts=True)
            named = np.array(list(offer.named_machines), dtype=np.int64)
            classes = self._classes[offer.id] = MachineClasses.of(
                machine=machine,
                free=free,
                gpu_type=cluster.machine_type[machine],
                rack=cluster.machine_rack[machine],
                named=named,
            )
        table = pb.BundleTable(now=9.0, rho=[3.0], part_start=[0, 1], part_class=[0], part_gpus=[1], part_machines=[1])
        for field in ("start", "machine", "free", "gpu_type", "rack"):
            getattr(table.classes, field).extend(getattr(classes, field).tolist())
        return pb.Bid(offer=offer.id, bundles=table)

    # --- the launcher ----------------------------------------------------------------------------------------------

    async def _launch(self, token: Any) -> None:
        stub: Any = lrpc.ResourceTrackerStub(self.channels[-1])
        slots = [lpb.Slot(index=index, gpu_type="cpu", cpus=1, memory_gib=1) for index in range(SLOTS)]
        states = {index: lpb.SlotState(slot=index) for index in range(SLOTS)}
        request = lpb.RegisterNodeRequest(
            node="box7", container_manager_address="127.0.0.1:1", slots=slots, cpus=SLOTS, memory_gib=SLOTS
        )
        request.version, request.python, request.protocol, request.head = VERSION, PYTHON, PROTOCOL, True
        request.slot_states.extend(states.values())
        registered = await stub.RegisterNode(request, metadata=token)
        number, started = 0, []
        while True:
            beat = lpb.NodeHeartbeatRequest(
                node="box7", registration_id=registered.registration_id, response_id=number, app_masters=started
            )
            beat.slot_states.extend(states.values())
            answer = await stub.NodeHeartbeat(beat, metadata=token, timeout=60.0)
            number = answer.response_id
            for order in answer.revocations:
                states[order.slot].closed_epoch = max(order.epoch, states[order.slot].closed_epoch)
            self._tokens |= {start.app: start.token for start in answer.start_app_masters}
            started = [
                lpb.AppMasterStatus(app=start.app, attempt=start.attempt, state=lpb.APP_MASTER_RUNNING, version=1)
                for start in answer.start_app_masters
            ]


def _bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token.split()[0]}"),)


def _plugins() -> list[pb.PluginVersion]:
    profile = Profile.load("themis")
    names = [profile.plugins[stage] for stage in (Stage.ELASTICITY, Stage.VALUATION)]
    return [pb.PluginVersion(name=name, version=profile.registry.listed(name).found.version) for name in names]


def _percentile(seconds: list[float], part: float) -> float:
    return 1000.0 * float(np.percentile(seconds, part)) if seconds else float("nan")


HEADERS = (
    "code",
    "app masters",
    "empty answers/s",
    "answers with news/s",
    "delay p50 ms",
    "delay p99 ms",
    "offer spread ms",
    "rounds/s",
    "steps/s",
    "arbiter CPU",
    "this process CPU",
    "arbiter MB",
    "load",
)


def main() -> None:
    """Measure for each number of app masters."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("masters", type=int, nargs="*", default=[300])
    options.add_argument("--seconds", type=float, default=15.0, help="measured, after a warm-up")
    options.add_argument("--beside", type=Path, help="root of another checkout, measured before each figure")
    options.add_argument("--not-durable", action="store_true", help="no fsync a step")
    chosen = options.parse_args()
    print(f"| {' | '.join(HEADERS)} |")
    print("|---" * len(HEADERS) + "|", flush=True)
    roots = [*([chosen.beside.resolve()] if chosen.beside else []), ROOT]
    for masters, root in itertools.product(chosen.masters, roots):
        with tempfile.TemporaryDirectory(prefix="eunomia-beats-") as folder:
            town = Town(Path(folder), masters, durable=not chosen.not_durable, root=root)
            with contextlib.ExitStack() as stack:
                stack.callback(town.close)
                print(asyncio.run(town.run(chosen.seconds)), flush=True)


if __name__ == "__main__":
    main()
