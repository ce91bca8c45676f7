"""The app master's process: threads that share one inbox.

One thread exchanges messages with the arbiter, one per node watches the containers there, and the main thread decides:
only the main thread changes jobs.
"""

import functools
import queue
from collections.abc import Callable, Sequence

import structlog

from eunomia.errors import EunomiaError
from eunomia.model.shapes import builds
from eunomia.platform.registry import default_registry
from eunomia.units import AppId, UserId
from eunomia_appmaster.app.app_file import AppFile
from eunomia_appmaster.app.master_folders import STATE_FILE, TRIALS_FILE, OwnFolder
from eunomia_appmaster.app.submission import Submission
from eunomia_appmaster.master.agent import Agent, Standing, plugins_here
from eunomia_appmaster.master.clock import SteadyClock, forget_future
from eunomia_appmaster.master.conductor import Conductor
from eunomia_appmaster.master.files import (
    ActivityLog,
    Growth,
    KeptState,
    TrialsFile,
    read_newest_state,
    rest_of,
)
from eunomia_appmaster.master.gangs import Surroundings
from eunomia_appmaster.master.left_out import REACH_SECONDS
from eunomia_appmaster.master.link import ArbiterLink, OverError, Resync
from eunomia_appmaster.master.notices import Notices
from eunomia_appmaster.master.outbox import BidReport, Outbox
from eunomia_appmaster.master.record import StateRecord
from eunomia_appmaster.master.reporting import Reporter, failed_jobs
from eunomia_appmaster.master.settings import Settings
from eunomia_appmaster.master.stalls import StalledJobs
from eunomia_appmaster.master.wire import cluster_of, lease_of, node_access_of, standing_message
from eunomia_appmaster.node.kept_files import read_token
from eunomia_appmaster.node.machine_faults import MACHINE_FAULT, TERMINATED, is_machine_fault
from eunomia_appmaster.node.system import MACHINE, Flag, System
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.runtimes.local import LocalRuntime
from eunomia_appmaster.runtimes.nodes import PATIENCE_SECONDS, NodeRuntimes
from eunomia_appmaster.runtimes.runtime import ContainerStatus, RefusedError, Runtime, RuntimeAwayError, WatchPosition

log = structlog.get_logger()

TICK_SECONDS = 0.2
"""Longest sleep of the main thread, in seconds."""
BUSY_SECONDS = 10.0
"""Seconds of one turn of the main thread's loop after which heartbeats pause until the next turn."""
WATCH_SECONDS = 20.0
"""Seconds for which one watch call on a node's containers waits for changes."""
SAVE_SECONDS = 1.0
"""Seconds between two writes of the state, which is also written before each start of a gang. The runtime, which keeps
the exits of containers, reports changes that a crash has lost again."""
TRIALS_SECONDS = 2.0
"""Seconds between two writes of ``trials.csv``."""
TRIALS_CHARACTERS_A_SECOND = 25_000
"""Most characters per second written to ``trials.csv``: with many trials the file is written less often."""


@builds
class Registered:
    """A message in the inbox: the arbiter's answer to a registration."""

    answer: pb.RegisterApplicationMasterResponse
    agent: Agent | None
    taken: Flag
    """Set once the outbox has all reports that a registration repeats."""


@builds
class Answered:
    """A message in the inbox: the arbiter's answer to a heartbeat."""

    answer: pb.AllocateResponse


@builds
class Heard:
    """A message in the inbox: statuses of a node's containers; ``first``: all containers that its runtime knows."""

    node: str
    runtime: Runtime
    statuses: tuple[ContainerStatus, ...]
    first: bool


@builds
class Ended:
    """A message in the inbox: the app has ended, or a later attempt replaced this one."""

    why: str
    error: EunomiaError | None = None


News = Registered | Answered | Heard | Ended


