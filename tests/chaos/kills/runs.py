"""One live run with kills: chooses victims and moments, kills, and waits for the end."""

import itertools
import os
import random
import signal
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from chaos.kills.losses import losses
from chaos.kills.moments import AUCTION, BETWEEN, CHECKPOINT, MOMENTS, START, Offers, starting, writing
from chaos.kills.outcome import CHECKPOINT_SECONDS, KillRun
from chaos.kills.victims import (
    APP_MASTER,
    ARBITER,
    LAUNCHER,
    WORKER,
    Container,
    Kill,
    containers,
    end_those_left,
    started,
)
from eunomia.errors import EunomiaError
from eunomia_appmaster.journal_check import check_folder
from eunomia_appmaster.node.supervisor import HEALTHY_SECONDS, MOST_FAILURES, MOST_PAUSE_SECONDS
from eunomia_testbed.demo.apps_of_demo import app_sources
from eunomia_testbed.live_runs.app_source import AppSource
from eunomia_testbed.live_runs.live_run import LiveRun
from eunomia_testbed.live_runs.outcome import held_twice

FIRST_KILL = (0.5, 2.0)
PAUSE = (1.0, 3.0)
"""Seconds between two kills, and between the first training step and the first kill."""
LIMIT_SECONDS = (600.0, 20.0)
"""For a run, and for each kill."""
SHORTEST, KILLS_A_LENGTH = 0.3, 50.0
"""Length of the apps without kills, and how many kills ask for one more length, as far as 1."""
LEAST_ITERATIONS = 64
"""A first rung, a quarter of it, lies behind the first epoch of 15 steps, at whose end the accuracy is logged."""
GROWTH, LONGEST = 1.5, 2.0
"""Each round of further apps is so many times as long as the one before it, for the machine is fast, as far as this."""
LEAST_LIVE = 2
"""Apps that live while kills are left: where they end, more are submitted."""
MORE_FOR = 0.5
"""Share of the time limit in which more apps are submitted."""
LEFT_SECONDS = 15.0
"""How long after the launcher's end a process may take to be gone."""
INSIDE = 0.6
"""Share of the kills that wait for a moment, so that half of them meet one."""
AIM_SECONDS = (8.0, 16.0)
"""How long a kill waits for its own moment, and for any."""
INTO_START = 0.25
"""The most seconds from the sight of a start to the kill."""
LASTING_SECONDS = HEALTHY_SECONDS + MOST_PAUSE_SECONDS + 2.0
"""Between two kills of a process that its supervisor restarts after a pause and then counts as healthy."""
MOST_OF_ONE = {WORKER: 2, APP_MASTER: 3}
"""What one job and one app's master survive by default: retries without a new checkpoint, and restarts."""
KNOWN_SECONDS = 0.3
"""How old the list of victims may be that an auction's kill is chosen from."""
LOOK_SECONDS, QUICK_SECONDS = 0.1, 0.003
"""Between two looks at the run, and at what happens in it while a kill waits for its moment."""


