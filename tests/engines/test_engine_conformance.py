"""The conformance suite: the engine in memory and Slurm's pass it, and an engine that breaks a rule fails its test."""

import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.engines.recorded_slurm import RecordedLab

from eunomia.errors import InputError, PluginError
from eunomia.hookspecs import hookimpl
from eunomia.platform.registry import Registry
from eunomia_engines.engine import EngineFinding, EngineNode, NodeState
from eunomia_engines.engines import engine_names, load_engine
from eunomia_engines.slurm.engine import SlurmKind
from eunomia_engines.testing.conformance import EngineConformance, EngineLab, Saying
from eunomia_engines.testing.fake import FakeCluster, FakeEngine, FakeKind


class Memory:
    """Machines in memory."""

    name = "memory"
    api = 1

    @hookimpl
    def eunomia_engine(self) -> str:
        return "eunomia_engines.testing.fake:FakeKind"


class FakeLab:
    """A cluster in memory that a test moves."""

    sayings = frozenset(Saying) - {Saying.NO_TIMES, Saying.STRANGE_STATE}
    seconds = 0.0
    states = (Path("/a"), Path("/b"))

    def __init__(self, kind: Callable[[FakeCluster], FakeKind] = FakeKind, *, group: int = 1) -> None:
        self.cluster = FakeCluster(group=group)
        self.kind = kind(self.cluster)

    def give(self, node: str) -> None:
        self.cluster.give(self.cluster.nodes[node])

    def end(self, node: str) -> None:
        for one in self.cluster.group_of(self.cluster.nodes[node]):
            self.cluster.end(one)

    def say(self, node: str, saying: Saying) -> None:
        known = self.cluster.nodes[node]
        known.said = {
            Saying.TWICE: (known.state, known.state),
            Saying.CONTRADICTION: (known.state, NodeState.ENDED),
            Saying.NOT_LISTED: (),
        }[saying]

    def refuse(self) -> None:
        self.cluster.refusal = "no more nodes"

    def silence(self) -> None:
        self.cluster.is_silent = True

    def close(self) -> None:
        pass


class TestMemory(EngineConformance):
    plugin = Memory

    def lab(self) -> EngineLab:
        return FakeLab()


class TestMemoryInGroups(EngineConformance):
    plugin = Memory
    group = 2

    def lab(self) -> EngineLab:
        return FakeLab(group=self.group)


class TestRecordedSlurm(EngineConformance):
    name = "slurm"

    def lab(self) -> EngineLab:
        return RecordedLab(Path(tempfile.mkdtemp()))


class TestRecordedSlurmWithTwoNodesAJob(EngineConformance):
    name = "slurm"
    group = 2

    def lab(self) -> EngineLab:
        return RecordedLab(Path(tempfile.mkdtemp()), nodes_per_job=self.group)


# --- engines that break a rule ---------------------------------------------------------------------------------------


class Greedy(FakeEngine):
    def ask(self, count: int) -> Sequence[str]:
        return super().ask(count + 1)


class Mute(FakeEngine):
    def nodes(self) -> Sequence[EngineNode]:
        return [] if self._cluster.is_silent else super().nodes()


class Hasty(FakeEngine):
    def nodes(self) -> Sequence[EngineNode]:
        known = [node for node in self._cluster.nodes.values() if node.owner == self._owner]
        found = {node.id: node for node in super().nodes()}
        gone = [EngineNode(id=node.id, state=NodeState.ENDED) for node in known if node.id not in found]
        return [*found.values(), *gone]


class Repeating(FakeEngine):
    def nodes(self) -> Sequence[EngineNode]:
        return [node for node in super().nodes() for _ in range(2)]


class Trusting(FakeEngine):
    def nodes(self) -> Sequence[EngineNode]:
        nodes = super().nodes()
        return [EngineNode(id=node.id, state=self._cluster.nodes[node.id].said[-1], host=node.host) for node in nodes]


class Everyones(FakeEngine):
    def nodes(self) -> Sequence[EngineNode]:
        owners = {node.owner for node in self._cluster.nodes.values()}
        return [node for owner in owners for node in FakeEngine(self._cluster, owner).nodes()]


class Ruthless(FakeEngine):
    def give_back(self, node: str) -> None:
        self._answers()
        for each in self._cluster.nodes.values():
            self._cluster.end(each)


class Keeping(FakeEngine):
    def give_back(self, node: str) -> None:
        self._answers()


class Unwilling(FakeEngine):
    def ask(self, count: int) -> Sequence[str]:
        return [] if self._cluster.refusal else super().ask(count)


class Minutes(FakeEngine):
    def nodes(self) -> Sequence[EngineNode]:
        return [
            EngineNode(id=node.id, state=node.state, host=node.host, asked_at=node.asked_at, began_at=9e9)
            for node in super().nodes()
        ]


