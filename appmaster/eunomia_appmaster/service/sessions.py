"""The registered app masters, and the changes that are sent to each next.

The news for an app (changed leases and offers) are computed from the arbiter's state each time, as the difference to
what was sent; no message is queued, so none can be outdated.
"""

import asyncio
import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from eunomia.arbiter import ClusterView, LeaseView
from eunomia.contract.events import Started
from eunomia.contract.offers import Offer
from eunomia.model.cluster import Cluster
from eunomia.model.leases import GpuState, LeaseState
from eunomia.units import NONE, AppId, Epoch, LeaseId, Seconds
from eunomia_appmaster.node.system import MACHINE, System
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol.tokens import container_token, node_token
from eunomia_appmaster.service.awaited_resizes import AwaitedResizes
from eunomia_appmaster.service.lease_causes import LeaseCauses
from eunomia_appmaster.service.messages import finite, offer_message, shared_offer
from eunomia_appmaster.service.nodes import Nodes
from eunomia_appmaster.service.tuned import amounts_of

READY = (LeaseState.ORDERED, LeaseState.ACTIVE)
MOST_REFUSALS = 100
"""Maximum number of refused reports that are kept for the next answer."""
LOOK_AGAIN_SECONDS = 10.0
"""Seconds after which news are computed even if nothing has signalled a change."""
WOKEN_AT_ONCE = 32
WAKE_SECONDS = 0.002
"""Maximum number of seconds between waking two app masters, after the first ``WOKEN_AT_ONCE``: each calls again at
once, and other heartbeats would have to wait for all of them."""
WAKE_SHARE = 0.4
"""Largest fraction of the bid deadline that waking takes."""
LEAST_SECONDS = 0.01
"""Minimum number of seconds between two processed calls of an app master."""


@dataclasses.dataclass(slots=True)
class _Sent:
    """A lease as it was last sent to the app master."""

    epoch: int
    ends_at: float
    protected_until: float
    amounts: tuple[float, float]
    """Total CPUs and memory (GiB) that its processes may use, over all its slots."""


class NodeAddress(NamedTuple):
    """The address of a node's launcher."""

    node: str
    address: str
    certificate: str
    """Name in the launcher's certificate; empty if it serves without TLS."""
    lost: bool
    ahead: float
    """Seconds by which the node's clock is ahead of the arbiter's."""


