"""A worker's view of a live gang: drives the state machine of ``training.changes`` with a store and process groups."""

import contextlib
import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar

import torch
from torch import distributed as dist

from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.training.changes import NO_STATE, Act, Decided, Member, Membership, MemberStage
from eunomia_appmaster.training.environment import Environment
from eunomia_appmaster.training.gang import Gang, device_of
from eunomia_appmaster.training.leaving import end_process
from eunomia_appmaster.training.live.building import Builder
from eunomia_appmaster.training.live.change_orders import ChangeOrders
from eunomia_appmaster.training.live.groups import CONNECT_SECONDS, InFlight, PeerGroup, PeerLostError
from eunomia_appmaster.training.live.rendezvous import START_SECONDS, STORE_SECONDS, Rendezvous, StoreLostError

LOOK_SECONDS = 0.0005
"""Seconds between two polls of the store while peers are expected soon."""
IDLE_SECONDS = 0.002
"""Seconds between two polls by a newcomer whose peers still train, or by a worker that waits for an order."""
PEERS_SECONDS = 1800.0
"""Longest time in seconds of one operation, unless the app master sets another; a peer's death is detected at once."""
STATE_SECONDS, STATE_BYTES = 1.0, 1 << 20
"""Least seconds between two copies of rank 0's ``run.state`` in the store, and most bytes of a copy."""
OWN_GROUP = "the script has a process group of its own"
"""The reason that a gang cannot change live if its script has initialised torch's default group."""
T = TypeVar("T")


class EntryRow(NamedTuple):
    """The values that each member sends to the others when it enters a generation."""

    step: int
    counted: int
    """Number of the gang's collective operations that the member has made or skipped."""
    after_loss: int
    """1: the member enters the generation because a peer was lost, or as the gang's first one; 0: it does not."""


class Entry(Protocol):
    """The part of a run that a gang calls to enter a generation; a protocol."""

    def exchange(self, group: PeerGroup | None, rows: list[EntryRow]) -> int:
        """Receive or send the state; returns the number of whole steps in this worker's state afterwards."""
        ...

    def leave(self, generation: int) -> NoReturn:
        """End the process, since the gang goes on without this worker."""
        ...

    def stop(self, why: str) -> NoReturn:
        """End the process, on an order or because no generation is formed."""
        ...


