"""The test suite that any engine can inherit; it runs under plain pytest and needs no fixtures.

```python
class TestMyEngine(EngineConformance):
    plugin = MyEngine

    def lab(self) -> EngineLab:
        return MyLab()
```

A failure names the engine, the rule and what broke it:
``mine: a node in a state that is not known must be UNKNOWN, but it is ended``.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Protocol

from eunomia.errors import EunomiaError, InputError
from eunomia.platform.checking import check_plugin
from eunomia.platform.registry import Registry
from eunomia_engines.engine import (
    Engine,
    EngineFinding,
    EngineKind,
    EngineNode,
    EngineRefusedError,
    EngineSilentError,
    NodeState,
)
from eunomia_engines.engines import load_engine

ACTIVE = frozenset({NodeState.ASKED, NodeState.RUNS})
OVER = frozenset({NodeState.ENDS, NodeState.ENDED})
POLL_SECONDS = 0.2


class Saying(Enum):
    """Reports of the engine's programs about a node that an engine must not take for the node's end."""

    STRANGE_STATE = "a state that no version of the adapter knows"
    TWICE = "the same line twice"
    CONTRADICTION = "two lines with different states"
    NO_TIMES = "times that are missing or in a form that is not known"
    NOT_LISTED = "nothing: the node is not listed"


class EngineLab(Protocol):
    """An engine with a backend that a test controls: the real programs, or fakes that print the same output.

    Attributes:
        kind: the engine.
        states: two state folders, each with its own request for nodes.
        sayings: reports that the programs can be made to print.
        seconds: time within which a change becomes visible.
    """

    kind: EngineKind
    states: tuple[Path, Path]
    sayings: frozenset[Saying]
    seconds: float

    def give(self, node: str) -> None:
        """Start a waiting node on a machine."""

    def end(self, node: str) -> None:
        """End a node from outside, as its time limit or an operator would."""

    def say(self, node: str, saying: Saying) -> None:
        """Make the engine's programs report ``saying`` about a node from now on."""

    def refuse(self) -> None:
        """Make the engine refuse each request from now on."""

    def silence(self) -> None:
        """Make the engine answer no call from now on."""

    def close(self) -> None:
        """End all nodes and release the lab's resources."""


