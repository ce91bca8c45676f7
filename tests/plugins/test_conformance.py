"""The conformance suite applied to every plugin that the registry lists, and to the policy of the how-to."""

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from companions import companions
from eunomia.platform.registry import Registry
from eunomia.testing.bench import Bench
from eunomia.testing.conformance import PolicyConformance

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


class Accompanied(PolicyConformance):
    """Looks for the companions when its first test runs: every process of a test run imports this file."""

    @classmethod
    def _bench(cls) -> Bench:
        cls.profile = _companions_of(cls._name())
        return super()._bench()


def _class_of(name: str, profile: dict[str, object] | None = None, **options: object) -> type[PolicyConformance]:
    label = "".join(part.title() for part in [*name.split("_"), *options])
    body: dict[str, Any] = {"plugin": REGISTRY.load(name), "options": options}
    base = Accompanied if profile is None else PolicyConformance
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
