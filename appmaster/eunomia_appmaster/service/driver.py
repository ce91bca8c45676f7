"""Drives the arbiter in real time: collects events, makes a step, journals it, and then carries out its decision.

One asyncio task owns the arbiter. A step runs in a thread of its own, so that heartbeats are answered while a solver
works; meanwhile ``lock`` is held, which every reader of the state acquires. A step over its time limit ends the
process: the supervisor starts another arbiter, which replays the journal without that step, and attributes a fault to
the plugin that had not returned (``watchdog``).
"""

import asyncio
import contextlib
import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import structlog

from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Decision
from eunomia.contract.event_order import ORDER
from eunomia.contract.events import (
    JOB_ENDED,
    BidReceived,
    Event,
    ForecastReported,
    JobAdded,
    JobReported,
    JobsDivided,
    RateMeasured,
)
from eunomia.journal.files import JournalWriteError
from eunomia.journal.journal import Journal
from eunomia.journal.values import Note
from eunomia.units import NEVER, JobId, Seconds
from eunomia_appmaster.node.system import MACHINE, System
from eunomia_appmaster.service.clock import Clock
from eunomia_appmaster.service.watchdog import Watchdog

log = structlog.get_logger()

QUIET = (JobReported, RateMeasured, ForecastReported)
"""Events that wait for the next step, for at most ``QUIET_SECONDS``."""
MINOR = (*QUIET, BidReceived)
"""Events that cause neither an order to a machine nor a message to an app master."""
QUIET_SECONDS = 1.0
WRITE_AGAIN_SECONDS = 1.0
"""Seconds between two attempts to write a step after a disk error."""
ROUNDS_KEPT = 64
EXIT_FAULT = 70

Observer = tuple[str, Callable[[Decision], None]]