class EngineConformance:
    """Base class of an engine's test class.

    Attributes:
        plugin: the plugin's class; None: the engine is tested without a plugin.
        name: name of the engine in failures; empty: the plugin's name.
        group: number of nodes that the engine gives together; 1: each stands alone.
    """

    plugin: ClassVar[type[Any] | None] = None
    name: ClassVar[str] = ""
    group: ClassVar[int] = 1

    def lab(self) -> EngineLab:
        """Return a new lab: an engine without nodes."""
        raise NotImplementedError

    # --- what is declared -------------------------------------------------------------------------------------------

    def test_the_plugin_names_an_engine_that_can_be_made(self) -> None:
        """Check the plugin's name, API version and hook, and that the class named by the hook has all methods."""
        if self.plugin is None:
            return
        name = str(getattr(self.plugin, "name", ""))
        try:
            check_plugin(self.plugin, name)
            load_engine(name, Registry.find(installed=False).adding(self.plugin))
        except EunomiaError as error:
            self._broken("a plugin must name an engine that can be made", str(error))

    def test_a_check_says_what_is_there_and_raises_nothing(self) -> None:
        """Check the lines of ``check``, with an engine that answers and one that does not."""
        with self._open() as lab:
            found = self._findings(lab)
            if not all(one.is_good for one in found):
                self._broken("a check of an engine that answers must be good", str([one.text for one in found]))
            lab.silence()
            if all(one.is_good for one in self._findings(lab)):
                self._broken("a check of an engine that does not answer must say what is missing", "it is good")

    # --- asks -------------------------------------------------------------------------------------------------------

    def test_an_ask_returns_at_most_as_many_ids_as_were_asked_for(self) -> None:
        """Check number and form of the ids, and that each id is listed as a node that waits or runs."""
        with self._open() as lab:
            engine, made = self._first(lab), list[str]()
            for count in (2 * self.group, 0, 1, self.group):
                ids = list(engine.ask(count))
                if len(ids) > count or not all(isinstance(each, str) and each for each in ids):
                    self._broken(f"an ask for {count} nodes must return at most as many ids", repr(ids))
                made += ids
            if len(set(made)) != len(made):
                self._broken("each node must have an id of its own", repr(made))
            self._wait(lab, engine, lambda nodes: set(made) == {one.id for one in nodes}, "all asks must be listed")
            self._same(engine, made, ACTIVE, "a node that was asked for must wait or run")

    def test_a_refusal_has_words_and_asks_for_nothing(self) -> None:
        """Check the error of an engine that refuses a request, and that no node appears."""
        with self._open() as lab:
            engine = self._first(lab)
            before = {node.id for node in engine.nodes()}
            lab.refuse()
            try:
                ids = engine.ask(self.group)
            except EngineRefusedError as error:
                if not (error.value or "").strip('"'):
                    self._broken("a refusal must have the engine's own words", repr(str(error)))
            else:
                self._broken("an ask that the engine refuses must raise EngineRefusedError", f"it returned {ids}")
            if more := {node.id for node in engine.nodes() if node.state in ACTIVE} - before:
                self._broken("a refused ask must leave no node", repr(more))

    # --- nodes ------------------------------------------------------------------------------------------------------

    def test_a_node_that_runs_has_a_host_and_times(self) -> None:
        """Check host, start time and end time of a running node."""
        with self._open() as lab:
            node = self._running(lab, self._first(lab))
            if not node.host:
                self._broken("a node that runs must have a host", repr(node))
            asked = time.time() if node.asked_at is None else node.asked_at
            if node.began_at is None or not abs(node.began_at - asked) < 86400.0:
                self._broken("began_at must be in Unix seconds, near the time of the ask", repr(node))
            if node.ends_at is not None and node.ends_at <= node.began_at:
                self._broken("a node must end after it began", repr(node))

    def test_nodes_of_another_state_folder_are_not_listed_and_not_ended(self) -> None:
        """Check that an engine lists and ends only the nodes of its own state folder."""
        with self._open() as lab:
            one, other = (lab.kind.engine(state) for state in lab.states)
            node = self._running(lab, one)
            if strange := [each.id for each in other.nodes()]:
                self._broken("an engine must list the nodes of its own state folder alone", repr(strange))
            with contextlib.suppress(InputError):  # it may refuse instead
                other.give_back(node.id)
            self._settle(lab)
            self._same(one, [node.id], {NodeState.RUNS}, "an engine must end the nodes of its own state folder alone")

    def test_two_looks_at_the_same_nodes_are_equal(self) -> None:
        """Check that ``nodes`` changes nothing, and that a second engine of the same folder lists the same nodes."""
        with self._open() as lab:
            engine = self._first(lab)
            self._running(lab, engine)
            looks = [sorted(engine.nodes(), key=lambda node: node.id) for _ in range(2)]
            again = sorted(self._first(lab).nodes(), key=lambda node: node.id)
            if not looks[0] == looks[1] == again:
                self._broken("two looks at the same nodes must be equal", f"{looks[0]}, {looks[1]}, {again}")

    def test_what_the_engine_does_not_know_counts_neither_as_ended_nor_as_free(self) -> None:
        """Check the state of a node that is reported in an unknown state, or twice, equally or differently."""
        wanted = {
            Saying.STRANGE_STATE: {NodeState.UNKNOWN},
            Saying.CONTRADICTION: {NodeState.UNKNOWN},
            Saying.TWICE: {NodeState.RUNS},
            Saying.NO_TIMES: {NodeState.RUNS, NodeState.UNKNOWN},
        }
        for saying, states in wanted.items():
            with self._open() as lab:
                if saying not in lab.sayings:
                    continue
                engine = self._first(lab)
                node = self._running(lab, engine)
                lab.say(node.id, saying)
                self._settle(lab)
                rule = f"a node of which the engine says {saying.value} must be {_words(states)}"
                self._same(engine, [node.id], states, rule)

    def test_a_node_that_is_not_listed_is_left_out_and_not_called_ended(self) -> None:
        """Check that ``nodes`` leaves out a node that the engine does not list, instead of reporting it as ended."""
        with self._open() as lab:
            if Saying.NOT_LISTED not in lab.sayings:
                return
            engine = self._first(lab)
            node = self._running(lab, engine)
            lab.say(node.id, Saying.NOT_LISTED)
            self._settle(lab)
            if found := [one for one in engine.nodes() if one.id == node.id]:
                self._broken("a node that the engine does not list must be left out", repr(found))

    def test_an_engine_that_does_not_answer_says_nothing(self) -> None:
        """Check that each call raises ``EngineSilentError`` if the engine does not answer."""
        with self._open() as lab:
            engine = self._first(lab)
            node = self._running(lab, engine)
            lab.silence()
            calls: dict[str, Callable[[], object]] = {
                "nodes": engine.nodes,
                "ask": lambda: engine.ask(self.group),
                "give_back": lambda: engine.give_back(node.id),
            }
            for name, call in calls.items():
                try:
                    answer = call()
                except EngineSilentError:
                    continue
                except EunomiaError as error:
                    self._broken(f"{name} of a silent engine must raise EngineSilentError", repr(error))
                self._broken(f"{name} of a silent engine must raise EngineSilentError", f"it returned {answer}")

    # --- nodes that are given back ----------------------------------------------------------------------------------

    def test_a_node_that_waits_is_withdrawn(self) -> None:
        """Check that a node in the queue neither waits nor runs after it was given back."""
        with self._open() as lab:
            engine = self._first(lab)
            node = self._asked(engine)[0]
            engine.give_back(node)
            self._over(lab, engine, node)

    def test_a_node_that_runs_ends_once_it_is_given_back(self) -> None:
        """Check that a node ends, even if it is given back several times, and that other nodes keep running."""
        with self._open() as lab:
            engine = self._first(lab)
            one, other = self._running(lab, engine), self._running(lab, engine)
            self._over(lab, engine, one.id)
            self._same(engine, [other.id], {NodeState.RUNS}, "a node that is not given back must go on")

    def test_a_node_that_has_ended_changes_nothing_when_it_is_given_back(self) -> None:
        """Check that an ended node can be given back, and that giving back an unknown id ends no other node."""
        with self._open() as lab:
            engine = self._first(lab)
            ended, other = self._running(lab, engine), self._running(lab, engine)
            lab.end(ended.id)
            self._over(lab, engine, ended.id)
            engine.give_back(ended.id)
            with contextlib.suppress(InputError):  # it may refuse an id that it never gave
                engine.give_back("no-such-node")
            self._settle(lab)
            self._same(engine, [other.id], {NodeState.RUNS}, "a node that is not given back must go on")
            if len(made := engine.ask(self.group)) > self.group or set(made) & {ended.id, other.id}:
                self._broken("a new node must have a new id", repr(made))

    def test_the_nodes_of_a_group_start_and_end_together(self) -> None:
        """Check that nodes which the engine gives together have one group, and that giving back one ends them all."""
        if self.group == 1:
            return
        with self._open() as lab:
            engine = self._first(lab)
            if few := engine.ask(self.group - 1):
                self._broken("an ask for fewer nodes than a group has must ask for none", repr(few))
            made, other = self._asked(engine), self._running(lab, engine)
            groups = {node.group for node in engine.nodes() if node.id in made}
            if len(groups) != 1 or groups & {"", other.group}:
                self._broken("nodes that are given together must have one group of their own", repr(groups))
            lab.give(made[0])
            what = "with a node, all of its group must run"
            self._wait(lab, engine, lambda nodes: _states(nodes, made) == {NodeState.RUNS}, what)
            self._over(lab, engine, made[-1])
            what = "with a node that is given back, all of its group must end"
            self._wait(lab, engine, lambda nodes: _states(nodes, made) <= OVER, what)
            self._same(engine, [other.id], {NodeState.RUNS}, "a node of another group must go on")

    # --- helpers ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _open(self) -> Iterator[EngineLab]:
        lab = self.lab()
        try:
            yield lab
        finally:
            lab.close()

    def _first(self, lab: EngineLab) -> Engine:
        return lab.kind.engine(lab.states[0])

    def _findings(self, lab: EngineLab) -> Sequence[EngineFinding]:
        try:
            found = list(lab.kind.check())
        except Exception as error:
            self._broken("a check must raise nothing", f"it raised {error!r}")
        if not found or not all(one.text and "\n" not in one.text for one in found):
            self._broken("a check must have findings of one line each", repr(found))
        return found

    def _asked(self, engine: Engine) -> Sequence[str]:
        """Request a node, or a group of nodes, and return their ids."""
        made = engine.ask(self.group)
        if len(made) != self.group:
            self._broken(f"an ask for {self.group} nodes that the engine can give must be met", repr(made))
        return made

    def _running(self, lab: EngineLab, engine: Engine) -> EngineNode:
        """Request and start a node, and return it once it runs."""
        node = self._asked(engine)[0]
        lab.give(node)
        what = "a node that was given a machine must run"
        nodes = self._wait(
            lab, engine, lambda nodes: (node, NodeState.RUNS) in [(one.id, one.state) for one in nodes], what
        )
        return next(one for one in nodes if one.id == node)

    def _over(self, lab: EngineLab, engine: Engine, node: str) -> None:
        """Give a node back repeatedly, as a keeper does, until it has ended."""

        def ended(nodes: Sequence[EngineNode]) -> bool:
            left = [one for one in nodes if one.id == node and one.state not in OVER]
            for one in left:
                engine.give_back(one.id)
            return not left

        self._wait(lab, engine, ended, "a node that is given back must end")

    def _same(self, engine: Engine, ids: Sequence[str], states: AbstractSet[NodeState], rule: str) -> None:
        listed = [node for node in engine.nodes() if node.id in ids]
        found = {node.id: node.state for node in listed}
        if len(listed) > len(found):
            self._broken("each node must be listed once", repr([node.id for node in listed]))
        if set(found) != set(ids) or not set(found.values()) <= states:
            self._broken(rule, _words(found.values()) if found else "it is not listed")

    def _settle(self, lab: EngineLab) -> None:
        """Wait until a change has become visible, if the lab needs time for that."""
        if lab.seconds:
            time.sleep(min(lab.seconds, 3.0))

    def _wait(
        self, lab: EngineLab, engine: Engine, done: Callable[[Sequence[EngineNode]], bool], rule: str
    ) -> Sequence[EngineNode]:
        """Poll ``nodes`` at least twice until ``done`` holds, since the first call may cause changes that follow."""
        deadline, looks = time.monotonic() + lab.seconds, 0
        while True:
            nodes, looks = engine.nodes(), looks + 1
            if done(nodes):
                return nodes
            if time.monotonic() > deadline and looks >= 2:
                self._broken(rule, repr([(node.id, node.state.value) for node in nodes]))
            time.sleep(POLL_SECONDS)

    def _broken(self, rule: str, what: str) -> NoReturn:
        name = self.name or str(getattr(self.plugin, "name", type(self).__name__))
        raise AssertionError(f"{name}: {rule}, but {what}")


def _states(nodes: Sequence[EngineNode], ids: Sequence[str]) -> AbstractSet[NodeState]:
    return {node.state for node in nodes if node.id in ids}


def _words(states: Iterable[NodeState]) -> str:
    return " or ".join(sorted({state.value for state in states}))
