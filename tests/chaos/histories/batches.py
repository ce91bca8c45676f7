"""Histories of one seed, in a process that may be one of several."""

import time
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from tests.core import test_arbiter_invariants

from chaos.histories.changes import changing_scenarios
from chaos.histories.held import hold
from eunomia.testing.strategies import Scenario

BATCH = 25
"""Histories of one seed."""


def run_batch(work: tuple[int, str]) -> tuple[Counter[str], float, str]:
    """Hold some histories of one seed and policy.

    Returns:
        What was seen, the CPU seconds, and the first finding; empty: none.
    """
    number, policy = work
    seen: Counter[str] = Counter()

    @seed(number)
    @settings(
        max_examples=BATCH,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(scenario=changing_scenarios())
    def each(scenario: Scenario) -> None:
        found = hold(test_arbiter_invariants, scenario, policy)
        seen.update(found)
        seen["histories"] += 1

    began, why = time.process_time(), ""
    try:
        checked: Any = each
        checked()
    except Exception as error:
        why = f"seed {number}, {policy}: {error!r}"
    return seen, time.process_time() - began, why
