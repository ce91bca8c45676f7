"""CPUs and memory that launchers must set: of probes, and of the share once a probe is over."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from eunomia.model.leases import LeaseState
from eunomia.units import NONE
from eunomia_appmaster.service.tuned import Setting, settings

SHARE = (2.0, 8.0)
EPOCH = 7


def view_of(probe_cpus: float | None) -> Any:
    """One lease on GPUs 0 and 1, with its share of the machine or a probe with other CPUs."""
    share = (np.full(2, SHARE[0]), np.full(2, SHARE[1]))
    gpus = np.array([0, 1])
    probe = None if probe_cpus is None else SimpleNamespace(gpus=gpus, cpus=2 * probe_cpus, memory_gib=float("nan"))
    lease = SimpleNamespace(
        id=3, job=4, state=LeaseState.ACTIVE, epoch=EPOCH, tuned=NONE, gpus=gpus, running=gpus, probe=probe
    )
    amounts = SimpleNamespace(
        are_known=True, differ=probe is not None, tuning=(), of=lambda _: share, shares=lambda _: share
    )
    return SimpleNamespace(amounts=amounts, gpus=SimpleNamespace(lease=np.array([3, 3])), leases=lambda: [lease])


def test_a_lease_at_its_share_needs_no_order() -> None:
    assert settings(view_of(None), {}) == {}
    assert settings(view_of(None), {0: EPOCH - 1}) == {}, "that order was about an earlier lease"


@pytest.mark.parametrize("last", [{}, {0: EPOCH, 1: EPOCH}])
def test_a_probe_sets_its_cpus(last: dict[int, int]) -> None:
    probed = Setting(epoch=EPOCH, cpus=1.0, memory_gib=SHARE[1])
    assert settings(view_of(1.0), last) == {0: probed, 1: probed}


def test_launchers_restore_the_share_of_a_lease_after_a_probe() -> None:
    share = Setting(epoch=EPOCH, cpus=SHARE[0], memory_gib=SHARE[1])
    assert settings(view_of(None), {0: EPOCH, 1: EPOCH}) == {0: share, 1: share}
    assert settings(view_of(None), {1: EPOCH}) == {1: share}
