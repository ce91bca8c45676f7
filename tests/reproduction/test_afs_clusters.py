"""AFS' eleven clusters as orders only: the average JCT of SRTF and SRSF within 1 % of an independent simulation."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("afs_clusters", Path(__file__).with_name("afs_clusters.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


afs = _script()
QUICK = ("2869ce",)


def hold(cluster: str, policy: str) -> None:
    if not afs.TRACE.exists():
        pytest.skip("../shared/data/philly is not here: it is public data, kept outside the project")
    row = afs.measure(cluster, policy)
    assert row.hours == pytest.approx(row.expected, rel=0.01)
    assert row.hours == pytest.approx(row.naive, rel=1e-6)


@pytest.mark.parametrize("policy", afs.POLICIES)
@pytest.mark.parametrize("cluster", QUICK)
def test_a_small_cluster_gives_the_published_results(cluster: str, policy: str) -> None:
    hold(cluster, policy)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("policy", afs.POLICIES)
@pytest.mark.parametrize("cluster", [cluster for cluster in afs.HOURS if cluster not in QUICK])
def test_every_cluster_gives_the_published_results(cluster: str, policy: str) -> None:
    hold(cluster, policy)
