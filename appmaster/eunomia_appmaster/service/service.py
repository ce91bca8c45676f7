"""The arbiter's service: the state that its three protocols share, from the journal's recovery to the end."""

import asyncio
import contextlib
import functools
import sqlite3
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import structlog

from eunomia.arbiter import Arbiter, ClusterView
from eunomia.contract.decisions import Decision
from eunomia.contract.events import AppCancelled, AppFinished, Event, MachineLost, ProfileChanged
from eunomia.errors import InputError
from eunomia.journal.journal import Journal, Step
from eunomia.journal.recovery import recover
from eunomia.journal.values import Note
from eunomia.platform.profiles import Profile
from eunomia.units import NEVER, NONE, AppId, Seconds
from eunomia_appmaster.node.kept_apart import admit_login
from eunomia_appmaster.node.system import MACHINE, System
from eunomia_appmaster.protocol import launcher_pb2 as launcher
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.apps import SubmittedApps
from eunomia_appmaster.service.attempts import due, renumbered
from eunomia_appmaster.service.clock import Clock
from eunomia_appmaster.service.disk_limits import disk_limits
from eunomia_appmaster.service.driver import Driver
from eunomia_appmaster.service.ended_apps import EndedApps
from eunomia_appmaster.service.gpu_hours import GpuHours
from eunomia_appmaster.service.join_tokens import JOIN_NOTE, JoinTokens
from eunomia_appmaster.service.joined_nodes import JOINED_NOTE, JoinedNodes
from eunomia_appmaster.service.journaled import LOST_NOTE, apps_of, kept_of, unknown_apps, without_note
from eunomia_appmaster.service.left_out import LeftOutNodes
from eunomia_appmaster.service.marks import UNTIL, Loss, Marks
from eunomia_appmaster.service.node_authority import NodeAuthority
from eunomia_appmaster.service.node_leases import NodeLeases
from eunomia_appmaster.service.nodes import Node, Nodes, OrderKey
from eunomia_appmaster.service.reserve import Reserve
from eunomia_appmaster.service.sessions import NewsWriter, Session, wake
from eunomia_appmaster.service.settings import Settings
from eunomia_appmaster.service.shared_storage import SharedStorage
from eunomia_appmaster.service.stage_plugins import StagePlugins
from eunomia_appmaster.service.stalled_masters import MOST_HEARTBEATS, StalledMasters
from eunomia_appmaster.service.standings import Standings
from eunomia_appmaster.service.start_orders import masters_to_stop, start_order
from eunomia_appmaster.service.suspended import judged, unused
from eunomia_appmaster.service.tokens import Tokens
from eunomia_appmaster.service.upkeep import Upkeep
from eunomia_appmaster.service.user_record import USER_NOTE
from eunomia_appmaster.service.users import Users
from eunomia_appmaster.service.watchdog import Watchdog

if TYPE_CHECKING:
    from eunomia_appmaster.node.connections import Connections
    from eunomia_appmaster.service.certificates import ServedCertificates
    from eunomia_appmaster.service.metrics import Meters

log = structlog.get_logger()

STOP_SECONDS = 10.0
"""Seconds between an order to end an app master and its kill."""
LOOK_SECONDS = 1.0
"""Seconds between two checks for changes that no message reports, such as silence."""


