"""Tests that decisions depend only on inputs and seed, and not on state that a plugin object keeps."""

from collections.abc import Mapping

from eunomia.contract.events import AppArrived, Event, JobAdded
from eunomia.contract.memos import Memo
from eunomia.contract.stages import Stages
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia.round.arbiter import Arbiter
from eunomia.testing import scenes
from eunomia.testing.bench import Bench
from eunomia.testing.scenes import Scene
from eunomia.testing.suite.base import PolicyTests, listed
from eunomia.units import AppId, JobId, Seconds, Stage, UserId, Version


class RepeatTests(PolicyTests):
    """Tests that equal inputs lead to equal decisions."""

    def test_the_same_seed_gives_the_same_decisions(self) -> None:
        """Check that a second run with the same seed makes the same decisions."""
        again = self._bench().once(scenes.town(), "again")
        self._same(again, "the same seed must give the same decisions")

    def test_new_and_reused_plugins_decide_the_same(self) -> None:
        """Check that plugins created for every round make the same decisions as plugins kept between rounds."""

        def recreate(arbiter: Arbiter, scene: Scene) -> None:
            arbiter.use(self._bench().stages(arbiter.state.cluster, scene))

        cold = self._bench().once(scenes.town(), "cold", after=recreate)
        rule = "a new plugin must decide like one that was called before: it keeps more than caches on itself"
        self._same(cold, rule)
        machines = self._changing()
        cold, warm = self._bench().once(machines, "cold", after=recreate), self._bench().once(machines)
        self._same(cold, rule, warm)

    def test_a_plugin_keeps_no_state_between_arbiters(self) -> None:
        """Check that plugins that serve a second arbiter between the rounds of the first make the same decisions."""
        shared: list[Stages] = []
        others: list[Arbiter] = []

        def lend(arbiter: Arbiter, stages: Stages) -> None:
            shared.append(stages)
            others.append(_other(stages, self._bench()))

        def between(arbiter: Arbiter, scene: Scene) -> None:
            _one_more(others[0])

        run = self._bench().once(scenes.town(), "shared", twice=True, before=lend, after=between)
        if run.unlike:
            self._broken("a stage that is asked twice in a row must answer alike", listed(run.unlike))
        rule = "a plugin must decide alike if another arbiter called it in between: it keeps more than caches on itself"
        self._same(run, rule)

    def test_memos_restored_from_bytes_give_the_same_decisions(self) -> None:
        """Check that decisions do not change if memos are serialized and deserialized after every round."""
        types = {(name, stage): kind for name, stage, kind in self._bench().stages().memo_types}

        def reread(arbiter: Arbiter, scene: Scene) -> None:
            for key, memo in list(arbiter.state.stages.memos.items()):
                if key[0] == self._name():
                    arbiter.state.stages.memos[key] = self._read_back(key, memo, types)

        run = self._bench().once(scenes.town(), "read back", after=reread)
        self._same(run, "memos must hold all that matters: read back from their bytes they must lead to the same")

    @classmethod
    def _read_back(cls, key: tuple[str, Stage], memo: Memo, types: Mapping[tuple[str, Stage], type[Memo]]) -> Memo:
        if key not in types:
            cls._broken("a plugin must name the types of its memos in memo_types", f"none of {key[1].value}")
        data = memo.to_bytes()
        if not isinstance(data, bytes) or data != memo.to_bytes():
            cls._broken("a memo must always write the same bytes", f"it does not ({key[1].value})")
        try:
            read = types[key].from_bytes(memo.version, data)
        except Exception as error:
            cls._broken("a memo must be read from its own bytes", f"{type(error).__name__}: {error}")
        if read.to_bytes() != data:
            cls._broken("a memo read from its bytes must write the same", f"it does not ({key[1].value})")
        return read


def _other(stages: Stages, bench: Bench) -> Arbiter:
    """Return a second arbiter with the same plugins, whose distant state version makes them rebuild caches."""
    cluster = Cluster.parse("1x4 V100 16cpu 64GB")
    fallback = Profile.fallback(registry=bench.registry).stages(cluster)
    made = Arbiter(cluster, stages, fallback, seed=3)
    made.state.counters.version = Version(1_000_000)
    return made


def _one_more(arbiter: Arbiter) -> None:
    """Add another app to the second arbiter, which triggers a round."""
    number, now = arbiter.state.counters.arrivals, Seconds(arbiter.state.now + 1.0)
    app = AppId(f"other{number}")
    events: list[Event] = [
        AppArrived(app=app, user=UserId("zoe"), divides=False),
        JobAdded(job=JobId(f"{app}/0"), app=app, least=1, most=2, iterations=50.0, seconds_per_iteration=0.1),
    ]
    arbiter.step(now, events)