class Session:
    """The session of one app master, from its registration on.

    Args:
        app: name of its app.
        attempt: number of its attempt.
        part: number of the start within the attempt.
        bids: whether its agent can answer offers.
        live: whether its jobs change their size live.
        system: has the machine's clock.
    """

    def __init__(
        self, app: str, attempt: int, part: int = 0, *, bids: bool, live: bool = False, system: System = MACHINE
    ) -> None:
        self._system = system
        self.app = app
        self.attempt, self.part = attempt, part
        self.bids = bids
        self.cluster: Cluster | None = None
        """The cluster at registration; None: not registered yet. After a change the app master must register again."""
        self.response_id = 0
        self.last: pb.AllocateResponse | None = None
        self.calls = 0
        self.waiting = 0
        """Number of calls that wait for the calls before them."""
        self.changed = asyncio.Event()
        self.stale = True
        """Whether there may be news since the last computation."""
        self._looked_at = 0.0
        self.bid_error = ""
        self.refused: deque[str] = deque(maxlen=MOST_REFUSALS)
        self.unacknowledged: list[Started] = []
        """Leases in the last answer, which count as started once the answer is acknowledged."""
        self.resizes = AwaitedResizes(live=live)
        self._next_turn = 0.0
        self.heard_at = self._system.uptime()
        """Uptime of its last call, in seconds."""
        self._leases: dict[int, _Sent] = {}
        self._leaving: dict[int, int] = {}
        """The epoch of the last revocation sent for each leaving GPU, by GPU."""
        self._offer: int | None = None
        self._tokens: tuple[NodeAddress, ...] = ()

    @property
    def silent_seconds(self) -> float:
        """The seconds since the app master's last call."""
        return self._system.uptime() - self.heard_at

    async def take_turn(self) -> None:
        """Delay an app master's call if it follows too soon, so that frequent calls do not fill the journal."""
        self.heard_at = self._system.uptime()
        loop = asyncio.get_running_loop()
        turn = max(loop.time(), self._next_turn)
        self._next_turn = turn + LEAST_SECONDS
        if turn > loop.time():
            self.waiting += 1
            try:
                await asyncio.sleep(turn - loop.time())
            finally:
                self.waiting -= 1

    def stir(self, after: float = 0.0) -> None:
        """Record that there may be news, and wake the call that waits for it after ``after`` seconds."""
        self.stale = True
        if after > 0.0:
            asyncio.get_running_loop().call_later(after, self.changed.set)
        else:
            self.changed.set()

    def note_offer(self, offer: int | None) -> None:
        """Mark the session stale if its offer is not the open one; that news can wait for the end of the heartbeat."""
        self.stale |= self._offer is not None and self._offer != offer

    def may_have_news(self) -> bool:
        """Return whether to compute news, for which the call must wait for a running step.

        Without a signalled change, news are computed from time to time: this is cheap, and corrects a missed signal.
        """
        aged = asyncio.get_running_loop().time() - self._looked_at > LOOK_AGAIN_SECONDS
        return self.stale or aged or bool(self.refused or self.bid_error)

    def looked(self) -> None:
        """Record that an answer has all news up to now."""
        self.stale, self._looked_at = False, asyncio.get_running_loop().time()

    def take_acknowledged(self) -> list[Started]:
        """Return the starts that the acknowledgement of the last answer confirms, and those of overdue resizes."""
        started, self.unacknowledged = self.unacknowledged, []
        return started + self.resizes.take_due(self._system.uptime())

    def sent(self, lease: LeaseView, sent: _Sent) -> None:
        """Record a lease as sent; an ordered lease starts once the answer is acknowledged, or its resize confirmed."""
        known = self._leases.get(lease.id)
        self._leases[lease.id] = sent
        if lease.state is LeaseState.ORDERED:
            started = Started(lease=LeaseId(lease.id), epoch=Epoch(lease.epoch))
            changes = known is not None and known.epoch < lease.epoch and lease.job != NONE
            if not self.resizes.put(started, changes=changes, now=self._system.uptime()):
                self.unacknowledged.append(started)


def wake(sessions: Sequence[Session], bid_deadline: float) -> None:
    """Wake the calls of app masters for which there may be news: the first ones at once, the others one after another.

    Args:
        sessions: in the order of waking.
        bid_deadline: seconds for which an offer is open.
    """
    apart = min(WAKE_SECONDS, WAKE_SHARE * bid_deadline / max(1, len(sessions)))
    for place, session in enumerate(sessions):
        session.stir(after=apart * max(0, place + 1 - WOKEN_AT_ONCE))


