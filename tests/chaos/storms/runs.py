"""One live run of a storm: four apps, and more while actions are left, whose processes are killed and stopped."""

import contextlib
import heapq
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from chaos.storms.apps import more_apps, storm_apps
from chaos.storms.outcome import Hit, StormRun, judge
from chaos.storms.plan import ARBITER, LAUNCHER, Action, Scope, Way
from chaos.storms.targets import Targets, containers, of_folder, targets
from eunomia.errors import EunomiaError
from eunomia_appmaster.launcher.processes import ProcessId
from eunomia_appmaster.node.supervisor import HEALTHY_SECONDS, MOST_FAILURES, MOST_PAUSE_SECONDS
from eunomia_testbed.live_runs.live_run import LiveRun

LENGTH: Final = 0.5
"""Of the apps."""
LEAST_LIVE: Final = 2
"""Apps that live while actions are left: where they end, more are submitted."""
LIMIT_SECONDS: Final = (900.0, 30.0)
"""For a run, and for each action."""
BUSY_LOOPS: Final = 8
MOST_STOPPED: Final = 2
"""Actions wait while so many processes are stopped."""
ROUND_SECONDS: Final = (15.0, 40.0)
"""Between the rounds of "everything three times": the last is within two minutes of the first."""
START_SECONDS: Final = 20.0
"""How long the next process of a kind is waited for."""
INTO_START: Final = 1.0
WAIT_SECONDS: Final = 20.0
"""How long an action waits for a process of its kind; then it hits another one, and is counted so."""
LASTING_SECONDS: Final = HEALTHY_SECONDS + MOST_PAUSE_SECONDS + 2.0
LEFT_SECONDS: Final = 20.0
LOOK_SECONDS: Final = 0.05
SAMPLE_SECONDS: Final = 0.5
SIGNALS: Final = {
    Way.KILL: signal.SIGKILL,
    Way.TERM: signal.SIGTERM,
    Way.STOP: signal.SIGSTOP,
    Way.LONG_STOP: signal.SIGSTOP,
}


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Let so many processes use a core each."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def storm_run(
    folder: Path,
    actions: Sequence[Action],
    *,
    busy: bool,
    seed: int,
    policy: str = "demo",
    tell: Callable[[str], None] = lambda _: None,
) -> StormRun:
    """Make one run, do all actions in it, and wait until every app is over.

    Args:
        folder: of the run; new.
        actions: what is done.
        busy: whether eight loops use the cores beside it.
        seed: draws victims and moments.
        policy: of the arbiter; the demo's suspends jobs within seconds, stopped ones too.
        tell: hears of each hit.
    """
    began = time.time()
    run = LiveRun(folder, storm_apps(folder / "scripts", LENGTH), policy=policy, seed=seed, cpu_only=True)
    storm = Storm(run, actions, random.Random(seed), tell)
    limit = LIMIT_SECONDS[0] + LIMIT_SECONDS[1] * len(actions)
    wrong, counts = list[str](), Counter[str]()
    with busy_loops(BUSY_LOOPS if busy else 0):
        try:
            run.start()
            run.submit()
            more = more_apps(folder / "scripts", LENGTH)
            while not (run.is_over and storm.over):
                if time.time() - began > limit:
                    wrong.append(f"it did not end within {limit:.0f} s")
                    break
                run.supervisor.check()
                storm.look()
                live = [life for life in run.record.apps.values() if life.ended_at is None]
                if not storm.over and len(live) < LEAST_LIVE and len(run.record.apps) >= len(run.names):
                    with contextlib.suppress(EunomiaError):  # the arbiter is away: at the next look
                        run.submit_also(next(more))
                time.sleep(LOOK_SECONDS)
            counts = storm.stalls()
        except EunomiaError as error:
            wrong.append(str(error))
        finally:
            storm.go_on()
            run.stop()
            left = _left(folder)
    wrong += [f"{each} ran on when its launcher had ended" for each in left]
    return judge(run, storm.hits, [*wrong, *storm.doubles], seconds=time.time() - began, busy=busy, stalls=counts)


def _left(folder: Path) -> list[str]:
    """Wait until no process of a run is left; return, and end, those that are."""
    deadline = time.monotonic() + LEFT_SECONDS
    while (left := of_folder(folder)) and time.monotonic() < deadline:
        time.sleep(0.2)
    for _, _, process, shepherd in containers(folder):
        for each in (process, shepherd):
            if each is not None:
                each.signal(signal.SIGKILL)
    return left