class Driver:
    """Makes the arbiter's steps one after another.

    Args:
        arbiter: the recovered or new arbiter.
        journal: stores each step before its decision is carried out.
        clock: the arbiter's clock.
        after: called with each journaled decision, and with a flag: whether the step may have changed more than bids
            and progress; it must not block.
        observers: the profile's observers; an exception of one is logged and does not affect the others.
        watchdog: ends the process if a step takes too long; None: no time limit.
        checkpoint_steps: steps between two checkpoints.
        system: ends the process if the arbiter itself fails.
    """

    def __init__(
        self,
        arbiter: Arbiter,
        journal: Journal,
        clock: Clock,
        *,
        after: Callable[[Decision, bool], None],
        observers: Sequence[Observer] = (),
        watchdog: Watchdog | None = None,
        checkpoint_steps: int = 200,
        system: System = MACHINE,
    ) -> None:
        self._system = system
        self.arbiter = arbiter
        self.clock = clock
        self.lock = asyncio.Lock()
        self.rounds: deque[Decision] = deque(maxlen=ROUNDS_KEPT)
        """The decisions of the last rounds."""
        self.faults: deque[str] = deque(maxlen=16)
        self.wake_at: Seconds = Seconds(0.0)
        self.disk_error: str | None = None
        """Disk error at the last step, whose decision is not carried out before it is journaled; None: no error."""
        self.follow: Callable[[], None] = lambda: None
        """Called after each commit to the journal, in the committing thread."""
        self.make_room: Callable[[JournalWriteError], bool] = lambda error: False
        """Called when the disk refuses a step; returns True if it made room, so that the step is written again."""
        self._journal = journal
        self._after = after
        self._observers = observers
        self._watchdog = watchdog
        if watchdog is not None:
            arbiter.note = watchdog.note
        self._checkpoint_steps = checkpoint_steps
        self._since_checkpoint = 0
        self._unwritten = False
        """Whether the state contains a step that is not journaled."""
        self._events: list[Event] = []
        self._notes: dict[tuple[str, str], Note] = {}
        self._waiters: list[asyncio.Future[Decision]] = []
        self._stir = asyncio.Event()
        self._urgent = False
        self._quiet_since: float | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="arbiter")

    # --- interface -------------------------------------------------------------------------------------------

    def put(self, events: Iterable[Event], notes: Iterable[Note] = ()) -> None:
        """Queue events for the next step; if all are minor reports, the step waits a moment for more."""
        for note in notes:
            self._notes[note.kind, note.key] = note
        for event in events:
            self._events.append(event)
            self._urgent |= not isinstance(event, QUIET)
        begins = bool(self._events) and self._quiet_since is None
        if begins:
            self._quiet_since = float(self.clock.now())
        if begins or self._urgent:  # further reports do not change when the step is due
            self._stir.set()

    async def fold(self, events: Iterable[Event], notes: Iterable[Note] = ()) -> Decision:
        """Apply events in a step at once, and return its decision once it is journaled."""
        waiter: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._urgent = True  # before put, which then ends the wait for the next step also for notes alone
        self.put(events, notes)
        return await waiter

    def recall_hang(self) -> None:
        """Record a fault of the plugin that hung when the watchdog ended the previous process, and journal it."""
        fault = None if self._watchdog is None else self._watchdog.fault()
        if fault is None or self._watchdog is None:
            return
        now = Seconds(max(self.clock.now(), self.arbiter.view.now))
        decision = self.arbiter.abandon(now, fault)
        self._journal.append(now, [], decision)
        self.follow()
        self._watchdog.forget()
        self.wake_at = decision.wake_at
        self._note(decision)

    def holds(self, note: Note) -> bool:
        """Return whether a note of this kind and key waits to be written."""
        return (note.kind, note.key) in self._notes

    def hurry(self) -> None:
        """Make a step at once, even if only notes wait to be written."""
        self._urgent = True
        self._stir.set()

    # --- the loop --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Make steps until cancelled. An error of the arbiter itself ends the process; a plugin's fault does not."""
        while True:
            await self._wait()
            try:
                async with self.lock:
                    await self._step()
            except asyncio.CancelledError:
                raise
            except BaseException:
                log.exception("arbiter.failed")
                with contextlib.suppress(OSError, ValueError):
                    sys.stderr.flush()
                self._system.exit(EXIT_FAULT)

    async def close(self) -> None:
        """Apply the queued events, and write a checkpoint; call this once ``run`` has ended."""
        async with self.lock:  # in the arbiter's thread: a step that was under way ends first
            await asyncio.get_running_loop().run_in_executor(self._thread, self._leave)
        self._thread.shutdown()

    def _leave(self) -> None:
        if self._unwritten:  # the state has a step that the journal lacks; later events are lost with it
            return
        try:
            self._fold_rest()
            self.follow()
            self._journal.checkpoint(self.arbiter.save())
        except JournalWriteError as error:  # not fatal: the next arbiter replays more steps
            log.error("journal.no_checkpoint", why=str(error))

    def _fold_rest(self) -> None:
        """Journal the remaining events with their notes, so that apps' notes agree with the state.

        Reports about jobs that the last step adds are applied in another step.
        """
        notes = list(self._notes.values())
        while events := self._take():
            now = Seconds(max(self.clock.now(), self.arbiter.view.now))
            decision = self._make(now, events)
            self._journal.append(now, events, decision, notes=notes)
            notes = []
        if notes:
            self._journal.note(*notes)

    async def _wait(self) -> None:
        """Wait until a step is due, or an urgent event arrives."""
        while not self._urgent:
            due = float(self.wake_at)
            if self._quiet_since is not None:
                due = min(due, self._quiet_since + QUIET_SECONDS)
            seconds = due - float(self.clock.now())
            if seconds <= 0.0:
                return
            self._stir.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stir.wait(), None if math.isinf(seconds) else seconds)

    async def _step(self) -> None:
        self._urgent, self._quiet_since = False, None
        waiters, self._waiters = self._waiters, []
        events = self._take()
        notes, self._notes = list(self._notes.values()), {}
        now = Seconds(max(self.clock.now(), self.arbiter.view.now))
        if 0.0 < float(self.wake_at) - now < 0.002:  # a timer that fired a little early
            now = self.wake_at
        loop = asyncio.get_running_loop()
        decision = await loop.run_in_executor(self._thread, self._make, now, events)
        while (why := await loop.run_in_executor(self._thread, self._write, now, events, decision, notes)) is not None:
            await self._wait_for_disk(why)
        self._disk_is_back()
        await loop.run_in_executor(self._thread, self._checkpoint)
        self.wake_at = decision.wake_at
        self._note(decision)
        self._after(decision, not self._is_minor(events, notes, decision))
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(decision)
        self._observe(decision)

    def _is_minor(self, events: Sequence[Event], notes: Sequence[Note], decision: Decision) -> bool:
        """Return whether a step applied only bids and reports of progress, and decided nothing."""
        decided = decision.causes or decision.orders or decision.transitions or decision.closed is not None
        return bool(events) and not notes and not decided and all(isinstance(event, MINOR) for event in events)

    def _make(self, now: Seconds, events: list[Event]) -> Decision:
        """Make a step and return its decision; runs in the arbiter's own thread."""
        self._unwritten = True
        with contextlib.nullcontext() if self._watchdog is None else self._watchdog.step():
            return self.arbiter.step(now, events)

    def _write(self, now: Seconds, events: list[Event], decision: Decision, notes: list[Note]) -> str | None:
        """Journal a step; returns the disk's error, if there is one."""
        while True:
            try:
                self._journal.append(now, events, decision, notes=notes)
                break
            except JournalWriteError as error:
                if not self.make_room(error):
                    return str(error)
        self.follow()
        self._unwritten = False
        return None

    async def _wait_for_disk(self, why: str) -> None:
        """Wait for disk space; the driver neither carries out an unwritten step nor makes another."""
        if self.disk_error is None:
            log.error("journal.refused", why=why)
        self.disk_error = why
        await asyncio.sleep(WRITE_AGAIN_SECONDS)

    def _disk_is_back(self) -> None:
        if self.disk_error is not None:
            log.warning("journal.goes_on")
        self.disk_error = None

    def _checkpoint(self) -> None:
        """Write a checkpoint every ``checkpoint_steps`` steps; none without disk space, as the steps suffice."""
        self._since_checkpoint += 1
        if self._since_checkpoint < self._checkpoint_steps:
            return
        self._since_checkpoint = 0
        try:
            self._journal.checkpoint(self.arbiter.save())
        except JournalWriteError as error:
            log.warning("journal.no_checkpoint", why=str(error))

    def _take(self) -> list[Event]:
        """Remove and return the events of one step; reports about jobs that this step adds wait for the next one."""
        events = self._events
        added = {event.job for event in events if isinstance(event, JobAdded)}
        now = [event for event in events if not _speaks_of(event, added)]
        self._events = [event for event in events if _speaks_of(event, added)]
        self._urgent |= bool(self._events)
        return now

    def _note(self, decision: Decision) -> None:
        if decision.causes:
            self.rounds.append(decision)
        for fault in decision.faults:
            if fault.stage is None and JOB_ENDED in fault.what:
                log.debug("event.late", what=f"a report came after its job had ended, and is dropped: {fault.what}")
            elif fault.stage is None:
                log.info("event.refused", what=fault.what)
            else:
                log.warning("round.fault", plugin=fault.plugin, stage=fault.stage.value, what=fault.what)
                self.faults.append(f"round {decision.round}: {fault.plugin} ({fault.stage.value}): {fault.what}")
        if decision.transitions or decision.offers:
            log.info(
                "round.decided",
                round=decision.round,
                causes=sorted(cause.value for cause in decision.causes),
                offers=len(decision.offers),
                transitions=[f"{order.kind.value} {order.job or order.app}" for order in decision.transitions],
            )

    def _observe(self, decision: Decision) -> None:
        """Call the observers with a round's decision, after it is journaled."""
        if not decision.causes:
            return
        for name, observe in self._observers:
            try:
                observe(decision)
            except Exception as error:
                log.exception("observer.failed", plugin=name)
                if not any(f" {name} (observer)" in fault for fault in self.faults):
                    self.faults.append(f"round {decision.round}: {name} (observer): {error!r}")
                if self.arbiter.strict:
                    raise

    @property
    def next_round_in(self) -> float | None:
        """The seconds until the next step is due without new events; None if no step is due."""
        if self.wake_at == NEVER:
            return None
        return max(0.0, float(self.wake_at) - float(self.clock.now()))


_BEFORE_ADDED = frozenset(ORDER[: ORDER.index(JobAdded)])


def _speaks_of(event: Event, added: "set[JobId]") -> bool:
    """Return whether an event is about a job that the same step adds only after it would apply the event."""
    if not added or type(event) not in _BEFORE_ADDED:
        return False
    if isinstance(event, JobsDivided):
        return not added.isdisjoint(event.jobs)
    return getattr(event, "job", None) in added
