"""The base of all tests of a policy: the plugin, its runs, and reports of broken rules."""

from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

from eunomia.errors import EunomiaError, InputErrors
from eunomia.model.cluster import Cluster
from eunomia.testing import scenes
from eunomia.testing.bench import Bench, Rule, Run
from eunomia.testing.scenes import Scene
from eunomia.units import Stage

SHOWN = 3
"""Maximum number of findings shown per rule."""


class PolicyTests:
    """Tests of one plugin; the attributes are those of ``PolicyConformance``."""

    plugin: ClassVar[type[Any]]
    options: ClassVar[Mapping[str, object]] = {}
    profile: ClassVar[Mapping[str, object]] = {}
    time_limit: ClassVar[float] = 30.0

    @classmethod
    def _name(cls) -> str:
        given = getattr(cls.plugin, "name", None)
        return given if isinstance(given, str) else cls.plugin.__name__

    @classmethod
    def _bench(cls) -> Bench:
        """Return the bench of this test class, created once."""
        if "_made" not in vars(cls):
            try:
                made = Bench(cls.plugin, options=cls.options, profile=cls.profile, limit=cls.time_limit)
            except EunomiaError as error:
                cls._broken("a policy must load in its profile", str(error))
            cls._made = made
        return cls._made

    _made: ClassVar[Bench]

    @classmethod
    def _town(cls) -> Run:
        return cls._bench().once(scenes.town(), "first", promises=True)

    @classmethod
    def _serves_two_types(cls) -> bool:
        """Return whether the policy supports two GPU types: no stage declares that it needs one type."""
        try:
            cls._bench().stages(Cluster.parse(scenes.two_kinds().cluster))
        except InputErrors:
            return False
        return True

    @classmethod
    def _changing(cls) -> Scene:
        return scenes.changing_cluster("A100" if cls._serves_two_types() else "V100")

    @classmethod
    def _answered(cls) -> list[Stage]:
        return [stage for stage in Stage if cls._bench().answers(stage)]

    @classmethod
    def _broken(cls, rule: str, what: str) -> NoReturn:
        raise AssertionError(f"{cls._name()}: {rule}, but {what}")

    @classmethod
    def _check(cls, run: Run, *rules: Rule) -> None:
        """Fail if a run violated one of these rules."""
        for rule in rules:
            if rule in run.problems:
                cls._broken(rule.value, listed(run.problems[rule]))

    @classmethod
    def _check_all(cls, run: Run) -> None:
        cls._check(run, *Rule)

    @classmethod
    def _same(cls, run: Run, rule: str, first_run: Run | None = None) -> None:
        """Fail if the decisions of a run differ from those of the first run, by default the run of ``town``."""
        cls._check(run, Rule.RETURNS, Rule.SCRIPT_ENDS)
        first = (first_run or cls._town()).decisions
        if run.decisions == first:
            return
        pairs = enumerate(zip(first, run.decisions, strict=False))
        at = next((step for step, (left, right) in pairs if left != right), min(len(first), len(run.decisions)))
        scene = "town" if first_run is None else first_run.scene
        cls._broken(rule, f"step {at + 1} of {len(first)} differs ({scene})")


def listed(found: list[str]) -> str:
    """Return the first findings of a rule as text."""
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return "; ".join(found[:SHOWN]) + more
