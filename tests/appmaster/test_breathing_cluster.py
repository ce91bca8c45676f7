"""A cluster that breathes under three searches: nodes join, drain, lose power, come back as less, join as another type.

The order is that of real minutes; the next event follows once `eunomia nodes` and `explain` show the one before, or at
once. The arbiter is killed between any two.
"""

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.appmaster import serving_lab, written
from tests.appmaster.cluster_lab import Cluster, cluster, wait
from tests.appmaster.namespaces_lab import needs_namespaces

from eunomia_appmaster.journal_check import check_folder
from eunomia_testbed.live_runs.redone import redone

_floors = serving_lab.floors
pytestmark = [needs_namespaces, pytest.mark.slow, pytest.mark.timeout(1800)]
SEARCHES = ("ana", "ben", "cyd")
LEASE = "25s"
"""Longer than an arbiter takes to start on a loaded machine: else its kills end the work of all nodes."""
STEPS = 5000
EVERY = 40
"""Steps between two checkpoints of a job."""
END_SECONDS = 900.0
EXPLAINED_SECONDS = 60.0


class Scene:
    """Two nodes of two slots at first; two more machines stand ready."""

    def __init__(self, made: Cluster) -> None:
        self.cluster = made

    def begin(self) -> None:
        """Start all, until the searches have saved on both nodes."""
        self.cluster.start_arbiter("--node-lease", LEASE, "--set", "rounds.lease=15s")
        for name in ("alfa", "omega"):
            self.cluster.join(name)
        for app in SEARCHES:
            self.cluster.submit_search(app, iterations=STEPS, every=EVERY)
        wait(lambda: self.running_on("alfa") == 2 == self.running_on("omega"), "they run on both")
        wait(lambda: self.saves() >= 4, "they have saved")

    def saves(self) -> int:
        return len(list(self.cluster.state.glob("apps/*/*/checkpoints/*/*.json")))

    def running_on(self, node: str) -> int:
        return len(self.cluster.nodes[node].running())

    def state_of(self, node: str) -> str:
        return self.cluster.states().get(node, "")

    # -- the events, and what shows that each has come to pass

    def join(self) -> None:
        self.cluster.join("beta")

    def joined(self) -> bool:
        return self.state_of("beta") == "up" and self.running_on("beta") == 2

    def drain(self) -> None:
        words = ("nodes", "drain", "omega", "--why", "ana: maintenance", "--within", "20s")

        def drained() -> bool:  # a restarted arbiter refuses it until its nodes have registered
            with contextlib.suppress(AssertionError):
                return bool(self.cluster.eunomia(*words))
            return False

        wait(drained, "the order to drain is taken")

    def drained(self) -> bool:
        return self.state_of("omega") == "drained" and self.running_on("omega") == 0

    def lose_power(self) -> None:
        self.cluster.power_off(self.cluster.nodes["alfa"])

    def lost(self) -> bool:
        return self.state_of("alfa") == "down" and self.running_on("beta") == 2

    def come_back_as_less(self) -> None:
        self.cluster.start_launcher(self.cluster.nodes["alfa"], slots=1)

    def came_back(self) -> bool:
        return self.state_of("alfa") == "up" and self.running_on("alfa") == 1

    def join_as_another_type(self) -> None:
        self.cluster.join("gamma", "--slot-types", "2x slow:0.5")

    def joined_as_another(self) -> bool:
        return self.state_of("gamma") == "up" and self.running_on("gamma") == 2

    # -- what `explain` says

    def explained(self) -> list[str]:
        """What is said of each search; empty: the arbiter does not answer, on a machine with much to do."""
        with contextlib.suppress(AssertionError):
            return [self.cluster.eunomia("explain", app) for app in SEARCHES]
        return []

    def check_explained(self) -> None:
        """See that jobs wait, and that `explain` names only slots of nodes that are up among those that free them.

        A restarted arbiter may not have made a round yet, so it is asked again for a while.
        """
        deadline = time.monotonic() + EXPLAINED_SECONDS
        while why := self.unexplained():
            assert time.monotonic() < deadline, why
            time.sleep(1.0)

    def unexplained(self) -> str:
        """Return what is wrong with what `explain` says now; empty: nothing."""
        states = wait(self.cluster.states, "the nodes")
        texts = wait(self.explained, "explanations")
        up = {node for node, state in states.items() if state == "up"}
        waits = [text for text in texts if " WAITING " in text]
        for text in waits:
            named = {found[1] for found in re.finditer(r"\b([a-z]+)/\d+", text)} & self.cluster.nodes.keys()
            if not named <= up:
                return f"{named - up} give no slot: {text}"
        if not any("Frees it" in text for text in waits):
            return f"no job waits for slots that free it: {texts}"
        return ""


Event = tuple[Callable[[Scene], None], Callable[[Scene], bool]]
EVENTS: tuple[Event, ...] = (
    (Scene.join, Scene.joined),
    (Scene.drain, Scene.drained),
    (Scene.lose_power, Scene.lost),
    (Scene.come_back_as_less, Scene.came_back),
    (Scene.join_as_another_type, Scene.joined_as_another),
)
"""What happens, and what shows it."""


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with cluster(tmp_path, nodes=4) as made:
        yield Scene(made)


@pytest.mark.parametrize("at_once", [False, True], ids=["shown", "at-once"])
def test_searches_finish_while_nodes_come_and_go_and_the_arbiter_is_killed(scene: Scene, at_once: bool) -> None:
    scene.begin()
    made = scene.cluster
    for event, shown in EVENTS:
        made.kill_arbiter()
        event(scene)
        if at_once:
            made.kill_arbiter()
        wait(lambda shown=shown: shown(scene), shown.__name__)
        scene.check_explained()
    made.kill_arbiter()
    made.hurry()
    wait(lambda: made.app_states() == dict.fromkeys(SEARCHES, "finished"), "all finish", END_SECONDS)
    again = list(redone(made.state, {}))
    assert all(each.steps <= EVERY for each in again), again
    changes = written.changes(made.recorder / "log")
    assert written.breaches(changes) == []
    assert written.overlaps(made.state / "apps", changes, jobs=True) == []
    made.close()
    assert [str(finding) for finding in check_folder(made.state, over=True).findings] == []