class AppMaster:
    """The master of one app.

    Args:
        settings: the settings of this process.
        system: clocks, threads, connections and files of the machine.
    """

    def __init__(self, settings: Settings, *, system: System = MACHINE) -> None:
        self._system = system
        self._settings = settings
        self._clock = SteadyClock(system)
        self._saved_at = 0.0
        self._saved, self._has_older = False, True
        """Whether this attempt has saved its state, and whether state of older attempts still exists."""
        self._turned_at = system.uptime()
        self._inbox = system.mailbox()
        self.stopped = system.flag()
        self._hung_up = system.flag()
        self._killed = system.flag()
        self._outbox = Outbox(system)
        node_token = read_token(settings.node_token_file)
        own = LocalRuntime(
            settings.app,
            node_token,
            settings.launcher_file,
            node=settings.node,
            login=settings.login,
            attempt=settings.attempt,
            patience_seconds=PATIENCE_SECONDS,
            system=system,
        )
        self._runtimes = NodeRuntimes(
            settings.app, own, settings.node, login=settings.login, attempt=settings.attempt, system=system
        )
        self._watched: dict[str, Runtime] = {}
        """The runtimes that a thread watches, by node."""
        self._own = OwnFolder(settings.app_dir, settings.attempt)
        kept = read_newest_state(settings.app_dir)
        former = Growth() if kept is None else kept.growth
        self._growth = former.grown(settings.more_trials, () if kept is None else kept.jobs)
        self._notices = Notices(() if kept is None else kept.notices)
        self._around = self._surroundings()
        self._conductor = self._restored(kept)
        self._record = StateRecord(
            self._own.path / STATE_FILE, self._conductor.jobs, 0 if kept is None else kept.number, system=system
        )
        self._trials = TrialsFile(self._own.path / TRIALS_FILE, settings.app, self._conductor.jobs, system=system)
        self._reporter = Reporter(self._around, self._conductor, before=self._growth.before, clock=system.monotonic)
        self._stalled = StalledJobs(self._around, self._conductor, self._reporter.rate, system.uptime)
        self._agent: Agent | None = None
        self._trials_at = 0.0
        self._link = self._new_link(self._outbox, self.stopped)

    def _new_link(self, outbox: Outbox, stopped: Flag) -> ArbiterLink:
        settings = self._settings
        link = ArbiterLink(
            settings.address,
            settings.token_file,
            settings.app,
            settings.attempt,
            outbox,
            stopped,
            part=settings.part,
            system=self._system,
        )
        link.unix_time = self._runtimes.unix_time
        link.live = self._around.file.job.elastic == "live"
        return link

    def stop(self) -> None:
        """End this process; its workers keep running."""
        self._killed.set()
        self.stopped.set()

    def _surroundings(self) -> Surroundings:
        settings = self._settings
        submission = Submission.read(settings.app_dir)
        file = AppFile.parse(
            submission.app_file,
            place=submission.file_name,
            folder=submission.folder,
            env=submission.env or None,
            user=submission.user or None,
            more_trials=self._growth.groups,
        )
        return Surroundings(
            app=settings.app,
            attempt=settings.attempt,
            file=file,
            app_dir=settings.app_dir,
            working_folder=submission.folder,
            env=submission.env,
            runtimes=self._runtimes,
            outbox=self._outbox,
            activity=ActivityLog(self._own.activity, settings.app, system=self._system),
            notices=self._notices,
            save=self._save,
        )

    def _restored(self, state: KeptState | None) -> Conductor:
        """Create the conductor with the saved state of an earlier attempt."""
        tuner = self._around.file.make_tuner()
        if state is None:
            return Conductor(self._around, tuner)
        jobs = state.jobs
        forget_future(jobs, self._clock.now())
        tuner.restore(state.tuner)
        log.info("master.restored", jobs=len(jobs), gangs=sum(job.gang is not None for job in jobs))
        return Conductor(self._around, tuner, jobs)

    def _save(self) -> None:
        self._saved_at = self._clock.now()
        self._record.write(rest_of(self._conductor.tuner.state(), self._growth, self._notices.kept))
        self._saved = True

    # -- the main thread

    def run(self) -> int:
        """Run the app to its end and return the exit code."""
        self._watch_nodes()
        self._start_thread("talk", self._talk)
        try:
            return self._work()
        finally:
            self.stopped.set()
            self._runtimes.close()

    def _start_thread(self, name: str, work: Callable[[], None]) -> None:
        self._system.start_thread(functools.partial(self._guarded, name, work), name)

    def _watch_nodes(self) -> None:
        """Start a runtime and a watching thread for each node on which the app has slots or gangs."""
        self._runtimes.keep(self._conductor.nodes())
        present = self._runtimes.all()
        for node, runtime in present.items():
            if self._watched.get(node) is not runtime:
                self._start_thread(f"watch {node}", functools.partial(self._watch, node, runtime))
        self._watched = present

    def _work(self) -> int:
        """Process the inbox until the app has ended; returns the exit code."""
        registered = settled = False
        with_gangs = {self._settings.node, *self._conductor.nodes()}
        while not self.stopped.is_set():
            self._turned_at = self._system.uptime()
            for news in self._news():
                if isinstance(news, Ended):
                    # Nothing is written here: a later attempt may have the app's folder by now.
                    log.info("master.ended", why=news.why)
                    return self._exit_code(news)
                registered |= isinstance(news, Registered)
                self._take(news)
            self._watch_nodes()
            settled = settled or (registered and self._runtimes.has_settled(with_gangs))
            if not settled:
                continue
            if self._step():
                return self._finish()
        self._keep(self._save)
        return TERMINATED

    def _exit_code(self, ended: "Ended") -> int:
        if self._killed.is_set():  # a call that was cut short by the order to end
            return TERMINATED
        if ended.error is None:
            return 0
        return MACHINE_FAULT if is_machine_fault(ended.error) else ended.error.exit_code

    def _news(self) -> Sequence[News]:
        """Wait for messages in the inbox, and return them all."""
        try:
            news: list[News] = [self._inbox.get(timeout=TICK_SECONDS)]
        except queue.Empty:
            return ()
        while not self._inbox.empty():
            news.append(self._inbox.get())
        return news

    def _step(self) -> bool:
        """Act on the present state; return whether the app has ended."""
        now = self._clock.now()
        conductor = self._conductor
        for error in conductor.tuner.poll():
            self._notices.add(str(error))
        conductor.hear_logs(now)
        self._stalled.look(now)
        conductor.is_cut_off = self._link.is_cut_off
        conductor.act(now)
        self._reporter.changes(now)
        if now - self._saved_at >= SAVE_SECONDS:
            self._keep(self._save)
        if now >= self._trials_at:
            self._keep(self._write_trials)
        return conductor.is_over

    def _keep(self, write: Callable[[], None]) -> None:
        """Write a file that will be written again later; a full disk must not end the app."""
        try:
            write()
        except OSError as error:
            log.warning("master.not_saved", why=str(error))

    def _finish(self) -> int:
        """Report the end of the app to the arbiter; returns the exit code."""
        why = self._conductor.failure() or ""
        self._leave_files()
        log.info("app.finished", failed=bool(why), why=why or None)
        self.stopped.set()
        self._hung_up.wait(timeout=5.0)
        link = self._new_link(Outbox(self._system), self._killed)
        standing = self._reporter.standing
        try:
            link.finish(
                failed=bool(why),
                why=why,
                standing=None if standing is None else standing_message(standing),
                jobs_failed=failed_jobs(self._conductor),
            )
        except OverError as error:
            log.info("app.over_already", why=str(error))
        finally:
            link.close()
        return 0

    def _leave_files(self) -> None:
        self._keep(self._save)
        self._keep(self._write_trials)

    def _write_trials(self) -> None:
        now = self._clock.now()
        self._trials_at = now + TRIALS_SECONDS
        self._trials_at = now + max(TRIALS_SECONDS, self._trials.write() / TRIALS_CHARACTERS_A_SECOND)
        if self._has_older and self._saved:
            self._own.remove_older()
            self._has_older = False

    # -- the items of the inbox

    def _take(self, news: News) -> None:
        now = self._clock.now()
        if isinstance(news, Heard):
            self._conductor.hear_statuses(news.statuses, now)
            if news.first:
                self._runtimes.reported(news.node, news.runtime)
                self._conductor.heard_all_of(news.node, now)
        elif isinstance(news, Registered):
            self._begin(news, now)
        elif isinstance(news, Answered):
            self._follow(news.answer)

    def _begin(self, news: Registered, now: float) -> None:
        answer, conductor = news.answer, self._conductor
        conductor.cluster = cluster_of(answer.cluster)
        self._runtimes.authority = answer.node_authority
        self._hear_nodes(answer.node_tokens)
        conductor.slots.replace_all(map(lease_of, answer.leases))
        conductor.slots.clock_ahead = now - answer.now
        self._agent = news.agent
        conductor.add_new_trials()
        self._reporter.everything({job.job: job.state for job in answer.jobs}, now)
        news.taken.set()
        log.info("master.registered", leases=len(answer.leases), bids=self._agent is not None)

    def _hear_nodes(self, tokens: Sequence[pb.NodeToken]) -> None:
        """Update the nodes from the arbiter's list; an empty list means no change."""
        if tokens:
            self._runtimes.hear(map(node_access_of, tokens))

    def _follow(self, answer: pb.AllocateResponse) -> None:
        self._hear_nodes(answer.node_tokens)
        slots = self._conductor.slots
        slots.clock_ahead = self._clock.now() - answer.now
        for lost in answer.preempt.strict_contract.leaving:
            slots.lose(lost.gpus, lost.epoch, lost.causes)
        for lease in answer.allocated_leases:
            slots.grant(lease_of(lease))
        for renewal in answer.renewed:
            amounts = (renewal.cpus, renewal.memory_gib) if renewal.HasField("cpus") else None
            slots.renew(renewal.lease, renewal.ends_at if renewal.HasField("ends_at") else None, amounts)
        for ended in answer.ended_leases:
            slots.end(ended)
        for refusal in answer.refused:
            log.warning("report.refused", why=refusal)
        if answer.refused:
            self._reporter.division_was_refused(self._clock.now())
        if answer.bid_error:
            log.warning("bid.refused", why=answer.bid_error)
        for offer in answer.offers:
            self._bid(offer)

    def _bid(self, offer: pb.Offer) -> None:
        """Bid on an offer; if the bid fails, it is dropped, and the arbiter values the app itself."""
        if self._agent is None:
            return
        began = self._system.monotonic()
        try:
            table = self._agent.bid(offer, self._reporter.known())
        except Exception as error:  # a plugin's fault must not end the app
            log.exception("bid.failed", offer=offer.id, why=str(error))
            return
        self._outbox.put("bid", BidReport(offer=offer.id, table=table))
        took = round(1000.0 * (self._system.monotonic() - began), 2)
        log.info("bid.made", offer=offer.id, rho=float(table.now[0]), rows=int(table.rho.size), milliseconds=took)

    # -- the other threads

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        """End the process if one of its threads fails; the next attempt starts from the saved state."""
        try:
            work()
        except Exception as error:
            log.exception("thread.failed", thread=name)
            fault = EunomiaError("a thread of an app master must not fail")
            fault.__cause__ = error
            self._inbox.put(Ended(why=str(error), error=fault))

    def _watch(self, node: str, runtime: Runtime) -> None:
        """Watch the containers of a node until the node gets a newer runtime or none."""
        position, first = WatchPosition(), True
        while not self.stopped.is_set() and self._runtimes.all().get(node) is runtime:
            try:
                watch = runtime.watch(position, wait_seconds=0.0 if first else WATCH_SECONDS)
            except RuntimeAwayError as error:
                log.info("runtime.away", node=node, why=str(error))
                self.stopped.wait(REACH_SECONDS if self._runtimes.is_unreachable(node) else 0.5)
                continue
            except RefusedError as error:
                log.error("runtime.refused", node=node, why=str(error))
                self.stopped.wait(2.0)
                continue
            position = watch.position
            if watch.statuses or first:
                self._inbox.put(Heard(node=node, runtime=runtime, statuses=watch.statuses, first=first))
            first = False

    def _talk(self) -> None:
        """Exchange heartbeats with the arbiter."""
        try:
            plugins = plugins_here(default_registry())
            self._register(plugins)
            while not self.stopped.is_set():
                if self._system.uptime() - self._turned_at > BUSY_SECONDS:
                    self.stopped.wait(TICK_SECONDS)  # the main thread hangs: heartbeats must not hide this
                    continue
                try:
                    answer = self._link.exchange()
                except Resync:
                    log.info("arbiter.resync")
                    self._register(plugins)
                    continue
                if answer is not None:
                    self._inbox.put(Answered(answer=answer))
        except OverError as error:
            self._inbox.put(Ended(why=str(error)))
        except EunomiaError as error:
            self._inbox.put(Ended(why=str(error), error=error))
        finally:
            self._link.close()
            self._hung_up.set()

    def _register(self, plugins: Sequence[tuple[str, str]]) -> None:
        answer = self._link.register(plugins)
        taken = self._system.flag()
        self._inbox.put(Registered(answer=answer, agent=self._make_agent(answer), taken=taken))
        while not taken.wait(0.5) and not self.stopped.is_set():
            pass

    def _make_agent(self, answer: pb.RegisterApplicationMasterResponse) -> Agent | None:
        if not answer.agent_bids:
            return None
        standing = Standing(
            app=AppId(self._settings.app),
            user=UserId(answer.user),
            weight=answer.weight,
            user_weight=answer.user_weight,
            arrived_at=answer.arrived_at,
            tuner_kind=self._around.file.tuner.kind,
        )
        try:
            return Agent.of(
                cluster_of(answer.cluster), standing, default_registry(), answer.elasticity, answer.valuation
            )
        except EunomiaError as error:
            log.warning("agent.none", why=str(error))
            return None
