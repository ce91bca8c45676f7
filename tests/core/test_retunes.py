"""Retunes over random histories: no GPU, CPU or GiB is used twice, with delays, lost answers and overtaking orders.

More histories than here: ``EUNOMIA_RETUNE_HISTORIES=10000 pytest -n 0 tests/core/test_retunes.py``.
"""

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from eunomia.testing.strategies import Scenario, scenarios
from strength import examples

_spec = importlib.util.spec_from_file_location("retuning", Path(__file__).parent / "retuning.py")
assert _spec is not None
assert _spec.loader is not None
lab = sys.modules.setdefault("retuning", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab)

HISTORIES = int(os.environ.get("EUNOMIA_RETUNE_HISTORIES", examples(20)))
pytestmark = pytest.mark.timeout(300 + 2 * HISTORIES)


@settings(max_examples=HISTORIES, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenario=scenarios())
def test_no_cpu_or_memory_of_a_machine_is_used_twice(scenario: Scenario) -> None:
    lab.played(scenario)


@settings(max_examples=HISTORIES, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenario=scenarios())
def test_no_cpu_or_memory_is_used_twice_during_measurements_of_rates(scenario: Scenario) -> None:
    lab.played(scenario, probes=True)