def small_apps(length: float = 1.0) -> list[AppSource]:
    """The demo's apps, cut short; with a length of 1 they are done within half a minute on two idle cores."""
    made = []
    for source in app_sources():
        tables = tomllib.loads(source.text)
        tuner = tables.get("tuner", {})
        single = "trials" not in tuner and tuner.get("kind", "none") == "none"
        iterations = max(LEAST_ITERATIONS, int((240 if single else 160) * length) // 8 * 8)
        source = source.with_setting("max_iterations", iterations)
        source = source.with_setting("trials", 2 if tuner.get("kind") == "none" else 4)
        made.append(source.with_setting("checkpoint_every", f'"{CHECKPOINT_SECONDS:g}s"'))
    return made


def kill_run(
    folder: Path,
    kinds: Sequence[str],
    luck: random.Random,
    *,
    tell: Callable[[Kill], None] = lambda _: None,
    length: float | None = None,
    settings: Sequence[str] = (),
) -> KillRun:
    """Run the small apps, and as many more of them as it takes, and kill one process of each kind.

    Args:
        folder: of the run; new.
        kinds: of ``victims.ALL_KINDS``; a kind without a live process waits for its turn.
        luck: chooses victims and moments.
        tell: hears of each kill.
        length: of the apps; with 1 they are done within half a minute on two idle cores. None: by the number of kills.
        settings: ``KEY=VALUE`` for the profile.

    Raises:
        EunomiaError: it did not end in time.
    """
    began = time.time()
    limit = LIMIT_SECONDS[0] + LIMIT_SECONDS[1] * len(kinds)
    length = min(1.0, SHORTEST + len(kinds) / KILLS_A_LENGTH) if length is None else length
    run = LiveRun(folder, small_apps(length), settings=settings, seed=luck.randrange(2**31), cpu_only=True)
    killer, more = Killer(run, kinds, luck, tell), _more_apps(length)
    try:
        run.start()
        run.submit()
        while not run.is_over:
            if time.time() - began > limit:
                raise EunomiaError(
                    f"a run with kills must end within {limit:.0f} s", value=f"{killer.left} left", place=str(folder)
                )
            _check(run)
            killer.look()
            if killer.left and _wants_more(run) and time.time() - began < MORE_FOR * limit:
                run.submit_also(next(more))
            time.sleep(QUICK_SECONDS if killer.armed else LOOK_SECONDS)
    finally:
        run.stop()
        left = end_those_left(folder, LEFT_SECONDS)
    return _outcome(run, killer, time.time() - began, left)


def _more_apps(length: float) -> Iterator[AppSource]:
    """Further apps without end."""
    while True:
        length = max(length, min(GROWTH * length, LONGEST))
        yield from small_apps(length)


def _wants_more(run: LiveRun) -> bool:
    """Whether all that was submitted has arrived, and too little of it lives."""
    live = [life for life in run.record.apps.values() if life.ended_at is None]
    return len(run.record.apps) >= len(run.names) and len(live) < LEAST_LIVE


def _outcome(run: LiveRun, killer: "Killer", seconds: float, left: Sequence[str]) -> KillRun:
    """Judge a run that has been stopped; what the checker finds is kept in its folder."""
    findings = [str(finding) for finding in check_folder(run.folder, over=True).findings]
    others = [*held_twice(run.record), *(f"{container} ran on when its launcher had ended" for container in left)]
    if findings or others:
        (run.folder / "findings.txt").write_text("\n".join([*findings, *others, ""]), encoding="utf-8")
    arbiter = run.supervisor.arbiter
    run.record.close()
    return KillRun(
        kills=tuple(killer.kills),
        left=tuple(killer.left),
        seconds=seconds,
        states={app: life.state for app, life in run.record.apps.items()},
        findings=tuple(findings),
        others=tuple(others),
        losses=tuple(losses(run.folder, killer.kills)),
        restarts=0 if arbiter is None else arbiter.restarts,
    )


def _check(run: LiveRun) -> None:
    for child in (run.supervisor.arbiter, run.supervisor.launcher):
        if child is not None and child.failure is not None:
            raise EunomiaError(
                "arbiter and launcher must run", value=child.failure, place=str(run.folder / "logs")
            )  # fmt: skip


class Killer:
    """Kills process after process.

    Args:
        run: whose processes.
        kinds: of each victim, in order.
        luck: chooses.
        tell: hears of each kill.
    """

    def __init__(
        self, run: LiveRun, kinds: Sequence[str], luck: random.Random, tell: Callable[[Kill], None]
    ) -> None:  # fmt: skip
        self._tell = tell
        self.left = list(kinds)
        self.kills: list[Kill] = []
        self._run = run
        self._random = luck
        self._offers = Offers()
        self._next_at: float | None = None
        self._aim: str | None = None
        self._known: dict[str, tuple[int, int | None]] = {}
        self._known_at = 0.0
        self._killed: Counter[str] = Counter()

    @property
    def armed(self) -> bool:
        """Whether a kill waits for its moment."""
        return bool(self.left) and self._next_at is not None and time.time() >= self._next_at

    def look(self) -> None:
        """Read what is new, and kill if it is time."""
        self._offers.take(self._run.record.poll().steps)
        if self._next_at is None and any(line.event == "running" for line in self._run.record.lines):
            self._plan(FIRST_KILL)
        if self.armed:
            self._try()

    def _plan(self, pause: tuple[float, float]) -> None:
        """Choose when the next kill is due, and whether it waits for a moment."""
        self._next_at = time.time() + self._random.uniform(*pause)
        for _ in self.left:  # a kind without a live process waits for its turn
            if self._candidates(self.left[0]):
                break
            self.left.append(self.left.pop(0))
        inside = sum(kill.moment != BETWEEN for kill in self.kills)
        aims = inside < INSIDE * (len(self.kills) + 1)
        met = Counter(kill.moment for kill in self.kills)
        rarest = min(met[moment] for moment in MOMENTS)
        self._aim = self._random.choice([each for each in MOMENTS if met[each] == rarest]) if aims else None
        self._known, self._known_at = {}, 0.0

    def _try(self) -> None:
        waited = time.time() - (self._next_at or 0.0)
        kind = self.left[0]
        if self._aim is None or waited > AIM_SECONDS[1]:
            found = self._candidates(kind)
            if not found:  # no process of this kind lives: the next kind's turn
                self.left.append(self.left.pop(0))
            self._strike(kind, found)
            return
        for moment in MOMENTS if waited > AIM_SECONDS[0] else (self._aim,):
            found = self._met(kind, moment)
            if found:
                if moment == START:
                    time.sleep(self._random.uniform(0.0, INTO_START))
                self._strike(kind, found, at_once=moment == AUCTION)
                return

    def _met(self, kind: str, moment: str) -> dict[str, int]:
        """Victims of a kind for whom it is this moment now."""
        if moment == AUCTION:  # over within some 30 ms, so victims are known beforehand
            if self._offers.open_since:
                return {name: pid for name, (pid, at) in self._known.items() if started(pid) == at}
            if time.time() - self._known_at > KNOWN_SECONDS:
                self._known_at = time.time()
                self._known = {name: (pid, started(pid)) for name, pid in self._candidates(kind).items()}
            return {}
        if moment == CHECKPOINT:
            writers = dict(writing(self._run.folder))
            return self._candidates(kind, apps=set(writers), pids=set(writers.values())) if writers else {}
        begun = starting(self._run.folder)
        if kind == WORKER:
            return {each.id: each.pid for each in begun if each.pid is not None and self._may(kind, each)}
        return self._candidates(kind, apps={each.app for each in begun}) if begun else {}

    def _candidates(
        self, kind: str, apps: set[str] | None = None, pids: set[int] | None = None
    ) -> dict[str, int]:  # fmt: skip
        """Victims of a kind that live now; of workers those that train, or with ``pids``, these."""
        if kind in (ARBITER, LAUNCHER):
            child = self._run.supervisor.arbiter if kind == ARBITER else self._run.supervisor.launcher
            pid = None if child is None or self._is_worn(kind) else child.pid
            return {} if pid is None else {kind: pid}
        found = {}
        for each in containers(self._run.folder):
            wanted = each.is_master == (kind == APP_MASTER) and (each.is_master or each.hello)
            wanted &= apps is None or each.app in apps
            wanted &= kind == APP_MASTER or pids is None or each.pid in pids
            if wanted and each.pid is not None and self._may(kind, each):
                found[each.id] = each.pid
        return found

    def _is_worn(self, kind: str) -> bool:
        """Whether the supervisor would soon give up a process that never lasts: then it is left alone for a while."""
        ends = [kill.at for kill in self.kills if kill.kind == kind]
        in_row = 0
        for before, after in itertools.pairwise([*ends, time.time()]):
            in_row = 0 if after - before > LASTING_SECONDS else in_row + 1
        return in_row >= MOST_FAILURES // 2

    def _may(self, kind: str, container: Container) -> bool:
        return self._killed[_life(kind, container.id)] < MOST_OF_ONE[kind]

    def _strike(self, kind: str, found: dict[str, int], *, at_once: bool = False) -> None:
        """Kill one of them, and note what it met: what was so before and is still so after.

        Args:
            kind: of the victims.
            found: pids by name.
            at_once: for a moment that is over before anything else could be looked at.
        """
        if not found:
            return
        victim = self._random.choice(sorted(found))
        writers = {} if at_once else dict(writing(self._run.folder))
        begun = set() if at_once else {each.id for each in starting(self._run.folder)}
        at = time.time()
        try:
            os.kill(found[victim], signal.SIGKILL)
        except ProcessLookupError:
            return
        moment = self._moment(kind, victim, found[victim], at, writers, begun)
        self.kills.append(
            Kill(kind=kind, victim=victim, pid=found[victim], at=at, moment=moment, aimed=self._aim is not None)
        )
        self._tell(self.kills[-1])
        self._killed[_life(kind, victim)] += 1
        self.left.pop(0)
        self._plan(PAUSE)

    def _moment(
        self, kind: str, victim: str, pid: int, at: float, writers: dict[str, int], begun: set[str]
    ) -> str:  # fmt: skip
        left = {path.name.split(".")[-3] for path in self._run.folder.glob("apps/*/[0-9]*/checkpoints/*/.*.tmp")}
        still = {str(writer) for writer in writers.values()} & left
        if str(pid) in still if kind == WORKER else still:
            return CHECKPOINT
        if victim in begun if kind == WORKER else begun & {each.id for each in starting(self._run.folder)}:
            return START
        time.sleep(0.01)
        self._offers.take(self._run.record.poll().steps)
        return AUCTION if self._offers.was_open(at) else BETWEEN


def _life(kind: str, victim: str) -> str:
    """What has so many lives: an app's master over its attempts, a job over its incarnations."""
    if kind == APP_MASTER:
        return victim.rsplit(":", 1)[0]
    return victim.rsplit(".", 2)[0] if kind == WORKER else kind