class NewsWriter:
    """Computes the news for app masters.

    Args:
        nodes: the machines.
        secret_of: returns a node's secret, for container tokens.
        certificate_name: returns the name in the certificate of a node's launcher; empty if it serves without TLS.
        login_of: returns the account that an app's workers run under; empty: the launcher's own.

    Attributes:
        causes: why leases changed.
    """

    def __init__(
        self,
        nodes: Nodes,
        secret_of: Callable[[str], bytes],
        certificate_name: Callable[[str], str] = lambda node: "",
        login_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._nodes = nodes
        self._secret_of = secret_of
        self._certificate_name = certificate_name
        self._login_of = login_of
        self.causes = LeaseCauses()
        self._marks: dict[int, list[tuple[float, ...]]] = {}
        self._reached: tuple[NodeAddress, ...] = ()
        self._opened: int | None = None
        """The offer that was open at the last call of ``stirred``."""
        self._offer: tuple[Offer, pb.Offer] | None = None
        """The open offer, and the common part of its messages to all apps."""

    def stirred(self, view: ClusterView) -> list[str] | None:
        """Return the apps that may have news since the last call, in order of their rows; None: all apps.

        The cost grows with the number of leases, not of app masters, of which hundreds may be idle. An open offer is
        news for the apps that may claim it; a closed offer wakes no app, and is sent with the next answer
        (``note_offer``).
        """
        offer, reached = view.open_offer, self._addresses()
        opened = offer if offer is not None and offer.id != self._opened else None
        moved = reached != self._reached
        before, marks = self._marks, _marks(view)
        self._marks, self._reached, self._opened = marks, reached, None if offer is None else int(offer.id)
        if moved or (opened is not None and opened.apps is None):
            return None
        rows = {row for row in before.keys() | marks.keys() if before.get(row) != marks.get(row)}
        claiming = () if opened is None or opened.apps is None else opened.apps.tolist()
        return [str(view.app_id(row)) for row in sorted(rows.union(claiming))]

    def everything(self, session: Session, view: ClusterView) -> tuple[list[pb.Lease], list[pb.NodeToken]]:
        """Return all leases and node tokens of an app, for its registration."""
        leases = [lease for lease in self._leases(session, view) if lease.state in READY]
        for lease in leases:
            self._sent(session, view, lease)
        session._tokens = self._addresses()
        return [self._lease(session.app, view, lease) for lease in leases], self.node_tokens(session.app)

    def news(self, session: Session, view: ClusterView, now: Seconds) -> pb.AllocateResponse | None:
        """Return the news for an app master, and count them as sent; None if there are none."""
        answer = pb.AllocateResponse()
        known = {lease.id: lease for lease in self._leases(session, view)}
        self._add_leaving(session, view, answer)
        for lease in known.values():
            self._add_lease(session, view, lease, answer)
        for gone in session._leases.keys() - known.keys():
            del session._leases[gone]
            answer.ended_leases.append(gone)
        self._add_offer(session, view, answer, now)
        if self._addresses() != session._tokens:
            session._tokens = self._addresses()
            answer.node_tokens.extend(self.node_tokens(session.app))
        answer.bid_error, session.bid_error = session.bid_error, ""
        answer.refused.extend(session.refused)
        session.refused.clear()
        return answer if answer.ByteSize() else None

    def node_tokens(self, app: str) -> list[pb.NodeToken]:
        """Return the tokens with which an app manages its containers on each node."""
        return [
            pb.NodeToken(
                node=one.node,
                token=node_token(self._secret_of(one.node), app, one.node),
                container_manager_address=one.address,
                lost=one.lost,
                certificate_name=one.certificate,
                clock_ahead_seconds=one.ahead,
            )
            for one in self._addresses()
        ]

    def _addresses(self) -> tuple[NodeAddress, ...]:
        return tuple(
            NodeAddress(
                node.name,
                node.container_manager_address,
                self._certificate_name(node.name),
                node.lost,
                node.clock_offset.given,
            )
            for node in self._nodes
        )

    def _leases(self, session: Session, view: ClusterView) -> Iterable[LeaseView]:
        row = view.app_row(AppId(session.app))
        return view.leases_of(row)

    def _add_leaving(self, session: Session, view: ClusterView, answer: pb.AllocateResponse) -> None:
        held, row = view.gpus, view.app_row(AppId(session.app))
        mine = np.flatnonzero((held.app == row) & (held.state == GpuState.LEAVING)).tolist() if row != NONE else []
        session._leaving = {gpu: epoch for gpu, epoch in session._leaving.items() if gpu in mine}
        orders: dict[tuple[int, int], list[int]] = {}
        for gpu in mine:
            epoch = int(held.epoch[gpu])
            if session._leaving.get(gpu) != epoch:
                session._leaving[gpu] = epoch
                orders.setdefault((int(held.lease[gpu]), epoch), []).append(gpu)
        for (lease, epoch), gpus in orders.items():
            seconds = self._nodes.seconds_left(gpus)
            answer.preempt.strict_contract.leaving.add(
                lease=lease,
                epoch=epoch,
                gpus=gpus,
                deadline_seconds=seconds,
                causes=self.causes.of(lease, epoch),
            )

    def _add_lease(self, session: Session, view: ClusterView, lease: LeaseView, answer: pb.AllocateResponse) -> None:
        sent = session._leases.get(lease.id)
        if lease.state not in READY:
            return
        if sent is None or lease.epoch > sent.epoch:
            self._sent(session, view, lease)
            answer.allocated_leases.append(self._lease(session.app, view, lease))
        elif (sent.ends_at, sent.protected_until, sent.amounts) != (
            lease.ends_at,
            lease.protected_until,
            _amounts(view, lease),
        ):
            cpus, memory_gib = self._sent(session, view, lease).amounts
            answer.renewed.add(
                lease=lease.id,
                ends_at=finite(lease.ends_at),
                protected_until=lease.protected_until,
                cpus=cpus,
                memory_gib=memory_gib,
            )

    def _sent(self, session: Session, view: ClusterView, lease: LeaseView) -> _Sent:
        sent = _Sent(lease.epoch, lease.ends_at, lease.protected_until, _amounts(view, lease))
        session.sent(lease, sent)
        return sent

    def _add_offer(self, session: Session, view: ClusterView, answer: pb.AllocateResponse, now: Seconds) -> None:
        offer = view.open_offer
        if session._offer is not None and (offer is None or offer.id != session._offer):
            answer.closed_offers.append(session._offer)
            session._offer = None
        row = view.app_row(AppId(session.app))
        if offer is None or row == NONE or not session.bids or session._offer == offer.id:
            return
        if offer.apps is None or row in offer.apps:
            session._offer = int(offer.id)
            if self._offer is None or self._offer[0] is not offer:
                self._offer = offer, shared_offer(offer)
            answer.offers.append(offer_message(view, offer, row, now, shared=self._offer[1]))

    def _lease(self, app: str, view: ClusterView, lease: LeaseView) -> pb.Lease:
        return pb.Lease(
            id=lease.id,
            epoch=lease.epoch,
            job=None if lease.job == NONE else view.job_id(lease.job),
            containers=[
                container for gpu in lease.running.tolist() for container in self._container(app, view, lease, gpu)
            ],
            probe_iterations=None if lease.probe is None else lease.probe.iterations,
            ends_at=finite(lease.ends_at),
            protected_until=lease.protected_until,
            granted_at=lease.granted_at,
            causes=self.causes.of(lease.id, lease.epoch),
        )

    def _container(self, app: str, view: ClusterView, lease: LeaseView, gpu: int) -> Iterator[pb.Container]:
        layout, cluster = self._nodes.layout, view.cluster
        if layout is None:
            return
        cpus, memory_gib = _amounts(view, lease, gpu)
        place = layout.places[gpu]
        node = self._nodes.get(place.node)
        yield pb.Container(
            id=f"{lease.id}/{lease.epoch}/{gpu}",
            node_id=place.node,
            container_manager_address="" if node is None else node.container_manager_address,
            resource=pb.Resource(memory_gib=memory_gib, cpus=cpus, gpus=1.0),
            container_token=container_token(
                self._secret_of(place.node), app, place.node, place.slot, lease.epoch, self._login_of(app)
            ),
            version=lease.epoch,
            slot=place.slot,
            gpu=gpu,
            gpu_type=cluster.gpu_types[cluster.gpu_type[gpu]],
            share=1.0,
        )


def _amounts(view: ClusterView, lease: LeaseView, gpu: int = NONE) -> tuple[float, float]:
    """Return CPUs and memory (GiB) of a lease's processes on one GPU, or on all GPUs on which they run."""
    cpus, memory_gib = amounts_of(view, lease)
    if gpu != NONE:
        at = lease.running.tolist().index(gpu)
        return float(cpus[at]), float(memory_gib[at])
    return float(cpus.sum()), float(memory_gib.sum())


def _marks(view: ClusterView) -> dict[int, list[tuple[float, ...]]]:
    """Return the state of each app's leases and leaving slots that is sent to app masters, to detect changes."""
    marks: dict[int, list[tuple[float, ...]]] = {}
    for lease in view.leases():
        ready = lease.state in READY
        has_amounts = ready and (view.amounts.differ or lease.tuned != NONE)
        amounts = _amounts(view, lease) if has_amounts else (0.0, 0.0)
        marks.setdefault(lease.app, []).append(
            (lease.id, lease.epoch, ready, lease.ends_at, lease.protected_until, *amounts)
        )
    held = view.gpus
    leaving = np.flatnonzero(held.state == GpuState.LEAVING)
    columns = (held.app[leaving], leaving, held.epoch[leaving], held.lease[leaving])
    for app, gpu, epoch, lease_id in zip(*(column.tolist() for column in columns), strict=True):
        marks.setdefault(app, []).append((gpu, epoch, lease_id))
    return marks
