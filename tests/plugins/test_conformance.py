"""The conformance suite applied to every plugin that the registry lists, and to the policy of the how-to.

Over some eighty policies the ordinary suite repeats shorter parts of the scenes; ``make thorough`` repeats them whole,
as any other user of the suite does.
"""

import dataclasses
import functools
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.core.test_conformance_suite import Dice, Forgets, Remembers

from companions import companions
from eunomia.platform.registry import Registry
from eunomia.testing import scenes
from eunomia.testing.bench import Bench, Run
from eunomia.testing.conformance import PolicyConformance
from eunomia.testing.scenes import Scene
from strength import THOROUGH

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # a division by zero, or NaN, places nothing

ROOT = Path(__file__).parents[2]
EXAMPLES = [
    path for path in sorted((ROOT / "docs" / "examples").rglob("eunomia_*.py")) if "hookimpl" in path.read_text()
]
REGISTRY = Registry.find(paths=EXAMPLES, installed=False)
COMPANIONS = Registry.find(installed=False)
"""The other stages of a profile are plugins of Eunomia."""


@functools.cache
def _companions_of(name: str) -> Mapping[str, object]:
    return companions(name, COMPANIONS if name in COMPANIONS.names else REGISTRY)


JOBS = 1_000
"""In place of ten thousand."""
PARTS = {"again": 0.2, "cold": 0.4, "shared": 0.3, "read back": 0.4}
"""The part of a scene's time that a repeated run has, by its name; the first run has all of it."""


class Shortened(PolicyConformance):
    """Repeats a part of each scene, and holds it against the same part of the first run."""

    @classmethod
    def _bench(cls) -> Bench:
        if "_made" not in vars(cls):
            made = super()._bench()
            cls._until = {}
            if not THOROUGH:
                made.once = cls._shorter(made.once)
        return cls._made

    _until: dict[int, float]
    """When a shortened run ended, by its identity; the bench keeps all runs."""

    @classmethod
    def _shorter(cls, once: Callable[..., Run]) -> Callable[..., Run]:
        def shorter(scene: Scene, way: str = "", **how: Any) -> Run:
            if scene is scenes.many():
                return once(scenes.many(JOBS), way, **how)
            if way not in PARTS:
                return once(scene, way, **how)
            scene = dataclasses.replace(scene, until=PARTS[way] * scene.until)
            run = once(scene, way, **how)
            cls._until[id(run)] = scene.until
            return run

        return shorter

    @classmethod
    def _same(cls, run: Run, rule: str, first_run: Run | None = None) -> None:
        first = first_run or cls._town()
        if id(run) in cls._until:
            same = [made for made in first.decisions if json.loads(made)["now"] <= cls._until[id(run)]]
            assert len(same) > 5
            first = Run(scene=first.scene, decisions=same)
        super()._same(run, rule, first)


class Accompanied(Shortened):
    """Looks for the companions when its first test runs: every process of a test run imports this file."""

    @classmethod
    def _bench(cls) -> Bench:
        if "_made" not in vars(cls):
            cls.profile = _companions_of(cls._name())
        return super()._bench()


def _class_of(name: str, profile: dict[str, object] | None = None, **options: object) -> type[PolicyConformance]:
    label = "".join(part.title() for part in [*name.split("_"), *options])
    body: dict[str, Any] = {"plugin": REGISTRY.load(name), "options": options}
    base = Accompanied if profile is None else Shortened
    return type(f"Test{label}", (base,), {**body, "profile": profile or {}, "__module__": __name__})


def _classes() -> dict[str, type[PolicyConformance]]:
    wanted = os.environ.get("EUNOMIA_CONFORMANCE", "").split()
    names = [name for name in REGISTRY.names if REGISTRY.stages(name) and (not wanted or name in wanted)]
    made = [_class_of(name) for name in names]
    if not wanted:
        made.append(_class_of("ordered", {}, preemptive=True))
        made.append(_class_of("ordered", {"placement": "consolidated"}, standby=4))
        made.append(_class_of("las", {"plugins.ordered.preemptive": True}, queues=[30.0, 200.0]))
        made.append(_class_of("themis", {"elasticity": "range"}, fairness_knob=0.3))
    return {kind.__name__: kind for kind in made}


globals().update(_classes())


def test_the_conformance_suite_covers_every_plugin_with_a_stage() -> None:
    assert {"fifo", "themis", "lottery"} <= {name for name in REGISTRY.names if REGISTRY.stages(name)}


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (Dice, "the_same_seed_gives_the_same_decisions"),
        (Remembers, "new_and_reused_plugins_decide_the_same"),
        (Remembers, "a_plugin_keeps_no_state_between_arbiters"),
        (Forgets, "memos_restored_from_bytes_give_the_same_decisions"),
    ],
)
def test_a_shortened_repeat_finds_a_plugin_that_breaks_its_rule(kind: type[Any], rule: str) -> None:
    made = type(f"Test{kind.__name__}", (Shortened,), {"plugin": kind})()
    with pytest.raises(AssertionError, match=f"^{kind.name}: "):
        getattr(made, f"test_{rule}")()