class Service:
    """One arbiter with its journal, machines, apps and sessions. Everything happens in one event loop.

    Args:
        settings: this process's settings.
        journal: open for writing.
        profile: the configured profile.
        fallback: the profile that is used when the configured one has failed too often.
        system: the machine's clocks and threads.
    """

    def __init__(
        self,
        settings: Settings,
        journal: Journal,
        profile: Profile,
        fallback: Profile,
        *,
        system: System = MACHINE,
    ) -> None:
        self.system = system
        self.settings, self.journal, self.profile = settings, journal, profile
        self.started_at = system.unix_time()
        self.address = settings.address
        self.certificates: ServedCertificates | None = None
        """The TLS certificate; set once the service is served with TLS."""
        self.connections: Connections | None = None
        """The connections of the server; set once the service is served."""
        self.meters: Meters | None = None
        """The counters of ``--metrics``; must be set before the service runs."""
        self._fallback = fallback
        self.reserve = Reserve(settings.journal, settings.reserve)
        self.marks = Marks(journal, settings.mark, system=system)
        self.marks.check_begun(accepted=settings.accept_loss)
        self.loss: Loss | None = None
        """Steps that are lost, until the operator has accepted that; no decisions are made meanwhile."""
        self._accepted = asyncio.Event()
        kept = kept_of(journal, settings.seed)
        self.seed = kept.seed
        self._served_before = kept.profile
        self._begun = kept.begun
        leases = NodeLeases(journal, settings.node_lease, settings.stop_lease)
        self.nodes = Nodes(kept.layout, settings.node_silence, leases, system=system)
        self.apps = SubmittedApps(
            settings.apps, apps_of(journal), keep=settings.keep_apps, archive=EndedApps(journal.path)
        )
        self.users = Users(
            journal.notes(USER_NOTE), check_login=functools.partial(admit_login, settings.state_dir), system=system
        )
        self.gpu_hours = GpuHours(self.users, self.apps, system=system)
        self.joined = JoinedNodes(journal.notes(JOINED_NOTE))
        self.left_out = LeftOutNodes(self.nodes)
        self.upkeep = Upkeep(self.nodes, self.apps, journal, self.joined, self.left_out, system=system)
        self.join_tokens = JoinTokens(journal.notes(JOIN_NOTE), system=system)
        self.node_authority = NodeAuthority(settings.state_dir)
        self.tokens = Tokens(kept.secret, users=self.users, issue_of=self.apps.issue_of, joined=self.joined)
        self.sessions: dict[str, Session] = {}
        least = MOST_HEARTBEATS * float(settings.heartbeat)
        self.stalled_masters = StalledMasters(max(float(settings.app_master_silence), least), self.nodes.clock)
        self.news_writer = NewsWriter(
            self.nodes, self.tokens.container_secret, self.joined.certificate_name, self.apps.login_of
        )
        self.standings = Standings(lambda: self.driver.arbiter, system=system)
        self.ready = asyncio.Event()
        self.stage_plugins = StagePlugins(profile)
        self.storage = SharedStorage(settings.apps)
        self._driver: Driver | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # --- from the journal to the first step ------------------------------------------------------------------------

    @property
    def driver(self) -> Driver:
        """The driver, which exists once the service is ready.

        Raises:
            InputError: its machines have not registered yet.
        """
        if self._driver is None:
            raise InputError("the arbiter must have its machines before it serves", value="none yet")
        return self._driver

    @property
    def away(self) -> str | None:
        """Why this arbiter cannot answer calls now; None if it can."""
        if not self.ready.is_set():
            return "the arbiter waits for its machines"
        return self.driver.disk_error

    @property
    def writing_error(self) -> str | None:
        """Why nothing can be journaled now; None if it can be, also before the first machine has registered."""
        return self.question or (None if self._driver is None else self._driver.disk_error)

    @property
    def question(self) -> str:
        """The question that the operator must answer before the arbiter makes decisions; empty: none."""
        return f"{gone}; {UNTIL}" if (gone := self._gone()) else ""

    @property
    def decides(self) -> bool:
        """Whether the arbiter has its machines, and no question is open, so that it makes decisions."""
        return self._driver is not None and self.loss is None

    @property
    def view(self) -> ClusterView:
        """The arbiter's state, to be read under ``driver.lock``."""
        return self.driver.arbiter.view

    async def run(self) -> None:
        """Wait for the machines, recover, and make steps until cancelled."""
        with contextlib.suppress(OSError):  # a disk error is reported by the next write there
            self.settings.apps.mkdir(exist_ok=True)  # launchers look for it before they register
        await self._await_machines()
        self._begin()
        if self.loss is not None:
            self.ready.set()
            await self._accepted.wait()
        self._tasks = [asyncio.create_task(self.driver.run()), asyncio.create_task(self._look())]
        self.ready.set()
        log.info(
            "arbiter.ready", address=self.address, profile=self.profile.name, slots=self.view.cluster.present().size
        )
        await asyncio.gather(*self._tasks)

    async def write(self, *notes: Note) -> None:
        """Journal notes: with the next step, or at once before the first machine has registered.

        Raises:
            InputError: the disk refuses them at once.
        """
        if self._driver is not None:
            await self._driver.fold([], notes)
            return
        try:
            self.journal.note(*notes)
        except (sqlite3.Error, OSError) as error:
            raise InputError("the arbiter must be able to write its journal", value=str(error)) from error

    async def close(self) -> None:
        """Stop making steps, and write a checkpoint."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._driver is not None and self.loss is None:
            await self._driver.close()
        self.marks.close()
        self.storage.hide()
        self.journal.close()

    async def _await_machines(self) -> None:
        """Wait for a first machine; known machines have as long to register as they may be silent."""
        while not self.nodes.are_here():
            await asyncio.sleep(0.02)

    def _begin(self) -> None:
        begun = self._begun or self.nodes.layout
        if begun is None or self.nodes.layout is None:
            raise InputError("a cluster must have a machine", value="none")
        cluster = begun.cluster
        stages = self.profile.stages(cluster, place="launcher")
        arbiter = Arbiter(cluster, stages, self._fallback.stages(cluster), seed=self.seed)
        steps = recover(arbiter, self.journal)
        self.left_out.serve(arbiter)
        self.nodes.move_to(self.nodes.layout.within(arbiter.view.cluster))
        last = next(iter(self.journal.steps(after=max(0, self.journal.last_step - 1), archived=False)), None)
        clock = Clock.after(self.journal, last, system=self.system)
        self._driver = Driver(
            arbiter,
            self.journal,
            clock,
            after=self._carry_out,
            observers=self.profile.observers(),
            watchdog=Watchdog(self.settings.state_dir, self.settings.step_limit),
            checkpoint_steps=self.settings.checkpoint_steps,
            system=self.system,
        )
        self.driver.follow, self.driver.make_room = self.marks.follow, self.reserve.give
        self._go_on = functools.partial(self._begin_deciding, arbiter, steps, clock, last)
        self.loss = self.marks.lost((f"the launcher of {node.name}", node.mark) for node in self.nodes)
        if self.loss is None or self.settings.accept_loss:
            self.accept_loss()
        else:
            log.error("journal.steps_gone", what=self.question)

    def accept_loss(self) -> str:
        """Make decisions from now on, without the lost steps; returns what was accepted, empty: nothing was lost."""
        words = self._gone()
        if self.loss is not None:
            self.marks.accept(self.loss, words)
            self.driver.faults.append(f"accepted: {words}")
            self.loss = None
        self._go_on()
        self._accepted.set()
        return words

    def _begin_deciding(self, arbiter: Arbiter, steps: Sequence[Step], clock: Clock, last: Step | None) -> None:
        self.marks.follow()
        self.driver.recall_hang()
        self._recall(steps, clock)
        self.nodes.restore(arbiter.view)
        self._lose_machines_ahead(arbiter)
        self.driver.put(self.nodes.events(arbiter.view))  # before a round could give out a slot that is missing
        self.driver.put(self.nodes.unheard(arbiter.view))
        self._store_profile(last is None)
        self._end_lost(arbiter.view)
        self.refresh()
        if last is not None:
            leases = len(list(arbiter.view.leases()))
            log.info("arbiter.recovered", steps=len(steps), apps=len(self.apps.live), leases=leases)

    def _gone(self) -> str:
        """Return text on steps that the journal has lost and whose loss is not accepted; empty: none."""
        if self.loss is None:
            return ""
        return self.loss.words(unknown_apps(self.settings.apps, self.nodes, self.apps.get))

    def hear_mark(self, by: str, mark: str) -> None:
        """Log a mark that the journal does not reach, and add it to the faults, if the arbiter makes decisions."""
        if self.decides and self.marks.is_behind(mark):
            log.error("journal.behind_mark", by=by, mark=mark, journal=self.marks.present)
            if (fault := f"the journal lacks steps that {by} has heard of") not in self.driver.faults:
                self.driver.faults.append(fault)

    def _end_lost(self, view: ClusterView) -> None:
        """Fail apps without a note: their app files are unknown, so their workers are ended."""
        for app in list(without_note(view, self.apps.get)):
            log.error("app.lost", app=app.name, why=LOST_NOTE)
            self.apps.take_up(app)
            self.driver.faults.append(f"app {app.name} has failed: {LOST_NOTE}")
            self.end(app, "failed", LOST_NOTE)

    def _lose_machines_ahead(self, arbiter: Arbiter) -> None:
        """Mark all machines as lost if they saw later orders than a journal that was restored or truncated.

        Containers of unknown leases are ended, and no slot is granted before that is confirmed.
        """
        states = [state for node in self.nodes for state in node.slot_states.values()]
        seen = max((max(state.highest_epoch, state.closed_epoch) for state in states), default=0)
        if self.nodes.layout is None or seen <= arbiter.view.last_epoch:
            return
        log.warning("journal.behind", last_epoch=arbiter.view.last_epoch, seen=seen)
        arbiter.skip_epochs(seen)
        self.journal.checkpoint(arbiter.save())
        for node in self.nodes:
            node.lost, node.fence = True, seen
            self.driver.put(MachineLost(machine=machine) for machine in self.nodes.layout.machines_of(node.name))

    def _recall(self, steps: Sequence[Step], clock: Clock) -> None:
        """Restore recent rounds and deadlines from the replayed steps."""
        for step in steps:
            if step.decision.causes:
                self.driver.rounds.append(step.decision)
            self._warn(step.decision, clock.now())
            self.news_writer.causes.note(step.decision)

    def _store_profile(self, new: bool) -> None:
        resolved = self.profile.resolved()
        self.journal.set_meta(
            profile=resolved,
            policy=self.profile.name,
            cluster=[machine.name for machine in self.view.cluster.machines],
        )
        if not new and self._served_before != resolved:
            log.info("profile.changed", profile=self.profile.name)
            self.driver.put([ProfileChanged(profile=self.profile.name)])

    # --- around a step ---------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Queue the events of the machines' last reports."""
        if self._driver is None or not self.decides:
            return
        async with self._driver.lock:
            self._driver.put(self.nodes.events(self.view))
            self.nodes.note_renewals()
            self._driver.put(unused(self.apps.live, self.view, self.nodes))
            self.refresh()

    def _carry_out(self, decision: Decision, has_news: bool) -> None:
        """Send the orders of a journaled decision to machines and app masters."""
        if self.meters is not None:
            self.meters.note(decision, self.driver.arbiter.spent)
        self.upkeep.follow(self.view.cluster)
        self.nodes.leases.most_grace = self.driver.arbiter.serving.rounds.suspend_grace
        self._warn(decision, decision.now)
        self.news_writer.causes.note(decision)
        if has_news:
            self.refresh()

    def _warn(self, decision: Decision, now: Seconds) -> None:
        for order in (*decision.orders, *decision.transitions):
            if order.leaving.size and order.deadline != NEVER:
                self.nodes.warn(order.leaving.tolist(), float(order.deadline) - float(now))

    def refresh(self) -> None:
        """Answer the heartbeats of all machines and app masters for which there is news."""
        if self._driver is not None and not self.decides:
            return
        live = self.apps.live
        if self._driver is not None:
            changed = [*judged(live, self.nodes, self.sessions), *renumbered(live, self.nodes)]
            self._driver.put([], [app.note() for app in changed])
        limits = frozenset(("disk", one.user, one.bytes, *one.apps) for one in disk_limits(self.users, self.apps))
        by_node: dict[str, list[App]] = {}
        for app in live:
            by_node.setdefault(app.node, []).append(app)
        for node in self.nodes:
            node.order(limits | self._order_keys(node, by_node.get(node.name, [])))
        self._stir_masters()

    def _stir_masters(self) -> None:
        """Wake the calls of app masters for which there may be news."""
        stirred, offer = None, None
        if self._driver is not None:
            stirred, offer = self.news_writer.stirred(self.view), self.view.open_offer
        for session in self.sessions.values():
            session.note_offer(None if offer is None else int(offer.id))
        woken = list(self.sessions.values()) if stirred is None else self._sessions_of(stirred)
        wake(woken, float(self.profile.rounds.bid_deadline or 1.0))

    def _sessions_of(self, apps: Iterable[str]) -> list[Session]:
        return [session for name in apps if (session := self.sessions.get(name)) is not None]

    async def _look(self) -> None:
        """Check periodically for changes that no message reports."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()
            async with self.driver.lock:
                self.driver.put(*self.upkeep.look(self.view))
                self.driver.put(self.left_out.idle(self.system.monotonic()))
                self.driver.put(*self.gpu_hours.look(self.view, self.driver.clock.now()))
                self.forget()

    # --- orders to machines ----------------------------------------------------------------------------------------

    def orders(self, node: Node) -> launcher.NodeHeartbeatResponse:
        """Return all present orders of a node."""
        mine = [app for app in self.apps.live if app.node == node.name]
        return launcher.NodeHeartbeatResponse(
            response_id=node.response_id,
            lease_seconds=node.lease.given(self.nodes.lease_seconds(node)),
            lease_grace_seconds=self.nodes.leases.grace,
            mark=self.marks.present,
            revocations=self._revocations(node),
            start_app_masters=[self._start_order(node, app, attempt) for app, attempt in due(node, mine, self._driver)],
            stop_app_masters=[
                launcher.AppMasterStop(app=app.name, deadline_seconds=STOP_SECONDS) for app in self._to_stop(node)
            ],
            fences=self.nodes.fences(node),
            tunes=self._tunes(node),
            stalled_app_masters=list(self.stalled_masters.on(node, mine, self.sessions)),
            disk_limits=disk_limits(self.users, self.apps),
        )

    def _tunes(self, node: Node) -> list[launcher.Tune]:
        return [] if self._driver is None else self.nodes.tunes(node, self.view)

    def _revocations(self, node: Node) -> list[launcher.Revocation]:
        if self._driver is None:
            return []
        grace = self._driver.arbiter.serving.rounds.suspend_grace
        return self.nodes.revocations(node, self.view, grace)

    def _order_keys(self, node: Node, mine: Sequence[App]) -> frozenset[OrderKey]:
        """Return keys that identify the orders to a node and its app masters; they exclude the remaining seconds."""
        keys: set[OrderKey] = {("revoke", order.slot, order.epoch) for order in self._revocations(node)}
        keys |= {("start", app.name, attempt) for app, attempt in due(node, mine, self._driver)}
        stalled = self.stalled_masters.on(node, mine, self.sessions)
        keys |= {("stalled", order.app, order.attempt, order.part) for order in stalled}
        keys |= {("stop", app.name) for app in self._to_stop(node)}
        keys |= {("fence", fence.slot, fence.epoch) for fence in self.nodes.fences(node)}
        keys.add(("lease", self.nodes.lease_seconds(node)))
        keys |= {("tune", tune.SerializeToString(deterministic=True)) for tune in self._tunes(node)}
        return frozenset(keys)

    def _to_stop(self, node: Node) -> list[App]:
        return [] if self._driver is None else masters_to_stop(node, self.apps, float(self._driver.clock.now()))

    def _start_order(self, node: Node, app: App, attempt: int) -> launcher.AppMasterOrder:
        asked = attempt == node.asked.get(app.name)
        return start_order(app, attempt, address=self.address, token=self.tokens.app(app.name), asked=asked)

    # --- apps ------------------------------------------------------------------------------------------------------

    def end(self, app: App, state: str, why: str = "") -> None:
        """End an app; ``state``: ``finished``, ``failed`` or ``cancelled``; ``why``: the reason as text."""
        if app.over:
            return
        row = self.view.app_row(AppId(app.name))
        if row != NONE:
            self.standings.settle(app)
            app.gpu_seconds = float(self.view.app_ledger.gpu_seconds[row])
            mine = self.view.jobs_of(row).tolist()
            # An app master that reports the end of its app does not report the end of each job. Jobs that a failed app
            # leaves did not fail themselves.
            how = "finished" if state == "finished" else "cancelled"
            left = [str(self.view.job_id(job)) for job in mine]
            app.ended_jobs.update({job: how for job in left if job not in app.ended_jobs})
        app.attempts = max([app.attempts, *(status.attempt for status in self.nodes.masters_of(app.name))])
        app.end(state, why, float(self.driver.clock.now()))
        for session in self._sessions_of([app.name]):
            session.changed.set()  # sends the order to end
        log.info("app.ended", app=app.name, state=state, why=why)
        name = AppId(app.name)
        finished = AppFinished(app=name, failed=state == "failed", why=why)
        event: Event = AppCancelled(app=name) if state == "cancelled" else finished
        self.driver.put([event] if row != NONE else [], [app.note()])

    def forget(self) -> None:
        """Drop apps that ended long ago from memory; they are looked up in the journal."""
        for app in self.apps.surplus():
            if not self._is_busy(app):
                self.apps.forget(app)
                self.sessions.pop(app.name, None)
        known = {app.name for app in self.apps}
        self.stalled_masters.keep_only(known)
        self.left_out.keep_only(app.name for app in self.apps.live)
        for node in self.nodes:
            node.forget_masters(known)

    def _is_busy(self, app: App) -> bool:
        """Return whether an ended app still has leaving slots, an app master, or an unwritten note."""
        row = self.view.app_row(AppId(app.name))
        return row != NONE or self.driver.holds(app.note()) or self.has_master(app)

    def has_master(self, app: App) -> bool:
        """Return whether a node reports an app master of the app that has not ended."""
        return any(status.state != launcher.APP_MASTER_COMPLETED for status in self.nodes.masters_of(app.name))