class LiveGang(Gang):
    """The present generation of a gang that may change at each step boundary.

    Each collective operation has a number, the same on all members. After the loss of a peer, a worker skips its
    operations (each returns this worker's own value) until the next boundary at which it can enter a new generation;
    there, all members skip up to the highest number of any member.

    Args:
        environment: this worker's environment.
        orders: the orders to this worker.

    Raises:
        InputError: the environment lacks the store's address, or this worker is not one of its members.
        StoreLostError: the store does not answer.
    """

    live = True

    def __init__(self, environment: Environment, orders: ChangeOrders) -> None:
        self.device = device_of(environment.local_rank)
        self.orders = orders
        self.torn = False
        self._name = environment.container_id
        if self._name not in environment.members:
            rule = "EUNOMIA_MEMBERS must have the worker's own EUNOMIA_CONTAINER_ID"
            raise InputError(rule, value=repr(self._name), place="environment")
        self._begun = False
        self._kept_at, self._kept_state = -STATE_SECONDS, b""
        wait = STORE_SECONDS if environment.generation else START_SECONDS
        self._meeting = Rendezvous(environment.store, wait)
        self._peers_seconds = environment.peers_seconds or PEERS_SECONDS
        orders.timeout_seconds = environment.peers_seconds or orders.timeout_seconds
        self._builder = Builder(environment.store, self._name, peers=self, timeout_seconds=self._peers_seconds)
        self._group: PeerGroup | None = None
        self._retired: list[PeerGroup] = []
        self._counted, self._skip_until, self.catches_up = 0, 0, environment.generation > 0
        self._after_loss, self._agreed = environment.generation == 0, False
        change = Membership(environment.generation, environment.members)
        self._member = Member.newcomer(self._name, change)
        self.newcomer = environment.generation > 0
        self.pinned = ""
        self.heard_at = time.monotonic()
        """Time at which this worker received the newest generation, in seconds of the monotonic clock."""
        if not self.newcomer:
            self._member = replace(self._member, step=0)
        self._place(change)

    # -- the interface of runs

    @property
    def generation(self) -> int:
        """Number of the generation that this worker belongs to; -1: none yet."""
        return -1 if self._member.current is None else self._member.current.generation

    @property
    def newest(self) -> int:
        """Number of the newest generation that this worker can enter: one that it knows, and whose group is built.

        A worker whose store does not answer reports this here, before the members leave their group, so that the job
        continues to train until its restart.
        """
        self._hear()
        newest = self._member.newest
        if self.live and dist.is_initialized():  # a group that the script has made after it prepared its objects
            self.pin(OWN_GROUP)
        if newest.generation > self.generation and not self.pinned and (why := self._meeting.why_lost()):
            self._loses_store(why)
        return newest.generation if not self.pinned and self._builder.is_due(newest) else self.generation

    @property
    def broken(self) -> bool:
        """Whether the group has failed, so that this worker must enter a new generation at the next boundary."""
        return self._member.stage in (MemberStage.HOLDING, MemberStage.FORMING) and not self.newcomer

    def pin(self, why: str) -> None:
        """Stay in the present generation from now on, since the script cannot change live; reported once."""
        if not self.pinned:
            self.pinned = why
            self.orders.say("unfit", {"generation": self._member.newest.generation, "why": why})

    def _loses_store(self, why: str) -> None:
        """Stay in the present generation, since the store does not answer; the next change is a restart."""
        self.pinned = why
        self.orders.say("store_lost", {"generation": self._member.newest.generation})

    def fix(self, why: str) -> None:
        """Stay in the present generation, and make torch's default group for DDP; a newcomer's process ends."""
        self.pin(why)
        self.live = False
        if self.newcomer:
            self.orders.flush()
            end_process(f"left: {why}")
        if self.size > 1 and not dist.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo"
            given = {"rank": self.rank, "world_size": self.size, "timeout": timedelta(seconds=self._peers_seconds)}
            self._meeting.made_with(
                lambda store: dist.init_process_group(backend, store=store, **given),  # type: ignore[arg-type]
                self.generation,
                self._peers_seconds,
                "default",
            )

    # -- collective operations

    def highest(self, values: list[int]) -> list[int]:
        """Return the maximum over workers at each position, or this worker's own values if the group has failed."""

        def made(group: PeerGroup) -> list[int]:
            tensor = torch.tensor(values, dtype=torch.int64)
            group.highest(tensor)
            return [int(value) for value in tensor.tolist()]

        return self._numbered(made, values)

    def share(self, value: Any) -> Any:
        """Return rank 0's value on every worker, or this worker's own if the group has failed."""

        def made(group: PeerGroup) -> Any:
            data = pickle.dumps(value) if group.rank == 0 else b""
            return _loaded(_broadcast(group, data))

        return self._numbered(made, value)

    def gather(self, value: Any) -> list[Any]:
        """Return every worker's value, in order of ranks, or only this worker's own if the group has failed."""
        return self._numbered(lambda group: _gathered(group, value), [value])

    def same(self, tensors: list[torch.Tensor]) -> None:
        """Replace tensors by those of rank 0, unless the group has failed."""

        def made(group: PeerGroup) -> None:
            same_as(group, 0, tensors)

        if tensors:
            self._numbered(made, None)

    def peers_state(self) -> dict[str, Any]:
        """Return a recent ``run.state`` of rank 0 for a newcomer before its first loop; else an empty mapping."""
        data = self._meeting.data("state") if self.newcomer else b""
        return dict(_loaded(data)) if data else {}

    def keep_layout(self, layout: Any) -> None:
        """Put into the store the layout of the state, for which newcomers allocate memory."""
        if not self.pinned:
            with contextlib.suppress(StoreLostError):
                self._meeting.put("layout", pickle.dumps(layout))

    def layout(self) -> Any:
        """Return the layout of the state, for which a newcomer allocates memory; None: not known yet."""
        data = self._meeting.data("layout")
        return None if data is None else _loaded(data)

    def keep_state(self, state: dict[str, Any]) -> None:
        """Put rank 0's ``run.state`` into the store for newcomers, at most once a second, if changed and not large."""
        now = time.monotonic()
        if self.rank or self.pinned or now - self._kept_at < STATE_SECONDS:
            return
        self._kept_at, data = now, pickle.dumps(state)
        if data != self._kept_state and len(data) <= STATE_BYTES:
            self._kept_state = data
            with contextlib.suppress(StoreLostError):  # the next change detects it
                self._meeting.put("state", data)

    def uncount(self) -> None:
        """Undo the count of the last operation, which failed and will be repeated in the next generation."""
        self._counted -= 1

    def agreed_on_entry(self) -> bool:
        """Return, once per generation, whether all members entered it at a boundary on which they had agreed."""
        agreed, self._agreed = self._agreed, False
        return agreed

    def has_caught_up(self) -> None:
        """Take part in collective operations from the next one on, as a newcomer that has skipped earlier ones."""
        self.catches_up = False

    def total(self, tensor: torch.Tensor) -> InFlight | None:
        """Begin to sum a gradient over the workers; None: the group has failed, so the gradient is lost."""
        if self._group is None:
            self.torn = True
            return None
        try:
            return self._group.total(tensor)
        except PeerLostError as error:
            self.loses(str(error))
            return None

    def loses(self, why: str) -> None:
        """Process that a collective operation has failed."""
        self.torn = True
        self._fail(why)

    # -- the interface of groups (Peers)

    def gone(self) -> str:
        """Return why an operation must be given up: an order lists a member as lost; empty: there is none."""
        self._hear()
        current = self._member.current
        lost = [] if current is None else [each for each in current.members if each in self.orders.lost]
        return f"{', '.join(lost)} of its gang is gone" if lost else ""

    def waits(self, for_peers: bool) -> None:
        """Process the beginning (True) or end (False) of an unusually long wait of this worker for its peers."""
        self.on_wait(for_peers)

    # -- changes

    def leaves_group(self, generation: int) -> None:
        """Leave the group at a step boundary, on which all members agreed, for a newer generation."""
        self._member = self._member.agrees(generation)
        self._retire()

    def form(self, entry: Entry, step: int) -> None:
        """Enter the newest generation; returns once this worker is in a group and has the state with the most steps."""
        if not self.newcomer:
            self._member = replace(self._member, step=step)
        began = time.monotonic()
        while self._member.stage is not MemberStage.STEPPING:
            if self.orders.stops():
                entry.stop("an order ends it")
            if time.monotonic() - began > self.orders.timeout_seconds:
                entry.stop("no generation was formed in time")
            self._hear()
            try:
                self._go_on(entry)
            except StoreLostError as error:
                self._loses_store(str(error))
                entry.stop(str(error))
        self.newcomer = False

    def has_begun(self) -> None:
        """Process that a generation has made a step, so that the app master orders another one after a loss."""
        self._begun = True

    def drop_old_group(self) -> None:
        """Close the connections of the previous generations, after a step of the present one."""
        while self._retired:
            self._retired.pop().close()

    def fingerprint(self, text: str) -> str:
        """Return, for a newcomer, rank 0's description of what is trained; rank 0 puts it into the store."""
        key = "fingerprint"
        if self.newcomer:
            return self._meeting.get(key) or text
        if self.rank == 0:
            self._meeting.put(key, text)
        return text

    def says_ready(self) -> None:
        """Report that this newcomer has built the objects that it trains, and waits for its peers."""
        self.orders.say("ready", {"generation": self._member.newest.generation})

    def _go_on(self, entry: Entry) -> None:
        stage = self._member.stage
        if stage is MemberStage.LEFT:
            entry.leave(self._member.newest.generation)
        elif stage is MemberStage.ENTERING:
            self._enter(entry)
        elif stage is MemberStage.HOLDING:
            if not (self._begun or self.newcomer) and self._member.current is not None:
                entry.stop("its first gang could not connect")  # else a newer generation has replaced the first one
            time.sleep(IDLE_SECONDS)
        else:
            self._forms()

    def _forms(self) -> None:
        member = self._member
        target = member.newest if member.target is None else member.target
        here = target.members if member.appeared and self._meeting.all_present(target) else ()
        decided = self._meeting.decided(target.generation) if member.appeared or self._leaves(target) else Decided.OPEN
        act, generation = member.next_act(decided, here)
        if act is Act.APPEAR:
            self._meeting.appear(generation, self._name)
            self._member = member.appears()
        elif act is Act.WAIT:
            self._member = member.learns(target.generation, decided)
            if self._member.stage is MemberStage.FORMING:
                time.sleep(LOOK_SECONDS if self._is_expected(target) else IDLE_SECONDS)
        else:
            wanted = Decided.FORMED if act is Act.FORM else Decided.ABANDONED
            self._member = member.learns(generation, self._meeting.decide(generation, wanted))

    def _is_expected(self, target: Membership) -> bool:
        """Return whether a generation forms soon; a newcomer then builds its group, as its peers do."""
        if not self.newcomer or not target.generation:
            return True
        called = self._meeting.is_called_for(target.generation)
        if called:
            self._build_early(target)
        return called

    def _leaves(self, target: Membership) -> bool:
        return self._name not in target.members or self._member.newest.generation > target.generation

    def _enter(self, entry: Entry) -> None:
        change = self._member.current
        if change is None:
            raise EunomiaError("a worker must enter a formed generation", value="none", place=self._name)
        self._place(change)
        try:
            if self.size > 1:
                self._group = self._group_of(change)
            mine = EntryRow(self._member.step, self._counted, int(self._after_loss))
            rows = [mine] if self._group is None else _rows(self._group, mine)
            step = entry.exchange(self._group, rows)
        except PeerLostError as error:
            self._fail(str(error))
            return
        self._skip_until = max(row.counted for row in rows)
        if self.catches_up:
            self._counted = self._skip_until
        self._agreed = not any(row.after_loss for row in rows)
        self.torn = self._after_loss = False
        self._member = self._member.enters(step)
        if step == NO_STATE:
            self.orders.say("unfit", {"generation": change.generation, "why": "no member has the job's state"})

    def _group_of(self, change: Membership) -> PeerGroup:
        """Return the group that all members have built early, or build one now."""
        early = self._builder.take(change.generation) if self._meeting.all_built(change) else None
        self._builder.drop()
        if early is not None:
            return early
        return self._meeting.made_with(
            lambda store: PeerGroup(
                store,
                self.rank,
                self.size,
                host=self._meeting.host,
                timeout_seconds=self._peers_seconds,
                peers=self,
            ),
            change.generation,
            CONNECT_SECONDS,
        )

    def _place(self, change: Membership) -> None:
        self.rank = change.members.index(self._name) if self._name in change.members else 0
        self.size = len(change.members)

    def _fail(self, why: str) -> None:
        if self._member.stage not in (MemberStage.STEPPING, MemberStage.ENTERING):
            return
        content = {"generation": self.generation, "step": self._member.step, "why": why.partition("\n")[0][:200]}
        self._member, self._after_loss = self._member.loses_a_peer(), True
        if self._group is not None:
            self._group.close()
        self._group = None
        self.orders.say("broken", content)

    def _retire(self) -> None:
        if self._group is not None:
            self._retired.append(self._group)
        self._group = None

    def _hear(self) -> None:
        for change in self.orders.changes():
            if change.generation > self._member.newest.generation:
                self.heard_at = time.monotonic()
            self._member = self._member.hears(change)
        if self._member.stage is MemberStage.STEPPING and self._member.newest is not self._member.current:
            self._build_early(self._member.newest)

    def _build_early(self, change: Membership) -> None:
        if self._name in change.members and len(change.members) > 1 and not self.pinned:
            self._builder.begin(change)

    def _numbered(self, make: Callable[[PeerGroup], T], otherwise: T) -> T:
        if self.catches_up:
            return otherwise
        self._counted += 1
        if self._group is None or self._counted <= self._skip_until:
            return otherwise
        try:
            return make(self._group)
        except PeerLostError as error:
            self._fail(str(error))
            return otherwise