class Raising(FakeKind):
    def check(self) -> Sequence[EngineFinding]:
        raise OSError("no such program")


class Hopeful(FakeKind):
    def check(self) -> Sequence[EngineFinding]:
        return [EngineFinding(is_good=True, text="all is well")]


def kind_of(engine: type[FakeEngine]) -> Callable[[FakeCluster], FakeKind]:
    class Kind(FakeKind):
        def engine(self, state: Path) -> FakeEngine:
            return engine(self._cluster, str(state))

    return Kind


@pytest.mark.parametrize(
    ("kind", "test", "said"),
    [
        (kind_of(Greedy), "test_an_ask_returns_at_most_as_many_ids_as_were_asked_for", "at most as many ids, but"),
        (kind_of(Mute), "test_an_engine_that_does_not_answer_says_nothing", "nodes of a silent engine must raise"),
        (kind_of(Hasty), "test_a_node_that_is_not_listed_is_left_out_and_not_called_ended", "must be left out"),
        (
            kind_of(Trusting),
            "test_what_the_engine_does_not_know_counts_neither_as_ended_nor_as_free",
            "must be unknown",
        ),
        (kind_of(Everyones), "test_nodes_of_another_state_folder_are_not_listed_and_not_ended", "folder alone"),
        (kind_of(Ruthless), "test_a_node_that_runs_ends_once_it_is_given_back", "must end|must go on"),
        (kind_of(Ruthless), "test_a_node_that_has_ended_changes_nothing_when_it_is_given_back", "must go on"),
        (kind_of(Keeping), "test_a_node_that_waits_is_withdrawn", "given back must end"),
        (kind_of(Unwilling), "test_a_refusal_has_words_and_asks_for_nothing", "must raise EngineRefusedError"),
        (kind_of(Minutes), "test_a_node_that_runs_has_a_host_and_times", "must be in Unix seconds"),
        (Raising, "test_a_check_says_what_is_there_and_raises_nothing", "must raise nothing, but it raised"),
        (Hopeful, "test_a_check_says_what_is_there_and_raises_nothing", "must say what is missing"),
    ],
)
def test_an_engine_that_breaks_a_rule_fails_its_test(kind: Any, test: str, said: str) -> None:
    class Suite(EngineConformance):
        name = "broken"

        def lab(self) -> EngineLab:
            return FakeLab(kind)

    with pytest.raises(AssertionError, match=f"^broken: .*{said}"):
        getattr(Suite(), test)()


def test_an_engine_that_lists_a_node_twice_fails() -> None:
    class Suite(EngineConformance):
        def lab(self) -> EngineLab:
            return FakeLab(kind_of(Repeating))

    with pytest.raises(AssertionError, match="each node must be listed once"):
        Suite().test_what_the_engine_does_not_know_counts_neither_as_ended_nor_as_free()


def test_the_page_has_each_test_of_the_suite() -> None:
    page = (
        (Path(__file__).parents[2] / "docs" / "reference" / "testing.md").read_text().partition("## EngineConform")[2]
    )
    tests = {name for name in vars(EngineConformance) if name.startswith("test_")}
    assert set(re.findall("test_[a-z_]+", page)) == tests


# --- engines by name -------------------------------------------------------------------------------------------------


def registry(*kinds: type[Any]) -> Registry:
    return Registry.find(installed=False).adding(*kinds)


def test_engines_are_the_built_in_ones_and_those_of_plugins() -> None:
    assert engine_names(registry()) == ("kubernetes", "ray", "slurm")
    assert engine_names(registry(Memory)) == ("kubernetes", "memory", "ray", "slurm")
    assert isinstance(load_engine("slurm", registry()), SlurmKind)
    assert isinstance(load_engine("memory", registry(Memory)), FakeKind)


def test_an_engine_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(
        InputError, match=r'must be one of kubernetes, memory, ray, slurm, but got "memry"; did you mean "memory"\?'
    ):
        load_engine("memry", registry(Memory))
    with pytest.raises(InputError, match='must be one of kubernetes, ray, slurm, but got "fifo"'):
        load_engine("fifo", registry())


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "eunomia_engine must return module:class, but got None"),
        ("eunomia_engines", "must return module:class"),
        ("eunomia_engines.nowhere:Kind", "must be made without an error, but got ModuleNotFoundError"),
        ("eunomia_engines.testing.fake:FakeEngine", "must be made without an error, but got TypeError"),
        ("eunomia_engines.testing.fake:FakeCluster", "must have the call check, but got FakeCluster"),
    ],
)
def test_a_plugin_that_names_no_engine_is_named(answer: Any, said: str) -> None:
    class Bad:
        """An engine."""

        name = "bad"
        api = 1

        @hookimpl
        def eunomia_engine(self) -> str:
            return answer  # type: ignore[no-any-return]

    with pytest.raises(PluginError, match=said):
        load_engine("bad", registry(Bad))
