"""Sends hostile messages by the hundred thousand and tells what they did."""

import asyncio
import copy
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Final

import grpc
import structlog
from google.protobuf.message import DecodeError, Message

from chaos.fuzz.containers_run import ContainersRun
from chaos.fuzz.found import Found, cpu_seconds, rss_mib
from chaos.fuzz.mutation import damaged, twisted
from chaos.fuzz.strategies import drawn
from chaos.fuzz.values import WITNESS
from chaos.fuzz.world import CLIENT, MASTER, NODE, TRACKER, Answer, Metadata, World
from eunomia.model.shapes import value
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2 as lpb

KINDS: Final[dict[str, type[Message]]] = {
    MASTER + "RegisterApplicationMaster": pb.RegisterApplicationMasterRequest,
    MASTER + "Allocate": pb.AllocateRequest,
    MASTER + "FinishApplicationMaster": pb.FinishApplicationMasterRequest,
    CLIENT + "Submit": pb.SubmitRequest,
    CLIENT + "List": pb.ListRequest,
    CLIENT + "Explain": pb.ExplainRequest,
    CLIENT + "Cancel": pb.CancelRequest,
    CLIENT + "Health": pb.HealthRequest,
    CLIENT + "Resume": pb.ResumeRequest,
    CLIENT + "ResumeApp": pb.ResumeAppRequest,
    CLIENT + "MoreTrials": pb.MoreTrialsRequest,
    CLIENT + "SetProfile": pb.SetProfileRequest,
    TRACKER + "RegisterNode": lpb.RegisterNodeRequest,
    TRACKER + "NodeHeartbeat": lpb.NodeHeartbeatRequest,
    TRACKER + "ReportContainers": lpb.ReportContainersRequest,
}
BY_OTHERS: Final = [method for method in KINDS if not method.startswith(TRACKER)]
"""What apps and people may call; what a launcher says is true of its machine, so it has a part of its own."""
_OWN = pb.AllocateRequest | pb.RegisterApplicationMasterRequest | pb.FinishApplicationMasterRequest
LOOKS: Final = 4
"""How often memory is looked at, after the beginning."""


@value
class Part:
    """Some of the messages, against a world of its own."""

    name: str
    policy: str | None
    """What the service serves by; None: the messages go to a launcher's server."""
    overrides: tuple[str, ...] = ()
    share: float
    methods: tuple[str, ...]
    keeps_slots: bool = False
    """No round takes the witness' slots away, so those must not change either."""
    watches: bool = True
    """The witness must not change."""


PARTS: Final = (
    Part(name="first come, first served", policy="default", share=0.8, methods=tuple(BY_OTHERS), keeps_slots=True),
    Part(
        name="auctions",
        policy="themis",
        overrides=("rounds.bid_deadline=200ms", "rounds.lease=2s", "rounds.suspend_grace=100ms"),
        share=0.1,
        methods=tuple(BY_OTHERS),
    ),
    Part(
        name="a launcher's",
        policy="default",
        share=0.05,
        methods=tuple(method for method in KINDS if method.startswith(TRACKER)),
        watches=False,
    ),
    Part(name="to a launcher", policy=None, share=0.05, methods=()),
)