def _rows(group: PeerGroup, mine: EntryRow) -> list[EntryRow]:
    return [EntryRow(*each.tolist()) for each in group.gather(torch.tensor(mine, dtype=torch.int64))]


def _broadcast(group: PeerGroup, data: bytes, root: int = 0) -> bytes:
    length = torch.tensor([len(data)], dtype=torch.int64)
    group.broadcast(length, root)
    tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    if group.rank != root:
        tensor = torch.empty(int(length), dtype=torch.uint8)
    group.broadcast(tensor, root)
    return tensor.numpy().tobytes()


def _gathered(group: PeerGroup, value: Any) -> list[Any]:
    data = pickle.dumps(value)
    lengths = [int(each) for each in group.gather(torch.tensor([len(data)], dtype=torch.int64))]
    padded = torch.zeros(max(lengths), dtype=torch.uint8)
    padded[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    rows = group.gather(padded)
    return [_loaded(row.numpy().tobytes()[:length]) for row, length in zip(rows, lengths, strict=True)]


def _loaded(data: bytes) -> Any:
    # The data comes from a process of the same job, over connections whose addresses only the job's processes have.
    return pickle.loads(data)


def same_as(group: PeerGroup, root: int, tensors: list[torch.Tensor]) -> None:
    """Replace tensors by those of the member ``root``, in one message per type; a collective call of all members."""
    by_kind: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
    for tensor in tensors:
        by_kind.setdefault((tensor.dtype, tensor.device), []).append(tensor.detach())
    for alike in by_kind.values():
        flat = torch.cat([each.reshape(-1) for each in alike])
        group.broadcast(flat, root)
        for each, part in zip(alike, torch.split(flat, [each.numel() for each in alike]), strict=True):
            each.copy_(part.view_as(each))