class Storm:
    """Does actions to the processes of a run.

    Args:
        run: whose processes.
        actions: in order.
        chance: draws victims.
        tell: hears of each hit.
    """

    def __init__(self, run: LiveRun, actions: Sequence[Action], chance: random.Random, tell: Callable[[str], None]):
        self._run = run
        self._left = list(actions)
        self._chance = chance
        self._tell = tell
        self._due: list[tuple[float, int, Callable[[], Any]]] = []
        """What is to be done, with Unix time."""
        self._numbers = iter(range(1_000_000))
        self._stopped: dict[ProcessId, Hit] = {}
        self._next_at: float | None = None
        self._waited: float | None = None
        self._sampled_at = 0.0
        self.hits: list[Hit] = []
        self.doubles: list[str] = []

    @property
    def over(self) -> bool:
        """Whether everything has been done, and nothing is stopped."""
        return not (self._left or self._due or self._stopped)

    def look(self) -> None:
        """Read what is new, sample the slots, and do what is due."""
        self._run.record.poll()
        now = time.time()
        if now - self._sampled_at > SAMPLE_SECONDS:
            self._sampled_at = now
            self._sample()
        while self._due and self._due[0][0] <= now:
            heapq.heappop(self._due)[2]()
        if self._next_at is None and any(line.event == "running" for line in self._run.record.lines):
            self._next_at = now
        if self._left and self._next_at is not None and now >= self._next_at and self._is_quiet():
            self._act()

    def stalls(self) -> Counter[str]:
        """Return how many gangs, app masters and launchers were ended since they hung, by the screens."""
        deadline, counts = time.time() + 30.0, Counter[str]()
        while time.time() < deadline:
            with contextlib.suppress(EunomiaError):
                for app in self._run.client.list(ended=True).apps:
                    counts["worker"] += app.standing.stalls
                    counts["app master"] += app.app_master_stalls
                break
            time.sleep(0.5)
        launcher = self._run.supervisor.launcher
        counts["launcher"] = 0 if launcher is None else len(launcher.hangs)
        return counts

    def go_on(self) -> None:
        """Continue all that is stopped."""
        for process in list(self._stopped):
            self._continue(process)

    def _is_quiet(self) -> bool:
        return not self._due_rounds and len(self._stopped) < MOST_STOPPED

    @property
    def _due_rounds(self) -> bool:
        return len(self._due) > len(self._stopped)  # each stop has its continuation there

    def _at(self, when: float, work: Callable[[], Any]) -> None:
        heapq.heappush(self._due, (when, next(self._numbers), work))

    def _sample(self) -> None:
        """Note slots on which two containers have a process."""
        holders: dict[int, list[str]] = {}
        for name, slot, _, _ in containers(self._run.folder):
            if slot >= 0:
                holders.setdefault(slot, []).append(name)
        self.doubles += [f"slot {slot} has {names} in /proc" for slot, names in holders.items() if len(names) > 1]

    def _act(self) -> None:
        action, found = self._left[0], targets(self._run)
        now = time.time()
        absent = [kind for kind in action.kinds if not self._free(found, kind)]
        if absent and action.scope is not Scope.THRICE:
            self._waited = now if self._waited is None else self._waited
            if now - self._waited < WAIT_SECONDS:
                self._next_at = now + 0.3
                return
            if len(self._left) > 1 and any(other.kinds != action.kinds for other in self._left):
                self._left.append(self._left.pop(0))  # a kind without a process waits for its turn
                self._waited, self._next_at = None, now + 0.3
                return
        self._left.pop(0)
        self._waited, self._next_at = None, now + action.pause
        if action.scope is Scope.THRICE:
            at = now
            for _ in range(3):
                self._at(at, lambda: self._everything(action))
                at += self._chance.uniform(*ROUND_SECONDS)
            self._next_at = at
            return
        for kind, way in zip(action.kinds, action.ways, strict=True):
            chosen = self._free(found, kind)
            if chosen:
                name = self._chance.choice(sorted(chosen))
                self._strike(action, kind, name, found[kind].pop(name), way)
        if action.scope is Scope.START:
            self._at(now, lambda: self._again(action, targets(self._run)[action.kinds[0]], now + START_SECONDS))

    def _free(self, found: Targets, kind: str) -> list[str]:
        """Return the processes of a kind that may be hit: not stopped, and not about to be given up by ``serve``."""
        if kind in (ARBITER, LAUNCHER) and self._is_worn(kind):
            return []
        return [name for name, process in found[kind].items() if process not in self._stopped]

    def _is_worn(self, kind: str) -> bool:
        """Whether a process that never lasts would soon be given up by its supervisor."""
        ends = [hit.at for hit in self.hits if hit.kind == kind and hit.way in (Way.KILL, Way.TERM)]
        in_row, last = 0, 0.0
        for at in ends:
            in_row = in_row + 1 if at - last < LASTING_SECONDS else 1
            last = at
        return in_row >= MOST_FAILURES // 2 and time.time() - last < LASTING_SECONDS

    def _everything(self, action: Action) -> None:
        for kind, processes in targets(self._run).items():
            for name, process in processes.items():
                self._strike(action, kind, name, process, Way.KILL)

    def _again(self, action: Action, known: dict[str, ProcessId], until: float) -> None:
        """Kill the next process of a kind while it starts."""
        kind = action.kinds[0]
        new = {name: one for name, one in targets(self._run)[kind].items() if one not in known.values()}
        if not new and time.time() < until:
            self._at(time.time() + 0.05, lambda: self._again(action, known, until))
        elif new:
            name = self._chance.choice(sorted(new))
            delay = self._chance.uniform(0.0, INTO_START)
            self._at(time.time() + delay, lambda: self._strike(action, kind, name, new[name], Way.KILL))

    def _strike(self, action: Action, kind: str, name: str, process: ProcessId, way: Way) -> None:
        at = time.time()
        if not process.signal(SIGNALS[way]):
            return
        hit = Hit(action=action.number, scope=action.scope, kind=kind, name=name, pid=process.pid, way=way, at=at)
        self.hits.append(hit)
        self._tell(f"{action.number:4} {action.scope:22}{way:20}{kind:12}{name}")
        if SIGNALS[way] is signal.SIGSTOP:
            self._stopped[process] = hit
            self._at(at + action.seconds, lambda: self._continue(process))

    def _continue(self, process: ProcessId) -> None:
        hit = self._stopped.pop(process, None)
        if hit is not None:
            hit.until = time.time()
            hit.ended = not process.signal(signal.SIGCONT)