class _Faults:
    """Hears what the service logs as faults."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def __call__(self, _: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if event.get("event") in ("call.failed", "arbiter.failed", "round.fault", "observer.failed"):
            event = structlog.processors.format_exc_info(_, __, event)
            text = f"{event['event']} {event.get('what', '')} {event.get('exception', '')}".strip()
            self.add(text)
            if event["event"] == "arbiter.failed":
                self.last_words(text)
        raise structlog.DropEvent

    def add(self, text: str) -> None:
        """Keep the first ones."""
        if len(self.heard) < 200:
            self.heard.append(text)

    def last_words(self, text: str) -> None:
        """The process ends now: say why."""
        path = Path(tempfile.gettempdir()) / "eunomia-fuzz-crash.txt"
        path.write_text(text, encoding="utf-8")


def run(
    messages: int,
    seed: int,
    *,
    wire_share: float = 0.01,
    tell: Callable[[str], None] = lambda _: None,
    parts: Sequence[int] = range(len(PARTS)),
) -> Iterator[Found]:
    """Send messages, and yield what each part of them did.

    Args:
        messages: in all.
        seed: all randomness follows from it but the times at which things happen.
        wire_share: part of them that goes over a real connection.
        tell: called with progress.
        parts: which of ``PARTS``; each sends its share of ``messages``.
    """
    faults = _Faults()
    structlog.configure(processors=[faults])
    for number in parts:
        part = PARTS[number]
        with tempfile.TemporaryDirectory(prefix="eunomia-fuzz-") as folder:
            count = round(messages * part.share)
            if part.policy is None:
                work = ContainersRun(part.name, count, seed + number, faults.add, tell).run(Path(folder))
            else:
                work = _Run(part, count, seed + number, wire_share, faults, tell).run(Path(folder), part.policy)
            yield asyncio.run(work)


class _Run:
    """One part on its way."""

    def __init__(
        self, part: Part, messages: int, seed: int, wire_share: float, faults: _Faults, tell: Callable[[str], None]
    ) -> None:
        self.part = part
        self.messages = messages
        self._rng = random.Random(seed)
        self._seed = seed
        self._wire_share = wire_share
        self._faults = faults
        self._tell = tell
        self._left = messages
        self._sent = 0
        self._codes: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        self._rss: list[float] = []
        self._changed = 0
        self._examples: dict[str, list[Message]] = {}
        self._bytes: list[bytes] = []

    async def run(self, folder: Path, policy: str) -> Found:
        """Send them all."""
        self._faults.heard.clear()
        async with World(folder, policy, self.part.overrides) as world:
            self._collect(world)
            before, began, cpu = self._digest(world), time.monotonic(), cpu_seconds()
            self._look()
            self._channel = grpc.aio.insecure_channel(world.service.address)
            await asyncio.gather(*(self._attack(world, app) for app in world.attackers))
            await self._channel.close(None)
            seconds, cpu = time.monotonic() - began, cpu_seconds() - cpu
            self._changed += self._digest(world) != before
            steps = world.service.journal.last_step
        return Found(
            part=self.part.name,
            messages=self._sent,
            seconds=seconds,
            cpu_seconds=cpu,
            codes=dict(self._codes.most_common()),
            kinds=dict(self._kinds.most_common()),
            faults=tuple(self._faults.heard),
            witness_changed=self._changed,
            rss_mib=tuple(self._rss),
            steps=steps,
        )

    def _collect(self, world: World) -> None:
        """Real messages, and those that hypothesis makes."""
        for method, content in world.real:
            self._examples.setdefault(method, []).append(KINDS[method].FromString(content))
            self._bytes.append(content)
        each = max(20, min(300, self.messages // 500))
        for method in self.part.methods:
            self._made = drawn([KINDS[method]], each, self._seed)
            self._examples.setdefault(method, [])
            self._examples[method] += self._made
        self._before = self._digest(world)

    def _digest(self, world: World) -> str:
        return world.said_by(WITNESS, slots=self.part.keeps_slots) if self.part.watches else ""

    def _look(self) -> None:
        self._rss.append(rss_mib())

    async def _attack(self, world: World, app: str) -> None:
        """Send one message after the other in the name of one app."""
        while self._left > 0:
            self._left -= 1
            if app not in world.service.sessions or world.service.apps.get(app).over:  # type: ignore[union-attr]
                app = await self._revived(world, app)
            method, content, token = self._message(world, app)
            if method == CLIENT + "Cancel" and _names_witness(content):
                content = b""
            answer = await self._send(world, method, content, token)
            await self._count(world, method, answer)

    async def _revived(self, world: World, app: str) -> str:
        """An attacker whose app is over comes back as another."""
        known = world.service.apps.get(app)
        if known is not None and known.over:
            app = world.service.apps.unique(app)
        await world.enter(app, jobs=2)
        return app

    async def _send(self, world: World, method: str, content: bytes, token: Metadata) -> Answer:
        if self._rng.random() >= self._wire_share:
            return await world.send(method, content, token)
        self._kinds["over a real connection"] += 1
        call: Any = self._channel.unary_unary(method)  # type: ignore[call-arg]
        try:
            return Answer("OK", await call(content, metadata=token, timeout=60.0))
        except grpc.aio.AioRpcError as error:
            return Answer(error.code().name, words=error.details() or "")

    async def _count(self, world: World, method: str, answer: Answer) -> None:
        self._codes[answer.code] += 1
        self._sent += 1
        if answer.code == "OK" and method == CLIENT + "Submit":
            made = pb.SubmitResponse.FromString(answer.content).app
            cancel = pb.CancelRequest(app=made).SerializeToString()
            await world.send(CLIENT + "Cancel", cancel, world.operator)
        if self._sent % 1000 == 0:
            self._changed += self._digest(world) != self._before
        if self._sent * LOOKS // self.messages > len(self._rss) - 1:
            self._look()
            broken = f"{len(self._faults.heard)} faults, witness changed {self._changed} times"
            self._tell(f"{self.part.name}: {self._sent:,} of {self.messages:,}, {self._rss[-1]:.0f} MiB, {broken}")

    # --- messages --------------------------------------------------------------------------------------------------

    def _message(self, world: World, app: str) -> tuple[str, bytes, Metadata]:
        """One message: who calls what, with which bytes."""
        rng = self._rng
        method = self._method()
        examples = self._examples[method]
        message = rng.choice(examples)
        token = self._token(world, method, app)
        if method == MASTER + "Allocate" and rng.random() < 0.3:
            message = pb.AllocateRequest(bid=pb.Bid(offer=self._offer(world), bundles=world.table()))
        dice = rng.random()
        if dice < 0.35:
            self._kinds["bytes damaged"] += 1
            content = damaged(self._addressed(world, message, app).SerializeToString(), self._bytes, rng)
            return method, content, token
        if dice < 0.85:
            self._kinds["fields changed"] += 1
            message = twisted(message, examples, rng)
        else:
            self._kinds["as hypothesis or a real caller made them"] += 1
        if rng.random() < 0.9:
            message = self._addressed(world, message, app)
        return method, message.SerializeToString(), token

    def _method(self) -> str:
        methods = self.part.methods
        if MASTER + "Allocate" not in methods:
            return self._rng.choice(methods)
        dice = self._rng.random()
        if dice < 0.85:
            return MASTER + "Allocate"
        if dice < 0.8505:
            return MASTER + "FinishApplicationMaster"
        return self._rng.choice([method for method in methods if not method.endswith("FinishApplicationMaster")])

    def _token(self, world: World, method: str, app: str) -> Metadata:
        if self._rng.random() < 0.03:
            return self._rng.choice(((), (("authorization", "Bearer app:witness:00"),), world.token(app)))
        if method.startswith(MASTER):
            return world.token(app)
        return world.operator if method.startswith(CLIENT) else world.launcher

    def _offer(self, world: World) -> int:
        standing = world.service.view.open_offer
        return 1 if standing is None else int(standing.id)

    def _addressed(self, world: World, message: Message, app: str) -> Message:
        """The message in the name of its sender, with the numbers that one knows: so it is not turned away at once."""
        if isinstance(message, lpb.NodeHeartbeatRequest | lpb.ReportContainersRequest):
            made = copy.deepcopy(message)
            made.node, made.registration_id = NODE, world.registration
            return made
        if not isinstance(message, _OWN):
            return message
        addressed = copy.deepcopy(message)
        addressed.app = app
        session = world.service.sessions.get(app)
        if session is not None:
            addressed.attempt = session.attempt
            if isinstance(addressed, pb.AllocateRequest):
                addressed.response_id = session.response_id
                _rename(addressed, app)
        return addressed


def _rename(request: pb.AllocateRequest, app: str) -> None:
    """Jobs of an example become the sender's own."""
    for items in (request.jobs_added, request.jobs_failed, request.jobs_resumed, request.jobs_progress, request.rates):
        for item in items:
            item.job = _own(item.job, app)
    for names in (request.jobs_finished, request.jobs_paused):
        names[:] = [_own(name, app) for name in names]
    for row in request.division.jobs if request.HasField("division") else ():
        row.job = _own(row.job, app)


def _own(name: str, app: str) -> str:
    owner, slash, number = name.partition("/")
    return f"{app}/{number}" if slash and owner.startswith("app-") else name


def _names_witness(content: bytes) -> bool:
    """Whether a command would end the witness, which a command may."""
    try:
        return pb.CancelRequest.FromString(content).app == WITNESS
    except DecodeError:
        return False


def table(found: Sequence[Found]) -> list[str]:
    """The results as lines of Markdown."""
    columns = ["part", "messages", "messages/s", "µs CPU a message", "unforeseen faults", "witness changed"]
    columns.append("MiB at 0, 25, 50, 75, 100 %")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for one in found:
        memory = ", ".join(f"{mib:.0f}" for mib in one.rss_mib)
        speed, cpu = one.messages / one.seconds, 1e6 * one.cpu_seconds / one.messages
        cells = [one.part, f"{one.messages:,}", f"{speed:,.0f}", f"{cpu:.0f}", str(len(one.faults))]
        lines.append(f"| {' | '.join([*cells, str(one.witness_changed), memory])} |")
    return lines
